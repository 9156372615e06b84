"""The FlashAttention subject on real sglang, its kernels emulated: it is right, it says what it is, and faults show."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from msgspec.structs import replace

from harness.checks.noise import bound
from harness.errors import Exit, NoSubject
from harness.parity.comparison import Comparison
from harness.reference.metadata import rows
from harness.scenario import Request
from harness.scenario.observation import Observation
from harness.scenario.validity import why_invalid
from harness.subject.cuda import fa3_kernels
from harness.subject.cuda.prepare import FA3, FA3_EMULATED
from harness.subject.frames import SubjectInfo
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.cuda.planted_fa3 import command
from tests.subject.cuda.scenes import ALL, errors, scenario

VERIFY = scenario("DFLASH", "target_verify", "eager")


@pytest.fixture(scope="module", params=["0.5.15", "0.5.18", "0.5.23"])
def fa3(request: pytest.FixtureRequest) -> Iterator[Supervisor]:
    with Supervisor(resolve(request.param), FA3_EMULATED) as supervisor:
        yield supervisor


def observed_with(fault: str) -> Observation:
    """What is seen of a verify where `fault` is planted."""
    with Supervisor(resolve("0.5.23"), FA3_EMULATED, command(fault)) as supervisor:
        (observed,) = supervisor.observe([VERIFY])
    return observed


@pytest.mark.slow
def test_every_mode_is_within_the_noise_of_float64_eager_and_replayed_and_tells_its_lengths(fa3: Supervisor) -> None:
    known = [one for one in [*ALL, scenario("NONE", "decode", "eager", window=20)] if _knows(fa3.info, one.algorithm)]
    for one, observed in zip(known, fa3.observe(known), strict=True):
        told = [seen.fields["kv_lengths"].values.tolist() for seen in observed.seen]

        assert max(errors(one, observed)) <= bound("fa3-emulated/float32"), one
        assert told == [[row.kv_length for row in rows(one, batch)] for batch in one.rounds]
    assert len(known) >= 30


def _knows(info: SubjectInfo, algorithm: str) -> bool:
    return algorithm == "NONE" or algorithm in info.capabilities


@pytest.mark.slow
@pytest.mark.parametrize(("release", "verdict"), [("0.5.17", "WITHIN NOISE"), ("0.5.18", "DIFFERENT")])
def test_the_block_that_ascend_counts_twice_in_0_5_18_is_found_beside_it(release: str, verdict: str) -> None:
    source = resolve(release)
    with Supervisor(source) as ascend, Supervisor(source, FA3_EMULATED) as fa3:
        comparison = Comparison(ascend, fa3)
        comparison.run([VERIFY], lambda done, total: None)
    document = comparison.document()

    assert document.verdict == verdict
    if document.first is not None:
        told = "kv_lengths[0]: a attends to 13 positions, b to 9; right is 9"
        assert document.first.message == told


@pytest.mark.slow
def test_it_says_that_its_kernels_are_emulated_and_never_that_it_is_cuda(fa3: Supervisor) -> None:
    assert (fa3.info.kind, fa3.info.device, fa3.info.noise) == ("fa3", "fa3-emulated", "fa3-emulated/float32")
    assert fa3.info.versions["sgl_kernel"] == "emulated"


@pytest.mark.slow
def test_a_graph_has_no_pages_for_what_a_verify_adds_beyond_the_context(fa3: Supervisor) -> None:
    """A fault of sglang, seen in 0.5.15, 0.5.18 and 0.5.23: the pool has columns for it, and eager tables take them."""
    at_the_end = ((Request(prefix=62, new_tokens=1),),)
    eager = replace(VERIFY, rounds=at_the_end)
    graph = replace(scenario("DFLASH", "target_verify", "graph"), rounds=at_the_end)
    taken, refused = fa3.observe([eager, graph])

    assert (why_invalid(eager), why_invalid(graph)) == ("", "")
    assert max(errors(eager, taken)) <= bound("fa3-emulated/float32")
    assert "cache_seqlens[0] is 66: the page table of 4 pages of 16 reaches 64 positions" in refused.seen[0].error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("outside", "page_table[0, 0] is 10000: the cache has pages 0 to "),
        ("too-long", "cache_seqlens[0] is 1009: the page table of "),
        ("too-narrow", "max_seqlen_q is 1: a request has 4 query rows"),
    ],
)
def test_what_a_kernel_must_not_be_given_is_an_error_of_sglang_with_the_value(fault: str, says: str) -> None:
    observed = observed_with(fault)

    assert observed.fault is None
    assert says in observed.seen[0].error


@pytest.mark.slow
def test_a_length_that_is_one_too_short_shows_in_lengths_and_outputs() -> None:
    observed = observed_with("short")

    assert observed.seen[0].fields["kv_lengths"].values.tolist() == [8, 44]
    assert errors(VERIFY, observed)[0] > 0.01


@pytest.mark.slow
def test_a_verify_that_is_not_causal_shows_in_outputs_alone() -> None:
    observed = observed_with("not-causal")

    assert observed.seen[0].fields["kv_lengths"].values.tolist() == [9, 44]
    assert errors(VERIFY, observed)[0] > 0.01


@pytest.mark.slow
def test_in_float16_it_computes_what_a_gpu_would_be_given() -> None:
    assert FA3.dtype == "float16"
    assert 1e-5 < max(errors(VERIFY, observed_with("half"))) < 0.01


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_one_sentence_says_what_to_do() -> None:
    with pytest.raises(NoSubject, match=r"torch sees no CUDA GPU here: .* use the subject fa3-emulated") as raised:
        Supervisor(resolve("0.5.23"), "fa3")
    assert raised.value.exit_status == Exit.UNKNOWN
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("capability", "says"),
    [((12, 0), "this one has 12.0"), ((7, 5), "this one has 7.5"), ((9, 0), "sgl_kernel, .* is not installed")],
)
def test_a_gpu_or_a_package_that_cannot_run_it_is_named(
    capability: tuple[int, int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(fa3_kernels, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=says):
        fa3_kernels.require()


def test_a_gpu_of_its_own_with_the_package_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(fa3_kernels, "find_spec", lambda name: name)
    fa3_kernels.require()


def test_the_package_is_told_by_either_of_its_names_and_unknown_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"sgl-kernel": "0.3.1"}

    def version(name: str) -> str:
        if name not in known:
            raise PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(fa3_kernels, "version", version)
    assert fa3_kernels.installed() == "0.3.1"
    known["sglang-kernel"] = "0.4.10"
    assert fa3_kernels.installed() == "0.4.10"
    known.clear()
    assert fa3_kernels.installed() == "unknown"


def test_the_noise_of_a_gpu_is_known_by_its_backend_and_its_dtype() -> None:
    assert SubjectInfo("triton", "", "cuda:A", {}).noise == "cuda:A/float32"
    assert SubjectInfo("fa3", "", "cuda:A", {}, dtype="float16").noise == "cuda:A/float16/fa3"
