"""The start of DFlash, asked for real: `_handle_dflash` of `speculative_hook.py` with one device name and options."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.scenario import GateScenario
from harness.scenario.observation import Observation

#: What `_handle_dflash` says when the device was let through and no draft model is named (0.5.15 to 0.5.23).
NEXT_CHECK = "speculative-draft-model-path"
#: What the start settles, by the names of server arguments.
SETTLED = (
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "max_running_requests",
    "speculative_draft_attention_backend",
)


class StartArguments:
    """Server arguments for the gate: one rank, no draft model, and None for whatever else is asked."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.pp_size = self.dp_size = self.tp_size = self.attn_dp_size = self.attn_cp_size = 1
        self.enable_dp_attention = False
        self.json_model_override_args = "{}"

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


def ask(scenario: GateScenario) -> Observation:
    """`accepted` with what was settled, or the sentence of the refusal.

    Where no draft model is named, `accepted` is that the start gets as far as to miss it.
    """
    from sglang.srt.arg_groups.speculative_hook import _handle_dflash

    arguments = StartArguments(scenario.device)
    with TemporaryDirectory() as folder:
        if scenario.draft is not None:
            _name_draft(arguments, Path(folder), scenario.draft)
        for name, value in scenario.options:
            setattr(arguments, name, value)
        try:
            _handle_dflash(arguments)
        except ValueError as refusal:
            passed = scenario.draft is None and NEXT_CHECK in str(refusal)
            return Observation(verdict="accepted" if passed else str(refusal))
    if scenario.draft is None:
        raise LookupError("_handle_dflash no longer asks for a draft model: how to see that the gate was passed?")
    return Observation(verdict="accepted", settled=_settled(arguments))


def _name_draft(arguments: Any, folder: Path, block: int) -> None:
    """Name a draft model in `folder` whose configuration, which is all there is of it, gives `block`."""
    config = {"model_type": "qwen3", "architectures": ["DFlashDraftModel"]} | ({"block_size": block} if block else {})
    (folder / "config.json").write_text(json.dumps(config))
    arguments.speculative_draft_model_path = str(folder)


def _settled(arguments: Any) -> tuple[tuple[str, int | str], ...]:
    """What the arguments have become: set on them, or declared beside them (from 0.5.20), the last word first."""
    declared: dict[str, Any] = {}
    for _, fields in getattr(arguments, "_resolved_overrides", None) or ():
        declared |= fields
    found = {name: declared.get(name, getattr(arguments, name)) for name in SETTLED}
    return tuple((name, value) for name, value in found.items() if value is not None)
