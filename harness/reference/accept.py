"""The accept rule: which tokens a verify emits, from docs/contract.md.

A verify emits what the target would have emitted token by token: a walk from the root, over drafted tokens as long as
each is what the target says, and the first token that nobody drafted.
"""

from collections.abc import Iterator
from math import exp, inf

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


#: Cumulative probabilities closer than this to `top_p` are cut by how they are rounded.
NEAR = 1e-4


class Ambiguous(Exception):
    """Which tokens a filter keeps depends on rounding, or on how a tie is broken."""


def probabilities(request: VerifyRequest, node: int) -> list[float]:
    """How likely a sampling target says each token after `node`: softmax, then `top_k`, then `top_p` of what is left.

    `top_p` keeps the most likely tokens until they sum up to more than it. Raises Ambiguous.
    """
    logits = request.logits[node]
    allowed = request.allowed[node] if request.allowed else range(len(logits))
    left = _softmax([value if token in allowed else -inf for token, value in enumerate(logits)], request.temperature)
    order = sorted(range(len(left)), key=lambda token: -left[token])
    if 0 < request.top_k < len(order):
        if left[order[request.top_k - 1]] == left[order[request.top_k]] > 0:
            raise Ambiguous(f"tokens tie at the cut of top_k={request.top_k} after node {node}")
        left = _only(left, order[: request.top_k])
    if request.top_p < 1:
        kept, total = [], 0.0
        for token in order:
            if abs(total - request.top_p) < NEAR:
                raise Ambiguous(f"probabilities sum up to {total:.6f} after node {node}, near top_p={request.top_p}")
            if total > request.top_p:
                break
            kept.append(token)
            total += left[token]
        if len({left[token] for token in kept[-1:]} & {left[token] for token in order[len(kept) :]} - {0.0}):
            raise Ambiguous(f"tokens tie at the cut of top_p={request.top_p} after node {node}")
        left = _only(left, kept)
    return left


def sampled(request: VerifyRequest) -> dict[Emission, float]:
    """How likely each emission of a request that samples is, given its drafted tokens. Raises Ambiguous.

    Where the target's probabilities alone decide, a verify walks as a target that samples; this is so whatever was
    drafted. With `draft_logits` a drafted token is accepted with its probability over the draft's, at most 1, and else
    replaced by one from what the target's probabilities are above the draft's: over all that could have been drafted,
    that is the target's distribution again.
    """
    found: dict[Emission, float] = {}
    for emission, probability in _likely_walks(request, 0):
        found[emission] = found.get(emission, 0.0) + probability
    return found


def _likely_walks(request: VerifyRequest, node: int) -> Iterator[tuple[Emission, float]]:
    drafted = {request.tokens[child]: child for child in request.children(node)}
    goes_on, stops = _odds(request, node, drafted)
    for token, probability in enumerate(stops):
        if probability > 0:
            yield (token,), probability
    for token, child in drafted.items():
        if goes_on[token] > 0:
            for rest, probability in _likely_walks(request, child):
                yield (token, *rest), goes_on[token] * probability


def _odds(request: VerifyRequest, node: int, drafted: dict[int, int]) -> tuple[list[float], list[float]]:
    """How likely each token is accepted after `node`, and how likely each is emitted there as the last one."""
    target = probabilities(request, node)
    if not request.draft_logits or not drafted:
        on = [probability if token in drafted else 0.0 for token, probability in enumerate(target)]
        return on, [probability - accepted for probability, accepted in zip(target, on, strict=True)]
    draft = _softmax(list(request.draft_logits[node]), request.temperature)
    (token,) = drafted
    accepted = min(1.0, target[token] / draft[token])
    above = [max(0.0, mine - other) for mine, other in zip(target, draft, strict=True)]
    rejected = [(1 - accepted) * one / sum(above) for one in above] if accepted < 1 else [0.0] * len(target)
    return [accepted if other == token else 0.0 for other in range(len(target))], rejected


def _softmax(logits: list[float], temperature: float) -> list[float]:
    largest = max(logits)
    weights = [exp((value - largest) / temperature) for value in logits]
    return [weight / sum(weights) for weight in weights]


def _only(left: list[float], kept: list[int]) -> list[float]:
    total = sum(left[token] for token in kept)
    return [probability / total if token in kept else 0.0 for token, probability in enumerate(left)]
