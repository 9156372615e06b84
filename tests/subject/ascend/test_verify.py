"""The real accept code of a release, and the same with a fault planted in it."""

from collections.abc import Sequence

import pytest

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
    ],
)
def test_a_fault_in_the_release_is_found(fault: str, scenario: VerifyScenario, fingerprint: str) -> None:
    with Supervisor(resolve("0.5.23"), command=planted.command(fault)) as subject:
        assert found(subject, scenario) == [f"accept-greedy:{fingerprint}"]


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
