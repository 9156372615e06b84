"""`docs/axes.md` says what is true of the release, and an option that nobody has looked at is a gap there."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from harness.errors import CannotJudge
from harness.inventory import axes
from harness.inventory.classification import (
    Classification,
    Pinned,
    Varied,
    Verdict,
    classification,
    is_rule,
    problems,
    verdicts,
)
from harness.inventory.history import Change, history, names, releases_with, with_release
from harness.inventory.options import REQUIRED, options, switches
from harness.scenario.axes import AXES
from harness.scenario.metadata import Attention, MetadataScenario, Pool, Request
from harness.scenario.session import SessionTarget
from harness.subject.source import resolve

_DOCS = Path(__file__).parents[2] / "docs"
_AGAIN = "run `python -m harness.inventory`"
_ROOT = Path("sglang", "srt")


@pytest.fixture(scope="module")
def newest() -> dict[str, str]:
    return axes.sources(classification())


def _unclassified(found: Mapping[str, str]) -> list[str]:
    return [name for name, verdict in verdicts(found, classification()).items() if verdict.kind == "unclassified"]


def test_every_option_and_switch_of_the_newest_release_is_classified(newest: dict[str, str]) -> None:
    assert _unclassified(newest) == []


def test_the_committed_page_is_the_computed_one(newest: dict[str, str]) -> None:
    computed = axes.page(newest, history(), classification())

    assert (_DOCS / "axes.md").read_text(encoding="utf-8") == computed, _AGAIN


def test_what_is_recorded_of_the_newest_release_is_what_it_has(newest: dict[str, str]) -> None:
    assert with_release(history(), classification().release, newest) == history(), _AGAIN


def test_no_option_is_overlooked_by_the_reader(newest: dict[str, str]) -> None:
    """From 0.5.20 on, sglang lists its options once more, in the order of their positions."""
    source = Path(resolve(classification().release).path) / _ROOT / "arg_groups" / "field_order.py"
    listed: dict[str, tuple[str, ...]] = {}
    exec(source.read_text(encoding="utf-8"), listed)

    assert sorted(listed["POSITIONAL_FIELD_ORDER"]) == sorted(name for name in newest if name.islower())


def test_the_classification_says_nothing_in_vain() -> None:
    assert problems(frozenset().union(*names(history()).values()), classification()) == []


def test_an_axis_of_the_page_is_one_of_the_sessions_and_the_other_way_round() -> None:
    told = classification().axes

    assert {name for name, axis in told.items() if not axis.values} == {axis.name for axis in AXES}
    assert all(axis.field for axis in told.values() if axis.values)


def test_a_field_that_the_page_names_is_one_of_a_metadata_scenario() -> None:
    parts = {"": MetadataScenario, "pool.": Pool, "attention.": Attention, "rounds.": Request}
    fields = {prefix + name for prefix, struct in parts.items() for name in struct.__struct_fields__}

    assert {axis.field for axis in classification().axes.values()} - {""} <= fields


def test_every_pattern_of_files_to_read_matches_one() -> None:
    root = Path(resolve(classification().release).path) / _ROOT

    assert [pattern for pattern in classification().read if not any(root.glob(pattern))] == []


def test_the_kind_of_an_axis_is_where_the_release_has_it(newest: dict[str, str]) -> None:
    kinds = {axis.name: axis.kind for axis in AXES}

    assert {name: "option" if name.islower() else "environment" for name in kinds} == kinds
    assert set(kinds) <= set(newest)


@pytest.mark.parametrize(
    "name",
    [
        *("speculative_new", "spec_new", "cuda_graph_new", "page_new", "swa_new", "max_new", "chunked_new", "kv_new"),
        *("disable_new", "enable_new", "schedule_new", "new", "ASCEND_NEW", "SGLANG_NPU_NEW", "SGLANG_DFLASH_NEW"),
        *("SGLANG_DSPARK_NEW", "SGLANG_SPEC_NEW", "SGLANG_OPT_NEW", "SGLANG_ENABLE_NEW", "SGLANG_SWA_NEW", "NEW"),
    ],
)
def test_no_rule_speaks_for_names_of_speculative_decoding_pools_and_graphs(name: str) -> None:
    assert _unclassified({name: ""}) == [name]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The files of the newest release that declare options and switches, and a place for others."""
    source, told = Path(resolve(classification().release).path) / _ROOT, tmp_path / "srt"
    shutil.copytree(source / "arg_groups", told / "arg_groups")
    (told / "speculative").mkdir()
    for file in ("server_args.py", "environ.py"):
        shutil.copy(source / file, told / file)
    return told


_PLANTED = {
    "arg_groups/fields/schedule.py": ("    page_size: ", '    planted_option: A[int, "New."] = 3\n    page_size: '),
    "environ.py": ("class Envs:\n", "class Envs:\n    SGLANG_PLANTED = EnvBool(True)\n"),
    "speculative/planted.py": ("", "USED = get_bool_env_var('SGLANG_PLANTED_BESIDE', 'true')\n"),
}


def test_a_copied_release_has_nothing_new(copied: Path) -> None:
    assert _unclassified(axes.found(copied, classification())) == []


