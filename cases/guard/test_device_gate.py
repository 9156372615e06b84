"""Which devices DFlash may be started on."""

import pytest

from harness.checks.gate import SUPPORTED, UNSUPPORTED
from harness.scenario import GateScenario


@pytest.mark.parametrize("name", [*SUPPORTED, *UNSUPPORTED], ids=repr)
def test_dflash_starts_only_where_it_is_supported(name: str, bench) -> None:
    bench.require_right(GateScenario(name), groups=("guard",))
