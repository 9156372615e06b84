"""What is mutated: the functions of sglang that make, hand over and use the metadata of speculative decoding."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import CannotJudge, UsageError
from harness.subject.patch import Definition

_NPU = "sglang/srt/hardware_backend/npu"
BACKEND = f"{_NPU}/attention/ascend_backend.py"
GRAPHS = f"{_NPU}/graph_runner"
POOLS = f"{_NPU}/memory_pool_npu.py"
ALLOCATOR = f"{_NPU}/allocator_npu.py"
WORKER = "sglang/srt/speculative/dflash_worker_v2.py"
GATE = "sglang/srt/arg_groups/speculative_hook.py"

#: Words of the statements that compute with lengths, where a function does much else besides.
LENGTHS = ("seq_lens", "prefix_lens", "commit_lens", "cache_loc", "positions", "block_size", "window")


class Target(NamedTuple):
    """A function (`Class.method`, or a name) of a file of sglang, and the group of the score it counts in.

    With `words`, only statements that have one of them are mutated.
    """

    group: str
    file: str
    function: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.function}"

    @property
    def needs_sessions(self) -> bool:
        """Whether nothing but a session runs all of it: logits, too, and inputs of a graph that was loaded before."""
        return self.file in (WORKER, ALLOCATOR) or self.file.startswith(GRAPHS)


_BACKEND, _STEPS = "AscendAttnBackend", "AscendAttnMultiStepDraftBackend"
#: By group: metadata, attention calls, graph runner, KV pool, allocator, DFlash worker, gate.
TARGETS: tuple[Target, ...] = (
    *(
        Target("metadata", BACKEND, name)
        for name in (
            f"{_BACKEND}.init_forward_metadata",
            f"{_BACKEND}.init_forward_metadata_out_graph",
            f"{_BACKEND}.init_cuda_graph_state",
            f"{_BACKEND}._init_cuda_graph_metadata",
            f"{_BACKEND}._apply_cuda_graph_metadata",
            f"{_STEPS}.init_forward_metadata",
            f"{_STEPS}.init_forward_metadata_out_graph",
            f"{_STEPS}.common_template",
            "_is_dflash_verify",
        )
    ),
    *(
        Target("attention", BACKEND, f"{_BACKEND}.{name}")
        for name in ("forward_mtp", "forward_extend", "forward_decode_graph", "forward_decode")
    ),
    Target("graph", f"{GRAPHS}/npu_graph_runner.py", "NPUGraphRunner.execute"),
    Target("graph", f"{GRAPHS}/eagle_draft_npu_graph_runner.py", "EAGLEDraftNpuGraphRunner._replay_graph"),
    Target("graph", f"{GRAPHS}/eagle_draft_extend_npu_graph_runner.py", "EAGLEDraftExtendNpuGraphRunner._replay_graph"),
    Target("graph", f"{GRAPHS}/npu_cudagraph_backend.py", "NPUCudaGraphBackend.replay_with_input_update"),
    Target("pool", POOLS, "_mla_fia_nz_scatter_indices"),
    Target("pool", POOLS, "NPUMHATokenToKVPool.set_kv_buffer"),
    Target("pool", POOLS, "NPUMLATokenToKVPool.set_kv_buffer"),
    Target("pool", POOLS, "NPUMLATokenToKVPool._set_fia_nz_kv_buffer"),
    *(
        Target("allocator", ALLOCATOR, f"NPUPagedTokenToKVPoolAllocator.{name}")
        for name in ("alloc_extend", "alloc_decode", "free")
    ),
    *(
        Target("worker", WORKER, f"DFlashWorkerV2.{name}")
        for name in (
            "_compute_compact_draft_seq_lens",
            "_compute_compact_draft_seq_lens_host",
            "_fill_compact_seq_lens_cpu_bound",
            "_rebuild_compact_draft_cache",
        )
    ),
    Target("worker", WORKER, "DFlashWorkerV2.forward_batch_generation", LENGTHS),
    Target("gate", GATE, "_handle_dflash"),
)
TARGET_GROUPS: tuple[str, ...] = tuple(dict.fromkeys(target.group for target in TARGETS))


def targets_of(sglang: Path, names: Sequence[str], groups: Sequence[str]) -> list[Target]:
    """The targets that `sglang` (the folder that holds the package) has, of `groups` and by `names` (FILE:FUNCTION).

    A FILE is the name of a file or its end; the function of a class may leave the class out. Raises UsageError for a
    group or a name that is none.
    """
    for group in groups:
        if group not in TARGET_GROUPS:
            raise UsageError(f"there is no group of targets {group!r}: the groups are {', '.join(TARGET_GROUPS)}.")
    found = [target for target in TARGETS if not groups or target.group in groups]
    if names:
        found = [target for name in names for target in _named(name, found)]
    here = [target for target in found if _exists(sglang, target)]
    if not here:
        raise UsageError(f"this sglang has none of the targets {', '.join(map(str, found))}.")
    return list(dict.fromkeys(here))


def _named(name: str, targets: Sequence[Target]) -> list[Target]:
    file, _, function = name.rpartition(":")
    named = [
        target
        for target in targets
        if target.file.endswith(file) and function in (target.function, target.function.split(".")[-1])
    ]
    if not file or not named:
        known = ", ".join(map(str, targets))
        raise UsageError(f"{name!r} is no target, which is FILE:FUNCTION: the targets are {known}.")
    return named


def _exists(sglang: Path, target: Target) -> bool:
    try:
        Definition((sglang / target.file).read_text(encoding="utf-8"), target.function)
    except (OSError, CannotJudge):
        return False
    return True
