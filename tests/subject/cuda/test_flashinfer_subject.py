"""The FlashInfer subject on real sglang, its kernels emulated: it is right, it says what it is, and faults show."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
import torch

from harness.checks.noise import bound
from harness.errors import Exit, NoSubject
from harness.parity.comparison import Comparison
from harness.reference.metadata import rows
from harness.scenario.metadata import MetadataScenario
from harness.scenario.observation import Observation
from harness.subject.cuda import flashinfer_kernels
from harness.subject.cuda.prepare import FLASHINFER, FLASHINFER_EMULATED
from harness.subject.frames import SubjectInfo
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.cuda.planted_flashinfer import command
from tests.subject.cuda.scenes import ALL, errors, scenario

VERIFY = scenario("DFLASH", "target_verify", "eager")
REPLAYED = scenario("DFLASH", "target_verify", "graph")
MASKED = scenario("EAGLE", "target_verify", "eager")


@pytest.fixture(scope="module", params=["0.5.15", "0.5.18", "0.5.23"])
def flashinfer(request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    with Supervisor(resolve(request.param), FLASHINFER_EMULATED) as supervisor:
        yield supervisor


def observed_with(fault: str, one: MetadataScenario = VERIFY) -> Observation:
    """What is seen of a verify where `fault` is planted."""
    with Supervisor(resolve("0.5.23"), FLASHINFER_EMULATED, command(fault)) as supervisor:
        (observed,) = supervisor.observe([one])
    return observed


@pytest.mark.slow
def test_every_mode_is_within_the_noise_of_float64_eager_and_replayed_and_tells_its_lengths(
    flashinfer: Supervisor,
) -> None:
    capabilities = ("NONE", *flashinfer.info.capabilities)
    known = [one for one in ALL if one.target == "mha" and one.algorithm in capabilities]
    for one, observed in zip(known, flashinfer.observe(known), strict=True):
        told = [seen.fields["kv_lengths"].values.tolist() for seen in observed.seen]

        assert max(errors(one, observed)) <= bound("flashinfer-emulated/float32"), one
        assert told == [[row.kv_length for row in rows(one, batch)] for batch in one.rounds]
    assert len(known) >= 15


@pytest.mark.slow
@pytest.mark.parametrize(("release", "verdict"), [("0.5.17", "WITHIN NOISE"), ("0.5.18", "DIFFERENT")])
def test_the_block_that_ascend_counts_twice_in_0_5_18_is_found_beside_it(release: str, verdict: str) -> None:
    source = resolve(release)
    with Supervisor(source) as ascend, Supervisor(source, FLASHINFER_EMULATED) as flashinfer:
        comparison = Comparison(ascend, flashinfer)
        comparison.run([VERIFY], lambda done, total: None)
    document = comparison.document()

    assert document.verdict == verdict
    if document.first is not None:
        told = "kv_lengths[0]: a attends to 13 positions, b to 9; right is 9"
        assert document.first.message == told


@pytest.mark.slow
def test_it_says_that_its_kernels_are_emulated_and_never_that_it_is_cuda(flashinfer: Supervisor) -> None:
    info = flashinfer.info
    assert (info.kind, info.device, info.noise) == ("flashinfer", "flashinfer-emulated", "flashinfer-emulated/float32")
    assert info.versions["flashinfer"] == "emulated"


@pytest.mark.slow
def test_window_layers_are_unsupported_and_no_observation(flashinfer: Supervisor) -> None:
    (observed,) = flashinfer.observe([scenario("NONE", "extend", "eager", window=20)])

    assert observed.fault is not None
    assert (observed.fault.cause, observed.fault.reason) == (
        "unsupported",
        "the subject flashinfer runs no window layers",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("outside", "kv_indices[0] is 10000: the cache has slots 0 to "),
        ("too-long", "kv_indptr[-1] is 1053: kv_indices has 61 slots"),
        ("stale", "the plan is for lengths [9, 44]: the buffers have lengths [9, 43]: the plan is stale"),
    ],
)
def test_what_a_kernel_must_not_be_given_is_an_error_of_sglang_with_the_value(fault: str, says: str) -> None:
    observed = observed_with(fault)

    assert observed.fault is None
    assert says in observed.seen[0].error


@pytest.mark.slow
def test_a_length_that_is_one_too_short_shows_in_lengths_and_outputs() -> None:
    observed = observed_with("short")

    assert observed.seen[0].fields["kv_lengths"].values.tolist() == [9, 43]
    assert errors(VERIFY, observed)[0] > 0.01


@pytest.mark.slow
def test_a_mask_that_hides_a_position_shows_in_outputs_alone() -> None:
    observed = observed_with("hidden", MASKED)

    assert observed.seen[0].fields["kv_lengths"].values.tolist() == [9, 44]
    assert errors(MASKED, observed)[0] > 0.01


@pytest.mark.slow
def test_a_replay_that_was_planned_for_too_few_keys_has_no_output() -> None:
    observed = observed_with("planned-short", REPLAYED)

    assert [seen.error for seen in observed.seen] == ["", ""]
    assert all(np.isnan(seen.output.values).all() for seen in observed.seen if seen.output is not None)


@pytest.mark.slow
def test_in_float16_it_computes_what_a_gpu_would_be_given() -> None:
    assert FLASHINFER.dtype == "float16"
    assert 1e-5 < max(errors(VERIFY, observed_with("half"))) < 0.01


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_one_sentence_says_what_to_do() -> None:
    with pytest.raises(
        NoSubject, match=r"torch sees no CUDA GPU here: .* use the subject flashinfer-emulated"
    ) as raised:
        Supervisor(resolve("0.5.23"), "flashinfer")
    assert raised.value.exit_status == Exit.UNKNOWN
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("capability", "says"),
    [((7, 0), "this one has 7.0"), ((9, 0), "flashinfer is not installed")],
)
def test_a_gpu_or_a_package_that_cannot_run_it_is_named(
    capability: tuple[int, int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(flashinfer_kernels, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=says):
        flashinfer_kernels.require()


def test_a_gpu_of_its_own_with_the_package_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(flashinfer_kernels, "find_spec", lambda name: name)
    flashinfer_kernels.require()


def test_a_package_of_no_version_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(flashinfer_kernels, "version", version)
    assert flashinfer_kernels.installed() == "unknown"
    monkeypatch.setattr(flashinfer_kernels, "version", lambda name: f"{name} 0.7.2")
    assert flashinfer_kernels.installed() == "flashinfer-python 0.7.2"


def test_the_noise_of_a_gpu_is_known_by_its_backend_and_its_dtype() -> None:
    assert SubjectInfo("flashinfer", "", "cuda:A", {}, dtype="float16").noise == "cuda:A/float16/flashinfer"
