"""The accept rule, by examples worked out by hand."""

from contextlib import suppress
from math import log
from typing import Any

import pytest

from harness.reference.accept import Ambiguous, greedy, probabilities, sampled
from harness.scenario import VerifyRequest
from harness.scenario.verify_strategies import VerifyCell, verify_cells
from tests.ideal import CAPABILITIES, drawn_verifies

#: Three tokens a vocabulary has: A, B, C. Rows are the logits after each node.
A, B, C = range(3)
SAYS = {A: (9, 0, 0), B: (0, 9, 0), C: (0, 0, 9)}


def chain(tokens: tuple[int, ...], *rows: tuple[int, ...]) -> VerifyRequest:
    return VerifyRequest(tokens, rows)


@pytest.mark.parametrize(
    ("request_", "emissions"),
    [
        pytest.param(chain((A,), SAYS[B]), {(B,)}, id="nothing drafted: the target's token alone"),
        pytest.param(chain((A, B, C), SAYS[B], SAYS[C], SAYS[A]), {(B, C, A)}, id="all accepted, and the bonus"),
        pytest.param(chain((A, B, C), SAYS[C], SAYS[C], SAYS[A]), {(C,)}, id="none accepted"),
        pytest.param(chain((A, B, C), SAYS[B], SAYS[A], SAYS[A]), {(B, A)}, id="the first accepted"),
        pytest.param(chain((A, B, B), SAYS[C], SAYS[B], SAYS[A]), {(C,)}, id="nothing after a rejection counts"),
        pytest.param(chain((A, B), (0, 9, 9), SAYS[A]), {(B, A), (C,)}, id="a tie is broken either way"),
        pytest.param(chain((A, B), SAYS[B], (7, 0, 7)), {(B, A), (B, C)}, id="the bonus may be tied"),
    ],
)
def test_a_chain_is_accepted_as_far_as_the_target_says_it(
    request_: VerifyRequest, emissions: set[tuple[int, ...]]
) -> None:
    assert emissions == greedy(request_)


#: The root has the children B (node 1) and C (node 2); node 2 has the child A (node 3).
TREE = VerifyRequest((A, B, C, A), (SAYS[C], SAYS[B], SAYS[A], SAYS[B]), (0, 0, 2))


def test_a_path_leads_over_the_second_sibling() -> None:
    assert greedy(TREE) == {(C, A, B)}


def test_only_the_children_of_an_accepted_node_count() -> None:
    elsewhere = VerifyRequest(TREE.tokens, (SAYS[B], SAYS[A], SAYS[A], SAYS[B]), TREE.parents)

    assert greedy(elsewhere) == {(B, A)}


def test_siblings_that_tie_are_two_paths() -> None:
    tied = VerifyRequest(TREE.tokens, ((0, 5, 5), *TREE.logits[1:]), TREE.parents)

    assert greedy(tied) == {(B, B), (C, A, B)}


def test_a_drafted_token_that_the_grammar_forbids_is_rejected_although_it_is_most_likely() -> None:
    request = VerifyRequest((A, B), ((1, 9, 0), SAYS[C]), allowed=((A, C), (A, B, C)))

    assert greedy(request) == {(A,)}


def test_the_bonus_is_one_that_the_grammar_allows() -> None:
    request = VerifyRequest((A, B), (SAYS[B], SAYS[C]), allowed=((B,), (A,)))

    assert greedy(request) == {(B, A)}


#: With the temperature 1 / ln 2 a logit more is twice as likely: 1/7, 2/7 and 4/7.
TWICE = 1 / log(2)


def sampling(*rows: tuple[int, ...], tokens: tuple[int, ...] = (A,), **chosen: Any) -> VerifyRequest:
    return VerifyRequest(tokens, rows, temperature=TWICE, **chosen)


