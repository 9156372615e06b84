"""The prompts of sessions."""

from harness.scenario.session import Visit


def prompt(visit: Visit, number: int) -> list[int]:
    """The tokens of the visit with this number."""
    tokens = [(7 * place + 3 * visit.text + 11) % 490 for place in range(visit.length)]
    for place in range(max(0, visit.length - visit.own), visit.length):
        tokens[place] = (13 * number + 5 * place + 1) % 490
    return tokens
