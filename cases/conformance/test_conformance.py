"""Every emulated operator, refusal, graph and fault: here against float64, with `-m npu` on a real NPU as well.

Faults come last, each in a process of its own: they cost it the device.
"""

from pathlib import Path

import pytest

from harness.conformance.answers import Kind, ask
from harness.conformance.case import Answer
from harness.conformance.cases import CASES
from harness.conformance.comparison import why_different, why_not_right


def _asked(kind: Kind, request: pytest.FixtureRequest) -> dict[str, Answer]:
    """The answers to the cases that were selected."""
    items = [item for item in request.session.items if item.path == Path(__file__)]
    selected = {item.callspec.params["name"] for item in items if isinstance(item, pytest.Function)}
    return ask(kind, [name for name in CASES if name in selected])


@pytest.fixture(scope="session")
def emulated(request: pytest.FixtureRequest) -> dict[str, Answer]:
    return _asked("emulated", request)


@pytest.fixture(scope="session")
def real(request: pytest.FixtureRequest, device: str) -> dict[str, Answer]:
    """What the NPU says; without one, nothing is asked."""
    return _asked("npu", request) if device == "npu" else {}


@pytest.mark.parametrize("name", CASES)
def test_the_emulation_is_right_and_a_real_npu_does_the_same(
    name: str, emulated: dict[str, Answer], real: dict[str, Answer], device: str
) -> None:
    wrong = why_not_right(CASES[name], emulated[name])
    if not wrong and device == "npu":
        wrong = why_different(CASES[name], real[name], emulated[name])
    if wrong:
        pytest.fail(wrong, pytrace=False)
