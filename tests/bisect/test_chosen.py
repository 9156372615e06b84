"""What a bisection without a case searches for: what changed between its ends the way that the user says."""

import pytest

from harness.bisect.transitions import Transition
from harness.commands.bisect import Asked, chosen
from harness.errors import UsageError
from harness.report.judgement import judge

FAULT = "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again"
LATENT = "inputs-unchanged:seq_lens_cpu:DFLASH:eager:target_verify:written-int32"
OLD, NEW = "0.5.16", "0.5.17"
ASKED = Asked(good=OLD, bad=NEW)


def broke(fingerprint: str) -> Transition:
    return Transition(fingerprint, "broken", OLD, NEW)


def went(fingerprint: str) -> Transition:
    return Transition(fingerprint, "fixed", NEW, OLD)


def test_the_fingerprints_of_these_tests_are_judged_as_they_say() -> None:
    assert (judge(FAULT).kind, judge(LATENT).kind) == ("fault", "latent")


def test_what_broke_is_searched_for_whatever_went() -> None:
    assert chosen(ASKED, [broke(FAULT), went(LATENT)], ["metadata"]) == [broke(FAULT)]
    assert chosen(ASKED, [broke(LATENT)], ["metadata"]) == [broke(LATENT)]
    assert chosen(ASKED, [broke(LATENT), went(LATENT)], ["metadata"]) == [broke(LATENT)]
    assert chosen(ASKED, [broke(FAULT), went(FAULT)], ["metadata"]) == [broke(FAULT)]


def test_what_was_fixed_is_searched_for_with_fixed_whatever_broke() -> None:
    asked = Asked(good=NEW, bad=OLD, fixed=True)
    assert chosen(asked, [went(LATENT), broke(FAULT)], ["metadata"]) == [went(LATENT)]


@pytest.mark.parametrize("changes", [[went(FAULT)], [went(FAULT), broke(LATENT)]])
def test_ends_between_which_faults_went_and_none_came_are_the_wrong_way_round(changes: list[Transition]) -> None:
    with pytest.raises(
        UsageError, match=r"the wrong way round: between 0\.5\.16 and 0\.5\.17 1 faults? went"
    ) as refused:
        chosen(ASKED, changes, ["metadata"])
    assert "`harness bisect --fixed --good 0.5.17 --bad 0.5.16`" in str(refused.value)
    assert (f"{LATENT}, which broke there" in str(refused.value)) == (len(changes) == 2)


def test_ends_that_do_not_differ_and_a_fix_that_is_none_are_refused() -> None:
    with pytest.raises(UsageError, match="no finding of metadata and outputs differs between"):
        chosen(ASKED, [], ["metadata", "outputs"])
    with pytest.raises(UsageError, match="leave out --fixed"):
        chosen(Asked(good=NEW, bad=OLD, fixed=True), [broke(FAULT)], ["metadata"])
