"""The accept rule: which tokens a verify emits, from docs/contract.md.

A verify emits what the target would have emitted token by token: a walk from the root, over drafted tokens as long as
each is what the target says, and the first token that nobody drafted.
"""

from collections.abc import Iterator

from harness.scenario.verify import VerifyRequest

#: Accepted tokens in order, and the bonus.
Emission = tuple[int, ...]


def choices(request: VerifyRequest, node: int) -> set[int]:
    """The tokens that a greedy target may say after `node`: the most likely of those allowed, several in a tie."""
    logits = request.logits[node]
    allowed = request.allowed[node] if request.allowed else range(len(logits))
    best = max(logits[token] for token in allowed)
    return {token for token in allowed if logits[token] == best}


def greedy(request: VerifyRequest) -> frozenset[Emission]:
    """Every right emission of a greedy request: one, and one more for each way to break a tie."""
    return frozenset(_walks(request, 0))


def _walks(request: VerifyRequest, node: int) -> Iterator[Emission]:
    drafted = {request.tokens[child]: child for child in request.children(node)}
    for token in choices(request, node):
        if token in drafted:
            yield from ((token, *rest) for rest in _walks(request, drafted[token]))
        else:
            yield (token,)
