"""The device gate, asked for real: `_handle_dflash` of `speculative_hook.py` with one device name."""

from harness.scenario import GateScenario
from harness.scenario.observation import Observation

#: What `_handle_dflash` says when the device was let through and no draft model is named (0.5.15 to 0.5.23).
NEXT_CHECK = "speculative-draft-model-path"


class StartArguments:
    """Server arguments for the gate: one rank, no draft model, and None for whatever else is asked."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.pp_size = self.dp_size = self.tp_size = self.attn_dp_size = self.attn_cp_size = 1
        self.enable_dp_attention = False

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def ask(scenario: GateScenario) -> Observation:
    """`accepted` where the start gets as far as the missing draft model, else the sentence of the refusal."""
    from sglang.srt.arg_groups.speculative_hook import _handle_dflash

    try:
        _handle_dflash(StartArguments(scenario.device))
    except ValueError as refusal:
        return Observation(verdict="accepted" if NEXT_CHECK in str(refusal) else str(refusal))
    raise LookupError("_handle_dflash no longer asks for a draft model: how to see that the gate was passed?")
