"""What is tested, as data: scenarios, what subjects saw of them, and the strategies that draw them."""

from harness.scenario.gate import GateScenario
from harness.scenario.metadata import MetadataScenario, PageMap, Pool, Request
from harness.scenario.session import SessionScenario
from harness.scenario.verify import VerifyRequest, VerifyScenario

Scenario = MetadataScenario | GateScenario | VerifyScenario | SessionScenario

__all__ = [
    "GateScenario",
    "MetadataScenario",
    "PageMap",
    "Pool",
    "Request",
    "Scenario",
    "SessionScenario",
    "VerifyRequest",
    "VerifyScenario",
]