def sevenths(*parts: float) -> list[float]:
    return [pytest.approx(part / 7) for part in parts]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param({}, sevenths(1, 2, 4), id="softmax"),
        pytest.param({"top_k": 2}, sevenths(0, 7 / 3, 14 / 3), id="the two most likely, of what is left"),
        pytest.param({"top_p": 0.5}, sevenths(0, 0, 7), id="one is more than a half"),
        pytest.param({"top_p": 0.6}, sevenths(0, 7 / 3, 14 / 3), id="one is not more than 0.6"),
        pytest.param({"top_k": 2, "top_p": 0.6}, sevenths(0, 0, 7), id="top_p is of what top_k left"),
        pytest.param({"allowed": ((A, B),)}, sevenths(7 / 3, 14 / 3, 0), id="what the grammar allows"),
    ],
)
def test_probabilities_are_filtered_by_top_k_and_then_by_top_p(chosen: dict[str, Any], expected: list[float]) -> None:
    assert probabilities(sampling((0, 1, 2), **chosen), 0) == expected


@pytest.mark.parametrize(
    "request_",
    [
        sampling((0, 1, 1, 1), top_k=2),
        sampling((0, 0, 1), top_k=2),
        sampling((0, 0, 1), top_p=0.7),
        sampling((0, 0, 1), top_p=0.5),
    ],
)
def test_a_filter_that_a_tie_or_rounding_decides_is_ambiguous(request_: VerifyRequest) -> None:
    with pytest.raises(Ambiguous):
        probabilities(request_, 0)


def test_a_sampled_chain_goes_on_as_often_as_the_target_says_its_token() -> None:
    """B after A is 2/7, then C is 4/7; after C nothing is drafted."""
    rows = ((0, 1, 2),) * 3

    assert sampled(sampling(*rows, tokens=(A, B, C))) == {
        (A,): pytest.approx(1 / 7),
        (C,): pytest.approx(4 / 7),
        (B, A): pytest.approx(2 / 49),
        (B, B): pytest.approx(4 / 49),
        (B, C, A): pytest.approx(8 / 343),
        (B, C, B): pytest.approx(16 / 343),
        (B, C, C): pytest.approx(32 / 343),
    }


def test_a_sampled_tree_goes_on_by_any_child() -> None:
    tree = sampling((0, 1, 2), (9, 1, 0), (1, 9, 0), tokens=(A, B, C), parents=(0, 0), top_k=2)

    assert sampled(tree)[B, A] == pytest.approx(1 / 3, rel=1e-2)
    assert sampled(tree)[C, B] == pytest.approx(2 / 3, rel=1e-2)
    assert not any(one[0] == A for one in sampled(tree))


def test_rejection_accepts_by_the_draft_s_probability_and_replaces_by_what_is_above_it() -> None:
    """The target says A, B and C in 1/7, 2/7 and 4/7, the draft in 2/7, 4/7 and 1/7: half of the Bs are accepted."""
    request = sampling((0, 1, 2), (0, 9, 0), tokens=(A, B), draft_logits=((1, 2, 0),), top_k=0)
    emissions = sampled(request)

    assert sum(value for one, value in emissions.items() if one[0] == B) == pytest.approx(1 / 2)
    assert emissions[C,] == pytest.approx(1 / 2)
    assert (A,) not in emissions


@pytest.mark.parametrize("chosen", [{}, {"top_k": 2}, {"allowed": ((A, C), (A, B, C))}], ids=str)
def test_over_all_drafts_rejection_emits_what_the_target_would(chosen: dict[str, Any]) -> None:
    draft = (3, 0, 1)
    odds = probabilities(sampling(draft), 0)
    first = dict.fromkeys((A, B, C), 0.0)
    for token, drafted in enumerate(odds):
        request = sampling((0, 1, 2), (0, 1, 2), tokens=(A, token), draft_logits=(draft,), **chosen)
        for emission, probability in sampled(request).items():
            first[emission[0]] += drafted * probability

    assert [first[token] for token in (A, B, C)] == pytest.approx(probabilities(request, 0))


@pytest.mark.parametrize("cell", [cell for cell in verify_cells(CAPABILITIES) if cell.sampled], ids=str)
def test_the_emissions_of_a_drawn_request_are_a_distribution(cell: VerifyCell) -> None:
    for scenario in drawn_verifies(cell):
        for request in scenario.requests:
            if request.sampled:
                with suppress(Ambiguous):
                    assert sum(sampled(request).values()) == pytest.approx(1)
