"""Mutants of a source: patches that compile, diffs that show one change, and arguments that do not go stale unseen."""

import textwrap
from pathlib import Path

import msgspec
import pytest

from harness.errors import UsageError
from harness.mutate import arguments as arguments_module
from harness.mutate.arguments import Argument, Arguments, Beyond, arguments
from harness.mutate.mutant import Mutant, mutants, sampled
from harness.mutate.targets import TARGET_GROUPS, TARGETS, Target, targets_of
from harness.subject.source import resolve

FILE = "sglang/here.py"
SOURCE = '''
class Backend:
    @wrapped
    def lengths(self, prefix, block):
        """Größe: prefix + block."""
        if prefix > 0:
            total = prefix + block  # größer
        else:
            total = block - 1
        return total
'''
TARGET = Target("metadata", FILE, "Backend.lengths")


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(SOURCE, encoding="utf-8")
    return tmp_path


def named(every: list[Mutant], operator: str) -> list[Mutant]:
    return [mutant for mutant in every if mutant.operator == operator]


def test_every_mutant_compiles_and_differs_in_one_place(sglang: Path) -> None:
    every = mutants(sglang, TARGET)

    assert len({mutant.text for mutant in every}) == len(every) == 7
    for mutant in every:
        compile(textwrap.dedent(mutant.text), FILE, "exec")
        assert mutant.diff().count("\n+") == mutant.diff().count("\n-") == 1


def test_a_mutant_names_its_place_and_its_change(sglang: Path) -> None:
    add = named(mutants(sglang, TARGET), "arithmetic")[0]

    assert add.name == "here.py:Backend.lengths:7 arithmetic: prefix + block -> (prefix - block)"
    assert add.diff().splitlines()[3:5] == [
        "-            total = prefix + block  # größer",
        "+            total = (prefix - block)  # größer",
    ]


def test_a_mutant_knows_what_it_stands_in(sglang: Path) -> None:
    add, subtract = named(mutants(sglang, TARGET), "arithmetic")

    assert add.within == ("if prefix > 0:",)
    assert subtract.within == ("else: if prefix > 0:",)


def test_a_patch_has_the_whole_definition_with_its_decorators(sglang: Path) -> None:
    patch = mutants(sglang, TARGET)[0].patch

    assert patch.text.startswith("    @wrapped\n    def lengths")
    assert patch.text.endswith("return total\n")


def test_a_sample_is_the_same_for_the_same_seed(sglang: Path) -> None:
    every = mutants(sglang, TARGET)

    assert sampled(every, 3, 7) == sampled(every, 3, 7)
    assert len({tuple(sampled(every, 3, seed)) for seed in range(5)}) > 1
    assert sampled(every, None, 7) == every


def entry(**changes: str) -> Argument:
    means = {
        "function": "Backend.lengths",
        "operator": "arithmetic",
        "line": "total = block - 1",
        "why": "nobody asks",
    }
    return Argument(**means | changes)


def test_an_entry_means_the_mutant_of_its_line(sglang: Path) -> None:
    every = mutants(sglang, TARGET)
    argued = Arguments("1.0", (entry(),))
    argued.require_fresh("1.0", every)

    assert [mutant.line for mutant in every if argued.equivalence(mutant)] == ["total = block - 1"]


def test_one_that_is_known_to_be_alive_is_not_equivalent(sglang: Path) -> None:
    every = mutants(sglang, TARGET)
    argued = Arguments("1.0", alive=(entry(),))
    argued.require_fresh("1.0", every)

    assert [mutant.line for mutant in every if argued.survival(mutant)] == ["total = block - 1"]
    assert not any(map(argued.equivalence, every))


@pytest.mark.parametrize("changes", [{"line": "total = block - 2"}, {"operator": "boundary"}, {"change": "1 -> (2)"}])
def test_a_stale_entry_is_an_error_that_names_it(changes: dict[str, str], sglang: Path) -> None:
    argued = Arguments("1.0", (entry(**changes),))

    with pytest.raises(UsageError, match=r"harness/mutate/argued is stale: Backend\.lengths of 1\.0 has no mutant"):
        argued.require_fresh("1.0", mutants(sglang, TARGET))


def test_entries_are_about_the_release_that_they_were_written_for(sglang: Path) -> None:
    Arguments("1.0", (entry(line="gone"),)).require_fresh("2.0", mutants(sglang, TARGET))


def test_what_no_scenario_drives_is_named_by_the_head_that_it_stands_below(sglang: Path) -> None:
    argued = Arguments("1.0", beyond=(Beyond("Backend.lengths", "else: if prefix > 0:", "no request is empty"),))
    outside = [mutant.line for mutant in mutants(sglang, TARGET) if argued.outside(mutant)]

    assert set(outside) == {"total = block - 1"}


def test_without_a_head_nothing_drives_the_whole_function(sglang: Path) -> None:
    argued = Arguments("1.0", beyond=(Beyond("Backend.lengths", "", "nobody calls it"),))

    assert all(argued.outside(mutant) for mutant in mutants(sglang, TARGET))


def test_of_several_like_changes_in_a_line_one_is_named_by_what_becomes_of_the_text(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text("def lengths(a, b):\n    return a[1] + b[1]\n", encoding="utf-8")
    every = named(mutants(tmp_path, Target("metadata", FILE, "lengths")), "off-by-one")
    second = Argument("lengths", "off-by-one", "return a[1] + b[1]", "b has no end", "1 -> (2)", "b[(2)]")

    assert [Arguments("1.0", (second,)).equivalence(mutant) is not None for mutant in every] == [False, True]


def test_a_stale_head_is_an_error_that_names_it(sglang: Path) -> None:
    argued = Arguments("1.0", beyond=(Beyond("Backend.lengths", "if prefix > 7:", "no request is that long"),))

    with pytest.raises(UsageError, match="has nothing to mutate below 'if prefix > 7:'"):
        argued.require_fresh("1.0", mutants(sglang, TARGET))


def test_the_arguments_of_every_group_are_about_one_release() -> None:
    folder = Path(arguments_module.__file__).parent / "argued"
    releases = {msgspec.json.decode(file.read_bytes(), type=Arguments).release for file in folder.iterdir()}

    assert releases == {arguments().release}
    assert {file.stem for file in folder.iterdir()} <= set(TARGET_GROUPS)


def test_every_argument_gives_a_reason_and_is_about_a_target() -> None:
    functions = {target.function for target in TARGETS}
    argued = arguments()

    assert all(len(entry.why) > 20 for entry in (*argued.equivalent, *argued.alive, *argued.beyond))
    assert {entry.function for entry in (*argued.equivalent, *argued.alive, *argued.beyond)} <= functions


def test_no_argument_is_stale_on_its_own_release() -> None:
    source = resolve(arguments().release)
    path = Path(source.path)
    every = [mutant for target in targets_of(path, [], []) for mutant in mutants(path, target)]

    arguments().require_fresh(source.release, every)


def test_a_target_is_named_by_file_and_function(sglang: Path) -> None:
    with pytest.raises(UsageError, match="is no target, which is FILE:FUNCTION"):
        targets_of(sglang, ["ascend_backend.py:nothing"], [])
    with pytest.raises(UsageError, match="the groups are metadata, attention"):
        targets_of(sglang, [], ["none"])
    with pytest.raises(UsageError, match="this sglang has none of the targets"):
        targets_of(sglang, ["ascend_backend.py:forward_mtp"], [])
