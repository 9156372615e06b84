"""The Triton subject on real sglang, interpreted: it is right, it says what it is, and a planted fault shows."""

from collections.abc import Iterator

import pytest

from harness.checks.noise import bound
from harness.reference.metadata import rows
from harness.scenario import GateScenario
from harness.subject.cuda.prepare import INTERPRETED, in_child
from harness.subject.frames import SubjectInfo
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.cuda import planted as planted_in
from tests.subject.cuda.scenes import ALL, errors, scenario


@pytest.fixture(scope="module")
def triton() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), INTERPRETED) as supervisor:
        yield supervisor


@pytest.mark.slow
def test_every_mode_is_within_the_noise_of_float64_eager_and_replayed(triton: Supervisor) -> None:
    observed = triton.observe(ALL)

    largest = {
        f"{one.algorithm} {one.mode} {one.executor} {one.target}": max(errors(one, seen))
        for one, seen in zip(ALL, observed, strict=True)
    }
    assert len(ALL) >= 30
    assert {name: error for name, error in largest.items() if not error <= bound("triton-interpreter/float32")} == {}


@pytest.mark.slow
def test_it_tells_how_many_positions_each_request_attends_to(triton: Supervisor) -> None:
    for one, observed in zip(ALL, triton.observe(ALL), strict=True):
        told = [seen.fields["kv_lengths"].values.tolist() for seen in observed.seen]

        assert told == [[row.kv_length for row in rows(one, batch)] for batch in one.rounds]


@pytest.mark.slow
def test_it_says_that_it_is_interpreted_and_never_that_it_is_cuda(triton: Supervisor) -> None:
    assert triton.info.kind == "triton"
    assert triton.info.device == "triton-interpreter"


@pytest.mark.slow
def test_what_it_cannot_run_is_unsupported_and_no_observation(triton: Supervisor) -> None:
    (gate,) = triton.observe([GateScenario("npu")])

    assert gate.fault is not None
    assert gate.fault.cause == "unsupported"


@pytest.mark.slow
def test_a_window_decode_of_triton_sees_one_position_too_few(triton: Supervisor) -> None:
    """A fault of sglang, seen in 0.5.15, 0.5.17, 0.5.18 and 0.5.23.

    FlashInfer clamps to `sliding_window_size + 1`, Triton's backend does not.
    """
    one = scenario("NONE", "decode", "eager", window=20)
    (observed,) = triton.observe([one])

    assert errors(one, observed)[0] > 0.01  # the request that is longer than the window
    assert errors(one, observed)[1] <= bound("triton-interpreter/float32")


@pytest.mark.slow
def test_a_planted_fault_shows_in_lengths_and_outputs() -> None:
    one = scenario("DFLASH", "target_verify", "eager")
    with Supervisor(resolve("0.5.23"), INTERPRETED, planted_in.COMMAND) as supervisor:
        (observed,) = supervisor.observe([one])

    assert observed.seen[0].fields["kv_lengths"].values.tolist() == [8, 44]
    assert errors(one, observed)[0] > 0.01


def test_a_child_that_looks_hands_over_what_it_found() -> None:
    info = SubjectInfo("triton", "", "cuda:A", {})

    assert in_child(lambda: info) == info


def test_a_child_that_finds_no_gpu_says_so() -> None:
    def look() -> SubjectInfo:
        raise RuntimeError("torch sees no CUDA GPU here")

    with pytest.raises(RuntimeError, match="torch sees no CUDA GPU here"):
        in_child(look)
