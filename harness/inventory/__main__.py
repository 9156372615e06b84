"""Write the computed pages again: ``python -m harness.inventory``."""

from pathlib import Path

from harness.inventory import assumptions, operators

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Write `docs/assumptions.md` and `docs/operators.md`."""
    (DOCS / "assumptions.md").write_text(assumptions.page(), encoding="utf-8")
    (DOCS / "operators.md").write_text(operators.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
