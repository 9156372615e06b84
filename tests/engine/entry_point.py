"""The harness's entry points without an installation: tests may run where another checkout of it is installed."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declare(folder: Path) -> str:
    """Write a distribution to `folder` that declares what `pyproject.toml` does; returns a value for PYTHONPATH.

    On the module path it stands before an installed distribution of its name, which is then not looked at.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = folder / f"{project['name'].replace('-', '_')}-0.dist-info"
    declared.mkdir(parents=True)
    (declared / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
             for group, points in project["entry-points"].items()]  # fmt: skip
    (declared / "entry_points.txt").write_text("\n".join(lines))
    return f"{folder}:{ROOT}"
