"""Case files: what is written comes back, and anything else is refused in one sentence that names the file."""

import errno
import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.errors import CannotJudge, Exit, UsageError
from harness.scenario import GateScenario, Pool, Request, VerifyRequest, VerifyScenario
from harness.scenario.case import Case, read_case, read_cases, write_case
from harness.scenario.strategies import Cell
from harness.scenario.validity import why_invalid
from tests.ideal import CELLS, CONTRACT_EXAMPLE, drawn

CASE = Case(
    schema=1,
    scenario=replace(CONTRACT_EXAMPLE, pool=Pool(page_stride=3, shared_pages=1)),
    check="kv-lengths",
    fingerprint="kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again",
    sglang="0.5.18",
    note="the block is added twice: „[37, 162]“",
    reports=("sglang#31739",),
    wrong_in=("0.5.15", "0.5.16", "0.5.18"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a case file may be."""
    return tmp_path / "case.json"


def refusal(path: Path) -> str:
    """How reading `path` is refused: one sentence, on one line, that names the file."""
    with pytest.raises(UsageError) as caught:
        read_case(path)
    sentence = str(caught.value)

    assert str(path) in sentence
    assert sentence.endswith(".")
    assert len(sentence.splitlines()) == 1
    return sentence


VERIFY = VerifyScenario("EAGLE", (VerifyRequest((0, 1), ((0, 3), (1, 1)), (0,), ((1,), (0, 1)), 0.5, 2, 0.9),))


@pytest.mark.parametrize(
    "case",
    [CASE, Case(1, CONTRACT_EXAMPLE), Case(1, GateScenario("npu", "DFLASH"), note="gate"), Case(1, VERIFY)],
)
def test_a_written_case_is_read_back(case: Case, path: Path) -> None:
    write_case(path, case)

    assert case == read_case(path)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_drawn_scenario_survives_a_case_file(cell: Cell, path: Path) -> None:
    for scenario in drawn(cell)[-1:]:
        write_case(path, Case(1, scenario))

        assert scenario == read_case(path).scenario


def test_a_case_is_written_into_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "new" / "newer" / "case.json"
    write_case(path, CASE)

    assert read_case(path) == CASE


def test_a_case_replaces_the_one_before_and_leaves_no_other_file(path: Path) -> None:
    write_case(path, Case(1, GateScenario("npu")))
    write_case(path, CASE)

    assert read_case(path) == CASE
    assert list(path.parent.iterdir()) == [path]


def test_every_number_of_a_scenario_is_in_its_file(path: Path) -> None:
    write_case(path, CASE)
    pool = msgspec.json.decode(path.read_bytes())["scenario"]["pool"]

    assert pool == {
        "page_size": 128,
        "context_length": 1024,
        "rows": 4,
        "page_stride": 3,
        "page_offset": 0,
        "shared_pages": 1,
    }


def test_a_file_that_is_cut_anywhere_is_refused(path: Path) -> None:
    """Without the newline at its end it is whole: nothing but that one byte may be missing."""
    write_case(path, CASE)
    content = path.read_bytes()
    for length in range(len(content) - 1):
        path.write_bytes(content[:length])

        assert "no case file of this harness, or is cut short" in refusal(path)
    path.write_bytes(content[:-1])

    assert read_case(path) == CASE


def test_a_flipped_byte_is_refused_or_is_another_case_that_can_be(path: Path) -> None:
    """A flipped digit may be a case of its own, and a flipped letter of the note always is one."""
    write_case(path, CASE)
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :])
        try:
            assert why_invalid(read_case(path).scenario) == ""
        except UsageError:
            refused += 1

    assert refused > len(content) / 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"1",
        b'"schema"',
        b'{"schema": 1}',
        b'{"schema": "1", "scenario": {"kind": "gate", "device": "npu"}}',
        b'{"schema": true, "scenario": {"kind": "gate", "device": "npu"}}',
        b'{"schema": 1, "scenario": {"kind": "gate"}}',
        b'{"schema": 1, "scenario": {"kind": "worker", "device": "npu"}}',
        b'{"schema": 1, "scenario": {"device": "npu"}}',
        b'{"schema": 1, "scenario": {"kind": "gate", "device": "npu", "algorithm": "EAGLE"}}',
        b'{"name": "sglang", "version": "0.5.18", "dependencies": {}}',
        b'{"schema": 1, "scenario": {"kind": "gate", "device": "npu"}} {}',
        b'{"schema": 1, "scenario": {"kind": "gate", "device": "\xff"}}',
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        bytes(range(256)),
        b"\x00" * 4096,
        b"\x7fELF\x02\x01\x01",
        b"PK\x03\x04\x14\x00",
    ],
    ids=repr,
)
def test_what_is_no_case_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)

    assert "no case file of this harness, or is cut short" in refusal(path)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (b'"schema": 1', b'"schema": 1, "author": "me"', "author"),
        (b'"mode": "target_verify"', b'"mode": "target_verify", "topk": 4', "topk"),
        (b'"prefix": 5', b'"prefix": 5, "length": 21', "length"),
        (b'"page_size": 128', b'"page_size": 128, "slots": 0', "slots"),
    ],
    ids=["case", "scenario", "request", "pool"],
)
def test_an_unknown_field_is_refused_by_its_name(before: bytes, after: bytes, named: str, path: Path) -> None:
    write_case(path, CASE)
    path.write_bytes(path.read_bytes().replace(before, after))

    assert f"`{named}`" in refusal(path)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (b'"algorithm": "DFLASH"', b'"algorithm": "MEDUSA"', "MEDUSA"),
        (b'"prefix": 5', b'"prefix": 5.5', "$.scenario.rounds[0][0].prefix"),
        (b'"prefix": 5', b'"prefix": "5"', "$.scenario.rounds[0][0].prefix"),
        (b'"prefix": 5', b'"prefix": null', "$.scenario.rounds[0][0].prefix"),
        (b'"page_size": 128', b'"page_size": [128]', "$.scenario.pool.page_size"),
    ],
)
def test_a_wrong_value_is_refused_by_its_place(before: bytes, after: bytes, named: str, path: Path) -> None:
    write_case(path, CASE)
    path.write_bytes(path.read_bytes().replace(before, after))

    assert named in refusal(path)


def test_a_newer_schema_is_told_from_a_broken_file(path: Path) -> None:
    path.write_bytes(b'{"schema": 2, "scenarios": ["of a later harness"]}')

    assert f"{path} has case schema 2, and this harness reads up to 1: update the harness." == refusal(path)


def test_a_scenario_that_cannot_be_is_refused_with_the_rule_it_breaks(path: Path) -> None:
    write_case(path, Case(1, replace(CONTRACT_EXAMPLE, rounds=((Request(5, row=9),),))))

    assert f"{path} holds a scenario that cannot be: row 9 is not in 1 to 4." == refusal(path)


def test_a_missing_file_is_refused(path: Path) -> None:
    assert f"cannot read the case {path}: No such file or directory." == refusal(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert f"cannot read the case {tmp_path}: Is a directory." == refusal(tmp_path)


def test_a_file_in_place_of_a_directory_is_refused(path: Path) -> None:
    write_case(path, CASE)

    assert "Not a directory" in refusal(path / "case.json")


def test_a_refused_case_is_wrong_use(path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_case(path)

    assert caught.value.exit_status is Exit.USAGE


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_disk_that_takes_nothing_leaves_the_case_before_and_no_other_file(
    number: int, step: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_case(path, CASE)
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, step, fail)
        with pytest.raises(CannotJudge) as caught:
            write_case(path, Case(1, GateScenario("npu")))

    assert str(caught.value) == f"cannot write {path}: {os.strerror(number)}."
    assert before == path.read_bytes()
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupted_write_leaves_the_case_before_and_no_other_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_case(path, CASE)

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_case(path, Case(1, GateScenario("npu")))

    assert read_case(path) == CASE
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="Is a directory"):
        write_case(tmp_path, CASE)

    assert list(tmp_path.iterdir()) == []
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}.*"))


def test_an_array_of_cases_is_read_in_its_order(path: Path) -> None:
    cases = (CASE, Case(1, GateScenario("npu")))
    path.write_bytes(b"\n" + msgspec.json.encode(cases))
    assert read_cases(path) == cases


def test_a_file_of_one_case_is_one_case(path: Path) -> None:
    write_case(path, CASE)
    assert read_cases(path) == (CASE,)


@pytest.mark.parametrize("data", [b"[]", b"[1]", b"[", b'[{"schema": 1}]', msgspec.json.encode([CASE])[:-5]])
def test_an_array_that_holds_no_cases_is_refused_in_one_sentence(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_cases(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert len(sentence.splitlines()) == 1


def test_a_case_is_shown_by_its_own_finding_and_no_other() -> None:
    assert CASE.shows_in({CASE.fingerprint, "kv-access:other"})
    assert not CASE.shows_in({"kv-access:other"})


def test_a_sentinel_is_shown_by_any_finding() -> None:
    sentinel = Case(1, CONTRACT_EXAMPLE)

    assert sentinel.shows_in({"kv-access:other"})
    assert not sentinel.shows_in(set())
