"""Two looks: their levels are the published ones, they err as often as one, and the second takes fresh prompts."""

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import norm

from harness.errors import UsageError
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_looks import first_look, second_look
from harness.parity.acceptance_pooling import pooled
from harness.parity.acceptance_run import Reply, Run
from harness.parity.acceptance_statistics import ONE_LOOK
from harness.parity.acceptance_verdict import Verdict
from tests.parity.made_runs import HEADER, HISTOGRAM, SETTING, records, replayed, reply, run


def noisy(seed: int, first: int = 0) -> list[Reply]:
    """24 answers whose counts scatter, to prompts that begin with the number `first`."""
    rng = np.random.default_rng(seed)
    drawn = [reply(number, rng.multinomial(10, np.array(HISTOGRAM) / 10).tolist()) for number in range(SETTING.count)]
    return [replace(one, prompt=(one.number + first, 1, 2)) for one in drawn]


def fresh(replies: list[Reply], name: str = "more.jsonl") -> Run:
    """A run on prompts of its own."""
    return run(records(replies), replace(HEADER, setting=replace(SETTING, prompts="others")), name)


def bounds(level: float) -> float:
    """The distance of a bound in standard errors."""
    return float(norm.ppf((1 + level) / 2))


def test_levels_are_those_of_the_tables_of_lan_and_demets() -> None:
    """One-sided 5 % at two equal looks: 2.538 and 1.662 (O'Brien and Fleming's spending function)."""
    assert bounds(first_look(0.5).equivalence) == pytest.approx(2.538, abs=0.001)
    assert bounds(second_look(0.5).equivalence) == pytest.approx(1.662, abs=0.001)


def test_both_looks_together_err_as_often_as_one() -> None:
    rng = np.random.default_rng(0)
    half, other = rng.standard_normal((2, 1_000_000))
    both = (half + other) / np.sqrt(2)
    for first, second, one in zip(first_look(0.5), second_look(0.5), ONE_LOOK, strict=True):
        beyond = (half > bounds(first)) | (both > bounds(second))

        assert beyond.mean() == pytest.approx((1 - one) / 2, rel=0.03)


def test_a_second_look_is_at_both_runs_and_decides_what_the_first_did_not() -> None:
    first = compare(run(records(noisy(1))), run(records(noisy(2))), two_looks=True)
    same = run(records(noisy(1)))
    second = compare(same, same, two_looks=True, more=(fresh(noisy(3, 100)), fresh(noisy(3, 100))))

    assert (first.look, first.verdict) == (1, Verdict.INCONCLUSIVE)
    assert (second.look, second.verdict, second.rungs[0].prompts) == (2, Verdict.EQUIVALENT, 48)


def test_a_first_look_asks_for_more_than_an_only_one() -> None:
    runs = run(records(noisy(1))), run(records(noisy(2)))
    only, first = (compare(*runs, two_looks=two).rungs[0].difference for two in (False, True))

    assert first.interval.low < only.interval.low and only.interval.high < first.interval.high
    assert first.certain.low < only.certain.low and only.certain.high < first.certain.high


def test_a_drop_in_both_halves_is_found_by_the_second_look() -> None:
    worse = [reply(one.number, (4, 2, 2, 2)) for one in noisy(1)]
    dropped = [replace(one, prompt=other.prompt) for one, other in zip(worse, noisy(3, 100), strict=True)]
    found = compare(
        run(records(noisy(1))), run(records(worse)), two_looks=True, more=(fresh(noisy(3, 100)), fresh(dropped))
    )

    assert found.verdict is Verdict.REGRESSED


def test_replayed_steps_and_scores_are_pooled_with_their_prompts() -> None:
    first = replayed(noisy(1), correct=3)
    second = replayed([replace(one, prompt=(one.number + 100, 1)) for one in noisy(2)], correct=2)
    both = pooled(first, second)

    assert both.header.setting.count == len(both.replies) == len(both.own) == 48
    assert both.steps[24, 4].correct == 2 and both.steps[23, 4].correct == 3
    assert both.base_digest == first.digest + second.digest
    along = replayed(noisy(3), 3, base=first.digest), replayed(noisy(4, 100), 2, base=second.digest)
    assert pooled(*along).base_digest == both.base_digest


def test_a_second_look_at_the_same_prompts_or_at_another_setting_is_refused() -> None:
    first = run(records(noisy(1)))
    hotter = run(records(noisy(2, 100)), replace(HEADER, setting=replace(SETTING, concurrency=32)), "hot.jsonl")

    with pytest.raises(UsageError, match=r"prompt 0 of more\.jsonl is one of run\.jsonl, too.*--skip 24"):
        pooled(first, fresh(noisy(2)))
    with pytest.raises(UsageError, match="they differ in concurrency"):
        pooled(first, hotter)
    with pytest.raises(UsageError, match="were not recorded alike"):
        pooled(first, replayed(noisy(2, 100), 3))


def test_a_second_look_at_another_number_of_prompts_is_refused() -> None:
    first = run(records(noisy(1)))
    setting = replace(SETTING, prompts="others", count=12)
    few = run(records(noisy(3, 100)[:12]), replace(HEADER, setting=setting), "few.jsonl")

    with pytest.raises(UsageError, match="the first look was at 24 prompts, and the second would add 12"):
        compare(first, first, two_looks=True, more=(few, few))


def test_a_second_look_that_nobody_declared_is_refused() -> None:
    first = run(records(noisy(1)))

    with pytest.raises(UsageError, match="were to be declared with the first"):
        compare(first, first, more=(fresh(noisy(2, 100)), fresh(noisy(2, 100))))
