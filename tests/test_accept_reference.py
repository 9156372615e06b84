"""The accept rule, by examples worked out by hand."""

import pytest

from harness.reference.accept import greedy
from harness.scenario import VerifyRequest

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
