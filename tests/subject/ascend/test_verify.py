"""The real accept code of a release, and the same with a fault planted in it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import checks_of
from harness.scenario import VerifyRequest, VerifyScenario
from harness.scenario.verify import Path, Verifier
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.ascend import planted

#: Of the first request one drafted token is accepted, of the second both.
FIRST = VerifyRequest((0, 1, 2), ((0, 9, 0, 0), (0, 0, 0, 9), (9, 0, 0, 0)))
BOTH = VerifyRequest((0, 1, 2), ((0, 9, 0, 0), (0, 0, 9, 0), (0, 0, 0, 9)))
#: The target says the second child of the root.
TREE = VerifyRequest((0, 1, 2), ((0, 0, 9, 0), (9, 0, 0, 0), (0, 0, 0, 9)), (0, 0))
#: The grammar forbids the drafted token, which is the most likely one.
FORBIDDEN = VerifyRequest((0, 1), ((0, 9, 1, 0), (0, 0, 0, 9)), allowed=((0, 2), (0, 1, 2, 3)))

CHAINS: Sequence[tuple[Verifier, Path]] = (
    ("EAGLE", "ascend"), ("NGRAM", "ascend"), ("DFLASH", "ascend"), ("DFLASH", "cuda"),
    ("DSPARK", "ascend"), ("DSPARK", "cuda"),
)  # fmt: skip


#: Two drafted tokens, of which neither is what the target says most often.
SAMPLING = VerifyRequest((0, 1, 2), ((0, 4, 6, 2), (4, 0, 2, 6), (1, 2, 3, 4)), temperature=2.0)
DRAFTING = replace(SAMPLING, draft_logits=((0, 3, 2, 1), (0, 0, 2, 1)))
SAMPLING_TREE = replace(SAMPLING, parents=(0, 0))
DRAWN = VerifyScenario("EAGLE", (SAMPLING,), draws=500)


def found(subject: Supervisor, scenario: VerifyScenario) -> list[str]:
    """The fingerprints of what is wrong; nothing where it is right, and a failure where nobody knows."""
    checks = checks_of(("accept",))
    tally = Tally([check.id for check in checks])
    findings = Trial(subject.observe, checks, tally).judge(scenario)
    assert tally.reasons == {}
    assert any(counts.ran for counts in tally.checks.values())
    return [finding.fingerprint for finding in findings]


@pytest.mark.parametrize(("algorithm", "path"), CHAINS)
@pytest.mark.parametrize("requests", [(FIRST, BOTH), (FORBIDDEN,)], ids=["batch", "grammar"])
def test_a_release_accepts_a_chain_as_the_rule_has_it(
    algorithm: Verifier, path: Path, requests: tuple[VerifyRequest, ...], right: Supervisor
) -> None:
    assert found(right, VerifyScenario(algorithm, requests, path)) == []


@pytest.mark.parametrize("algorithm", ["EAGLE", "NGRAM"])
def test_a_release_accepts_a_tree_as_the_rule_has_it(algorithm: Verifier, right: Supervisor) -> None:
    assert found(right, VerifyScenario(algorithm, (TREE,))) == []


@pytest.mark.parametrize(
    "requests",
    [
        (SAMPLING,),
        (SAMPLING, BOTH),
        (SAMPLING_TREE,),
        (replace(SAMPLING, top_k=2),),
        (replace(SAMPLING_TREE, top_k=3, top_p=0.8),),
        (replace(SAMPLING, allowed=((0, 1), (2, 3), (0, 1, 2, 3))),),
    ],
    ids=["chain", "beside a greedy one", "tree", "top_k", "top_k and top_p", "grammar"],
)
def test_a_release_draws_what_it_emits_from_the_target_s_distribution(
    requests: tuple[VerifyRequest, ...], right: Supervisor
) -> None:
    assert found(right, VerifyScenario("EAGLE", requests, draws=500)) == []


@pytest.mark.parametrize("path", ["ascend", "cuda"])
def test_a_release_accepts_drafts_by_classic_rejection(path: Path, right: Supervisor) -> None:
    assert found(right, VerifyScenario("DSPARK", (DRAFTING,), path, draws=32)) == []


def test_the_same_seed_draws_the_same_tokens_and_another_one_others(right: Supervisor) -> None:
    verify = VerifyScenario("EAGLE", (SAMPLING,), draws=100)
    again, other = replace(verify), replace(verify, seed=1)
    first, second, third = (right.observe([one])[0].accepted for one in (verify, again, other))

    assert first == second
    assert first != third


@pytest.mark.parametrize(
    ("release", "algorithm", "wrong"),
    [("0.5.19", "EAGLE", True), ("0.5.20", "EAGLE", False), ("0.5.20", "DFLASH", True)],
)
def test_releases_that_decode_greedily_whatever_was_asked_are_found(
    release: str, algorithm: Verifier, wrong: bool
) -> None:
    with Supervisor(resolve(release)) as subject:
        fingerprint = f"accept-sampled:tokens:{algorithm}:ascend:chain:always-the-greedy"
        assert found(subject, VerifyScenario(algorithm, (SAMPLING,), draws=256)) == [fingerprint] * wrong


@pytest.mark.parametrize("release", ["0.5.15", "0.5.18"])
def test_releases_without_a_method_for_it_accept_by_their_own_code(release: str) -> None:
    """The DFlash worker decides inside `forward_batch_generation` up to 0.5.18."""
    with Supervisor(resolve(release)) as subject:
        assert found(subject, VerifyScenario("DFLASH", (FIRST, BOTH))) == []
        assert found(subject, VerifyScenario("DFLASH", (FIRST, BOTH), "cuda")) == []


@pytest.mark.parametrize(
    ("fault", "scenario", "fingerprint"),
    [
        ("one-token-too-many", VerifyScenario("DFLASH", (BOTH, FIRST)), "accept_lens:DFLASH:ascend:chain:too-many"),
        ("no-siblings", VerifyScenario("EAGLE", (TREE,)), "accept_lens:EAGLE:ascend:tree:too-few"),
        ("mask-forgotten", VerifyScenario("NGRAM", (FORBIDDEN,)), "accept_lens:NGRAM:ascend:chain:too-many"),
        ("chance-of-zero", DRAWN, "accept_lens:EAGLE:ascend:chain:too-many"),
        ("temperature-ignored", replace(DRAWN, requests=(SAMPLING_TREE,)), "accept_lens:EAGLE:ascend:tree:too-many"),
    ],
)
def test_a_fault_in_the_release_is_found(fault: str, scenario: VerifyScenario, fingerprint: str) -> None:
    check = "accept-sampled" if scenario.sampled else "accept-greedy"
    with Supervisor(resolve("0.5.23"), command=planted.command(fault)) as subject:
        assert found(subject, scenario) == [f"{check}:{fingerprint}"]


@pytest.mark.parametrize(
    ("scenario", "kernel"),
    [
        (VerifyScenario("EAGLE", (BOTH,), "cuda"), "verify_tree_greedy"),
        (
            VerifyScenario("DFLASH", (VerifyRequest(BOTH.tokens, BOTH.logits, temperature=1.0),), "cuda"),
            "tree_speculative_sampling_target_only",
        ),
    ],
)
def test_a_kernel_of_cuda_is_unsupported_by_its_name(scenario: VerifyScenario, kernel: str, right: Supervisor) -> None:
    (observation,) = right.observe([scenario])

    assert observation.fault is not None
    assert (observation.fault.cause, observation.fault.reason.split()[0]) == ("unsupported", kernel)
