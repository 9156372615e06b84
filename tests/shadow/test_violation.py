"""Violations: each says in one line what was read or written, of whom, and what comes of it."""

import msgspec
import pytest

from harness.shadow.violation import KINDS, NONE, Kind, Violation

OPERATOR = "npu_fused_infer_attention_score"
UNWRITTEN = Violation("never-written", OPERATOR, 3, 0, 1, 0, 21, 1, 149, 16)


def test_a_read_names_position_request_page_slot_count_and_step() -> None:
    assert UNWRITTEN.sentence() == (
        f"{OPERATOR} reads position 21 of request 0 (row 1): page 1, slot 149 was never written (16 positions) [step 3]"
    )


def test_one_position_is_not_plural() -> None:
    assert "(1 position)" in msgspec.structs.replace(UNWRITTEN, count=1).sentence()


@pytest.mark.parametrize("kind", KINDS)
def test_only_addresses_that_do_not_exist_are_device_errors(kind: Kind) -> None:
    address = kind in ("page-out-of-range", "table-too-narrow", "negative-length")
    expected = "error 507015" if address else "silent wrong attention"
    violation = msgspec.structs.replace(UNWRITTEN, kind=kind)
    assert violation.consequence == expected
    assert violation.sentence().endswith("[step 3]")


def test_every_kind_has_a_sentence_of_its_own() -> None:
    assert len({msgspec.structs.replace(UNWRITTEN, kind=kind).sentence() for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("violation", "expected"),
    [
        (
            Violation("negative-length", "op", 1, 2, 3, 8, -5, NONE, NONE, 1),
            "op is told to read -5 positions of request 2 (row 3) [step 1]",
        ),
        (
            Violation("rows-missing", "op", 1, 2, 3, 8, NONE, NONE, NONE, 1),
            "op is given no row for request 2 (row 3) (1 row missing) [step 1]",
        ),
        (
            Violation("table-too-narrow", "op", 1, 2, 3, 8, 128, NONE, NONE, 2),
            "op reads position 128 of request 2 (row 3): the block table ends before it (2 positions) [step 1]",
        ),
        (
            Violation("page-out-of-range", "op", 1, NONE, NONE, 8, NONE, 9, 1152, 1),
            "op writes where it must not: page 9, slot 1152 is outside the cache (1 position) [step 1]",
        ),
        (
            Violation("page-out-of-range", "op", 1, 0, 1, 0, 128, 9, 1152, 1),
            "op reads position 128 of request 0 (row 1): page 9, slot 1152 is outside the cache (1 position) [step 1]",
        ),
        (
            Violation("not-reserved", "op", 1, NONE, 4, 0, 7, 2, 263, 1),
            "op writes position 7 of row 4: page 2, slot 263 is not reserved for any request of the step (1 position) "
            "[step 1]",
        ),
        (
            Violation("shared-overwritten", "op", 1, NONE, NONE, 0, 7, 2, 263, 1),
            "op writes position 7 of several rows: page 2, slot 263 is shared with other requests (1 position) "
            "[step 1]",
        ),
    ],
)
def test_a_violation_without_a_slot_or_a_request_says_what_there_is(violation: Violation, expected: str) -> None:
    assert violation.sentence() == expected


def test_a_violation_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(UNWRITTEN), type=Violation) == UNWRITTEN
