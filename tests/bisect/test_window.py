"""Where a bisection looks next, and how it ends, on lines of answers."""

import pytest

from harness.bisect.window import Window


def searched(answers: str) -> tuple[Window, int]:
    """Search a line of g(ood), b(ad) and ?, and count the judgements."""
    window, steps = Window(0, len(answers) - 1), 0
    while (place := window.next) is not None:
        window = window.narrowed(place, {"g": False, "b": True, "?": None}[answers[place]])
        steps += 1
    return window, steps


@pytest.mark.parametrize("first_bad", range(1, 60))
def test_the_first_bad_of_sixty_is_found_in_six_judgements(first_bad: int) -> None:
    window, steps = searched("g" * first_bad + "b" * (60 - first_bad))
    assert (window.before, window.after) == (first_bad - 1, first_bad)
    assert steps <= 6


@pytest.mark.parametrize("first_bad", range(8, 60))
def test_a_run_of_broken_commits_elsewhere_costs_two_judgements_more(first_bad: int) -> None:
    line = list("g" * first_bad + "b" * (60 - first_bad))
    line[first_bad - 5 : first_bad - 2] = "???"
    window, steps = searched("".join(line))
    assert (window.before, window.after) == (first_bad - 1, first_bad)
    assert steps <= 8


@pytest.mark.parametrize(
    ("answers", "ends"),
    [("gb", (0, 1)), ("g?b", (0, 2)), ("g??b", (0, 3)), ("gg??bb", (1, 4)), ("g?g?b?b", (2, 4)), ("?g?b"[1:], (0, 2))],
)
def test_what_cannot_be_judged_between_the_ends_makes_a_range(answers: str, ends: tuple[int, int]) -> None:
    window, _ = searched(answers)
    assert (window.before, window.after) == ends
    assert window.open == []


def test_steps_left_are_those_of_a_window_where_all_can_be_judged() -> None:
    assert [Window(0, after).steps_left for after in (1, 2, 3, 4, 8, 60)] == [0, 1, 2, 2, 3, 6]
