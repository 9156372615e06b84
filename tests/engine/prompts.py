"""What is asked of the engine and of its reference."""

#: Tokens that the models know.
VOCABULARY = 512
NEW_TOKENS = 24
#: Within a page of 128, a little over one, and so long that blocks cross from the second page to the third.
_LENGTHS = (5, 130, 246)


def prompts() -> list[list[int]]:
    """Prompts as lists of tokens."""
    return [[(7 * position + 3 * length) % (VOCABULARY - 22) for position in range(length)] for length in _LENGTHS]
