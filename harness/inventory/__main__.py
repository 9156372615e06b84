"""Write the computed pages again: ``python -m harness.inventory``."""

from pathlib import Path

from harness.inventory import assumptions, axes, catalogue, history, operators
from harness.inventory.classification import classification

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Write the pages on assumptions, operators, axes and public reports, and record the names of options."""
    (DOCS / "assumptions.md").write_text(assumptions.page(), encoding="utf-8")
    (DOCS / "catalogue.md").write_text(catalogue.page(), encoding="utf-8")
    (DOCS / "operators.md").write_text(operators.page(), encoding="utf-8")
    told = classification()
    defaults = axes.sources(told)
    changes = history.with_release(history.history(), told.release, defaults)
    history.write(changes)
    (DOCS / "axes.md").write_text(axes.page(defaults, changes, told), encoding="utf-8")


if __name__ == "__main__":
    main()
