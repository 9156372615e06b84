"""What an sglang must have for a scenario to make sense there."""

from collections.abc import Collection

from harness.scenario import Scenario
from harness.scenario.metadata import HEAD_SIZE, MetadataScenario
from harness.scenario.session import DraftModel, SessionScenario
from harness.scenario.verify import VerifyScenario

#: The capability of an sglang whose host lengths may be missing; those without a constant are names of algorithms.
ABSENT_HOST = "absent-host"
#: The capability of an sglang whose MLA caches may be in the layout NZ.
FIA_NZ = "fia-nz"
#: The capability of a subject whose attention runs with heads of any size that its operators take.
HEAD_SIZES = "head-sizes"
#: The capability of a subject whose eager batches can be padded as data parallelism pads them.
DP_PADDING = "dp-padding"
#: The capability of an sglang whose DFlash takes requests with a grammar.
DFLASH_GRAMMAR = "dflash-grammar"

#: The capability of an sglang that has the draft model DFlash2.
DFLASH2: DraftModel = "DFLASH2"


def missing(scenario: Scenario, capabilities: Collection[str]) -> set[str]:
    """The capabilities that `scenario` needs and that are not among `capabilities`."""
    needed = {str(scenario.algorithm)} - {"NONE"}
    if isinstance(scenario, MetadataScenario) and scenario.host_view != "published":
        needed.add(ABSENT_HOST)
    if isinstance(scenario, MetadataScenario) and scenario.attention is not None:
        attention = scenario.attention
        needed |= {FIA_NZ} if attention.nz else set()
        needed |= {DP_PADDING} if attention.padding else set()
        needed |= {HEAD_SIZES} if {attention.head_size, attention.value_size} != {HEAD_SIZE} else set()
    if isinstance(scenario, SessionScenario):
        needed |= {scenario.draft} - {""}
    if isinstance(scenario, VerifyScenario) and scenario.algorithm == "DFLASH":
        needed |= {DFLASH_GRAMMAR for request in scenario.requests if request.allowed}
    return needed - set(capabilities)
