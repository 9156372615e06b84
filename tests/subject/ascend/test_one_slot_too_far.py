"""A single slot read too far, on real sglang: the sanitizer and the fill of never-written slots both show it.

The batch has a second, longer request, as most batches have: the block table is then wide enough for the slot, and
nothing raises. For a lone request that ends with its page, the device stops.
"""

from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.finding import Finding
from harness.checks.registry import checks_of
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention
from harness.scenario.validity import why_invalid
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.ascend import planted as planted_in

LENGTHS = (64, 1024, 16384)
PAGE, BLOCK = 128, 16
MODES = ("extend", "decode", "target_verify")
CHECKS = checks_of(("kv-bounds",))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def planted() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), command=planted_in.command("one-slot-too-far")) as supervisor:
        yield supervisor


def scenario(mode: str, fia: bool, length: int) -> MetadataScenario:
    """A batch whose first request attends to `length` positions, and whose second to a page more."""
    new = {"extend": BLOCK, "decode": 1, "target_verify": BLOCK}[mode]
    return MetadataScenario(
        algorithm="DFLASH" if mode == "target_verify" else "NONE",
        mode=mode,
        rounds=(
            tuple(
                Request(positions - new, row=row, new_tokens=new if mode == "extend" else 0)
                for row, positions in ((1, length), (2, length + PAGE))
            ),
        ),
        draft_tokens=BLOCK if mode == "target_verify" else 1,
        pool=Pool(page_size=PAGE, context_length=length + 2 * PAGE, rows=2, page_stride=3),
        attention=Attention(fia=fia),
    )


def judged(supervisor: Supervisor, one: MetadataScenario) -> tuple[dict[str, Finding], Tally]:
    assert why_invalid(one) == ""
    tally = Tally([check.id for check in CHECKS])
    found: Sequence[Finding] = Trial(supervisor.observe, CHECKS, tally).judge(one)
    return {finding.check: finding for finding in found}, tally


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("fia", [False, True], ids=["ATB", "FIA"])
@pytest.mark.parametrize("mode", MODES)
def test_one_slot_too_far_is_caught_by_the_sanitizer_and_by_poison_invariance(
    mode: str, fia: bool, length: int, planted: Supervisor
) -> None:
    found, _ = judged(planted, scenario(mode, fia, length))

    assert set(found) == {"kv-access", "poison-invariance"}
    assert f"reads position {length} of request 0 (row 1)" in found["kv-access"].message
    assert "was never written (1 position)" in found["kv-access"].message
    assert found["poison-invariance"].message.startswith("output of request 0, query ")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("fia", [False, True], ids=["ATB", "FIA"])
@pytest.mark.parametrize("mode", MODES)
def test_without_the_fault_both_checks_run_and_pass(mode: str, fia: bool, length: int, right: Supervisor) -> None:
    found, tally = judged(right, scenario(mode, fia, length))

    assert found == {}
    assert {check: counts.ran for check, counts in tally.checks.items()} == dict.fromkeys(tally.checks, 1)


def test_what_the_sanitizer_cost_is_measured_on_the_way(right: Supervisor) -> None:
    before = right.overhead
    judged(right, scenario("decode", True, 64))

    assert right.overhead.watched > before.watched
    assert right.overhead.watched > right.overhead.sanitizer > before.sanitizer


@pytest.mark.parametrize("length", [length for length in LENGTHS if length % PAGE == 0])
def test_a_lone_request_at_the_end_of_its_page_stops_the_device_and_its_cause_is_known(
    length: int, planted: Supervisor
) -> None:
    pair = scenario("target_verify", True, length)
    found, _ = judged(planted, replace(pair, rounds=(pair.rounds[0][:1],)))

    assert f"reads position {length} of request 0 (row 1): the block table ends before it" in found["kv-access"].message
    assert found["kv-access"].meaning == "error 507015"