@pytest.mark.parametrize(
    ("file", "name", "default"),
    [
        ("arg_groups/fields/schedule.py", "planted_option", "3"),
        ("environ.py", "SGLANG_PLANTED", "EnvBool(True)"),
        ("speculative/planted.py", "SGLANG_PLANTED_BESIDE", "get_bool_env_var('SGLANG_PLANTED_BESIDE', 'true')"),
    ],
)
def test_an_option_that_a_release_adds_is_a_gap_of_the_page(
    file: str, name: str, default: str, copied: Path, newest: dict[str, str]
) -> None:
    before, after = _PLANTED[file]
    text = (copied / file).read_text(encoding="utf-8") if before else ""
    (copied / file).write_text(text.replace(before, after, 1) if before else after, encoding="utf-8")

    found = axes.found(copied, classification())
    page = axes.page(found, with_release(history(), "0.5.24", newest | {name: default}), classification())

    assert found[name] == default
    assert _unclassified(found) == [name]
    assert "out of scope, 1 unclassified" in page
    assert f"- `{name}` (from 0.5.24)" in page
    assert f"| 0.5.24 | unclassified: `{name}` |  |" in page


def test_options_and_switches_that_have_moved_are_told(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="no server options were found"):
        options(tmp_path)
    with pytest.raises(CannotJudge, match="no environment switches were found"):
        switches(tmp_path, ())


def test_an_option_is_read_from_the_class_itself_where_it_has_no_groups(tmp_path: Path) -> None:
    (tmp_path / "server_args.py").write_text(
        "class ServerArgs:\n    NOTE = 1\n    model_path: A[str, Arg(help='x')]\n    page_size: int = 1\n"
        "class PortArgs:\n    port: int = 2\n",
        encoding="utf-8",
    )
    assert options(tmp_path) == {"model_path": REQUIRED, "page_size": "1"}


def test_a_variable_is_read_where_it_is_named_and_not_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "environ.py").write_text("class Envs:\n    A = EnvBool(True)\n", encoding="utf-8")
    (tmp_path / "reads.py").write_text(
        "os.environ['B'], os.environ.get('C', '1'), os.getenv('D'), 'E' in os.environ, get_int_env_var('F', 2)\n"
        "os.environ['W'] = '1'\nos.getenv(name), table['X'], 'Y' in table\nget_bool_env_var('A')\n",
        encoding="utf-8",
    )
    assert switches(tmp_path, ()) == {"A": "EnvBool(True)"}
    assert sorted(switches(tmp_path, ("*.py",))) == ["A", "B", "C", "D", "E", "F"]
    assert switches(tmp_path, ("reads.py",))["A"] == "EnvBool(True)"


_TOLD = Classification(
    "0.5.23",
    {},
    {},
    [],
    {"page_size": Varied("pages")},
    {"device": Pinned("npu", "the emulated one")},
    {"not yet": ["log_pages"]},
    {"logs": ["log_.*"], "all else": [".*_level"]},
)


def test_a_name_decides_before_a_rule_and_an_earlier_rule_before_a_later_one() -> None:
    assert verdicts(["page_size", "device", "log_pages", "log_level", "new"], _TOLD) == {
        "page_size": Verdict("axis", "page_size", "pages"),
        "device": Verdict("fixed", "device", "the emulated one"),
        "log_pages": Verdict("gap", "log_pages", "not yet"),
        "log_level": Verdict("out", "log_.*", "logs"),
        "new": Verdict("unclassified", "", ""),
    }
    assert is_rule("log_.*") and not is_rule("log_pages")


@pytest.mark.parametrize(
    ("known", "change", "problem"),
    [
        ((), {}, []),
        (("device",), {}, ["device decides no name of any release: take it out"]),
        (("other_level",), {}, [".*_level decides no name of any release: take it out"]),
        ((), {"gaps": {"a": ["log_pages"], "b": ["device"]}}, ["device is said twice: leave it in one class"]),
    ],
)
def test_an_entry_in_vain_is_told(known: tuple[str, ...], change: dict[str, object], problem: list[str]) -> None:
    everything = {"page_size", "device", "log_pages", "log_level", "other_level"}
    found = problems(everything - set(known), replace(_TOLD, **change))
    assert len(found) == len(problem)
    assert all(one.startswith(start) for one, start in zip(found, problem, strict=True))


def test_the_history_of_names_keeps_what_came_and_went() -> None:
    first = with_release({}, "0.5.9", {"a", "b"})
    both = with_release(first, "0.5.10", {"b", "c"})

    assert both == {"0.5.9": Change(["a", "b"], []), "0.5.10": Change(["c"], ["a"])}
    assert names(both) == {"0.5.9": {"a", "b"}, "0.5.10": {"b", "c"}}
    assert with_release(both, "0.5.10", {"b"}) == {"0.5.9": Change(["a", "b"], []), "0.5.10": Change([], ["a"])}


def test_the_releases_of_a_name_are_told_in_words() -> None:
    having = {"1": {"a", "b", "d"}, "2": {"a", "b", "c", "e"}, "3": {"a", "c"}}
    assert [releases_with(name, having) for name in "abcde"] == ["all", "1 to 2", "from 2", "1", "2"]


def test_every_kind_of_target_that_sessions_run_is_described() -> None:
    assert set(classification().targets) == set(get_args(SessionTarget))


def test_a_kind_of_target_that_sessions_do_not_run_is_on_the_page_with_the_reason(newest: dict[str, str]) -> None:
    told = replace(classification(), target_gaps={"attention of another kind": "nobody has read it yet"})

    assert "| attention of another kind | no | nobody has read it yet |" in axes.page(newest, history(), told)
