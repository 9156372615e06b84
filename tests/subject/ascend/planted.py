"""The real subject with one fault planted in sglang.

Run as `python planted.py FAULT … PATH DEVICE`, where the dots stand for the command line it replaces.
"""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from harness.subject import __main__ as subject
from harness.subject.ascend import driver
from harness.subject.frames import SubjectInfo

_prepare = driver.prepare


def command(fault: str) -> tuple[str, ...]:
    """What stands before the command line of a subject, to plant `fault` in it."""
    return (sys.executable, str(Path(__file__).resolve()), fault)


def _one_slot_too_far() -> None:
    """The first request of every eager batch counts one KV position too many."""
    from sglang.srt.hardware_backend.npu.attention.ascend_backend import AscendAttnBackend

    right = AscendAttnBackend.init_forward_metadata

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.forward_metadata.seq_lens_cpu_int[0] += 1

    AscendAttnBackend.init_forward_metadata = wrong


def _frozen_lengths() -> None:
    """Every replay updates its graph under a name that the operators do not have."""
    from sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend import NPUCudaGraphBackend

    right = NPUCudaGraphBackend.replay_with_input_update

    def wrong(self: Any, key: Any, seq_lens: Any = None, **options: Any) -> Any:
        return right(self, key, None, cpu_update_input=[{"lengths_of_old": seq_lens}])

    NPUCudaGraphBackend.replay_with_input_update = wrong


def _steps_reversed() -> None:
    """A multi-step draft updates its last step first."""
    from sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend import NPUCudaGraphBackend

    right = NPUCudaGraphBackend.replay_with_input_update

    def wrong(self: Any, key: Any, cpu_update_input: Any, **options: Any) -> Any:
        return right(self, key, cpu_update_input=cpu_update_input[::-1], **options)

    NPUCudaGraphBackend.replay_with_input_update = wrong


def _one_location_for_all_steps() -> None:
    """Every step of a draft writes where the first one does."""
    from sglang.srt.speculative import eagle_utils

    right = eagle_utils.per_step_draft_out_cache_loc

    def wrong(*arguments: Any, **named: Any) -> Any:
        of_steps = right(*arguments, **named)
        return of_steps[:1].expand(of_steps.shape)

    eagle_utils.per_step_draft_out_cache_loc = wrong


def _rows_in_nz() -> None:
    """The MLA pool writes rows one after another into caches that are read in the layout NZ."""
    from sglang.srt.hardware_backend.npu.memory_pool_npu import NPUMLATokenToKVPool

    right = NPUMLATokenToKVPool.__init__

    @wraps(right)  # the driver gives a pool the arguments of its signature
    def wrong(self: Any, **arguments: Any) -> None:
        right(self, **arguments)
        self.use_fia_nz = False

    NPUMLATokenToKVPool.__init__ = wrong


def _one_token_too_many() -> None:
    """DFlash accepts one drafted token more than the target agrees with."""
    from sglang.srt.speculative import dflash_worker_v2

    right = dflash_worker_v2.compute_dflash_correct_drafts_and_bonus

    def wrong(*, candidates: Any, target_predict: Any) -> Any:
        accepted, _ = right(candidates=candidates, target_predict=target_predict)
        accepted = (accepted + 1).clamp(max=candidates.shape[1] - 1)
        return accepted, target_predict.gather(1, accepted[:, None].long())[:, 0]

    dflash_worker_v2.compute_dflash_correct_drafts_and_bonus = wrong


def _no_siblings() -> None:
    """A verify of a tree looks at the first child of each node only."""
    from sglang.srt.speculative import eagle_utils

    right = eagle_utils.verify_tree_greedy_func

    def wrong(*, retrieve_next_sibling: Any, **named: Any) -> Any:
        return right(retrieve_next_sibling=retrieve_next_sibling.clone().fill_(-1), **named)

    eagle_utils.verify_tree_greedy_func = wrong


def _mask_forgotten() -> None:
    """A verify does not put the grammar's mask on the logits."""
    from sglang.srt.constrained.base_grammar_backend import GrammarMask

    GrammarMask.apply = lambda self, logits: None


def _chance_of_zero() -> None:
    """The chance by which drafted tokens are accepted is always 0, so that whatever is possible is accepted."""
    from sglang.srt.speculative import eagle_utils

    right = eagle_utils._verify_coins

    def wrong(**named: Any) -> Any:
        coins, last = right(**named)
        return coins.zero_(), last

    eagle_utils._verify_coins = wrong


def _temperature_ignored() -> None:
    """Logits are taken as they are, whatever the temperature."""
    from sglang.srt.speculative import eagle_utils

    eagle_utils.sampling_softmax = lambda logits, *, temperatures: logits.softmax(-1)


FAULTS: dict[str, Callable[[], None]] = {
    "one-slot-too-far": _one_slot_too_far,
    "frozen-lengths": _frozen_lengths,
    "steps-reversed": _steps_reversed,
    "one-location-for-all-steps": _one_location_for_all_steps,
    "rows-in-nz": _rows_in_nz,
    "one-token-too-many": _one_token_too_many,
    "no-siblings": _no_siblings,
    "mask-forgotten": _mask_forgotten,
    "chance-of-zero": _chance_of_zero,
    "temperature-ignored": _temperature_ignored,
}


def prepare(path: str, device: str) -> SubjectInfo:
    """The driver's own, and then the fault."""
    info = _prepare(path, device)
    FAULTS[sys.argv[3]]()
    return info


if __name__ == "__main__":
    driver.prepare = prepare
    sys.argv = [sys.argv[0], *sys.argv[-2:], sys.argv[1]]
    subject.main()
