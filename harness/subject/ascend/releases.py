"""What differs between releases, and nothing else: how sglang is configured, and what a release has.

Each entry says since when, and was read in the sources of 0.5.15 to 0.5.23.
"""

import ast
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from harness.scenario.capability import ABSENT_HOST, DFLASH2, DFLASH_GRAMMAR, DP_PADDING, FIA_NZ, HEAD_SIZES
from harness.scenario.metadata import SPARE_COLUMNS, MetadataScenario

#: A group of one rank, as far as capturing a graph needs one.
ALONE = SimpleNamespace(world_size=1, rank_in_group=0, barrier=lambda: None)

#: By this variable a server goes without host lengths (0.5.23).
HOST_SWITCH = "SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS"
#: One rank, no data parallelism. Names that a release does not know are left out.
PARALLEL: dict[str, Any] = {
    "tp_group": ALONE,
    "tp_size": 1,
    "tp_rank": 0,
    "attn_tp_size": 1,
    "attn_tp_rank": 0,
    "attn_cp_size": 1,
    "attn_cp_rank": 0,
    "attn_dcp_size": 1,
    "attn_dcp_rank": 0,
    "dcp_enabled": False,
}


def call(function: Any, **arguments: Any) -> Any:
    """Call `function` with those of `arguments` that its signature has: constructors gain parameters over time."""
    parameters = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in parameters})


def publish_server_args(fields: dict[str, Any]) -> Any:
    """Make `fields` the server arguments of this process and return them.

    From 0.5.16 sglang has an override for tests; 0.5.15 takes any object that its readers are content with.
    """
    from sglang.srt.runtime_context import get_context

    context = get_context()
    if hasattr(context, "override_server_args"):
        return context.override_server_args(**fields).install()
    server_args = SimpleNamespace(**fields, stands_in=True)
    context.set_server_args(server_args)
    return server_args


def override_parallel(backend: ModuleType) -> ExitStack:
    """Force the topology of one rank until the returned stack is closed.

    The names grew with the releases (`dcp_enabled` came in 0.5.16), so an unknown one is dropped. The Ascend `backend`
    of 0.5.15 asks the process group itself for the size of the attention group, and so does the accept code up to
    0.5.20.
    """
    from sglang.srt.distributed import parallel_state
    from sglang.srt.runtime_context import get_parallel
    from sglang.srt.speculative import eagle_utils

    if hasattr(backend, "get_attention_tp_size"):
        parallel_state._ATTN_TP = ALONE
    if "get_tp_group" in inspect.getsource(eagle_utils):
        parallel_state._TP = ALONE

    stack = ExitStack()
    for name, value in PARALLEL.items():
        try:
            stack.enter_context(get_parallel().override(**{name: value}))
        except ValueError as error:
            if "unknown parallel field" not in str(error):
                raise
    return stack


def capabilities() -> tuple[str, ...]:
    """Algorithms that this release knows, `absent-host` where the host mirror is optional (0.5.23), `fia-nz`, heads of
    any size and padded batches, `dflash-grammar` where DFlash takes requests with a grammar (from 0.5.17), and
    `DFLASH2` where it has that draft (from 0.5.19).
    """
    from sglang.srt.arg_groups import speculative_hook
    from sglang.srt.environ import envs
    from sglang.srt.hardware_backend.npu.attention import mla_preprocess
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    known = [name for name in SpeculativeAlgorithm.__members__ if name != "NONE"] + [HEAD_SIZES, DP_PADDING]
    if "DSPARK" in known and "npu" not in inspect.getsource(speculative_hook._handle_dspark):
        known.remove("DSPARK")
    if hasattr(envs, HOST_SWITCH):
        known.append(ABSENT_HOST)
    if "class DFlash2DraftModel" in _source("sglang.srt.models.dflash"):
        known.append(DFLASH2)
    if hasattr(mla_preprocess, "is_fia_nz"):
        known.append(FIA_NZ)
    if find_spec("sglang.srt.speculative.dflash_worker_v2"):  # from 0.5.14
        from sglang.srt.speculative import dflash_worker_v2

        if hasattr(dflash_worker_v2, "build_grammar_vocab_mask"):
            known.append(DFLASH_GRAMMAR)
    return tuple(sorted(known))


def _source(module: str) -> str:
    """The text of a module that is not imported for it."""
    found = find_spec(module)
    return "" if found is None or found.origin is None else Path(found.origin).read_text(encoding="utf-8")


def pools_write_nz() -> bool:
    """Whether the MLA pool writes in the layout NZ itself (from 0.5.21), or the preprocessing of MLAPO has to."""
    from sglang.srt.hardware_backend.npu.memory_pool_npu import NPUMLATokenToKVPool

    return hasattr(NPUMLATokenToKVPool, "_set_fia_nz_kv_buffer")


def choose_layout(nz: bool) -> None:
    """Have MLA caches in the layout NZ, or not: sglang asks the environment once, and remembers.

    Up to 0.5.20 NZ asks for MLAPO, with which the backend leaves writing to the preprocessing.
    """
    from sglang.srt.hardware_backend.npu.attention import mla_preprocess

    os.environ["SGLANG_USE_FIA_NZ"] = str(int(nz))
    os.environ["SGLANG_NPU_USE_MLAPO"] = str(int(nz and not pools_write_nz()))
    for name in ("is_fia_nz", "is_mla_preprocess_enabled"):
        if hasattr(mla_preprocess, name):
            getattr(mla_preprocess, name).cache_clear()


def constructed(kind: type, attribute: str, **names: Any) -> Any:
    """What the constructor of `kind` would assign to `attribute`, given the objects that it calls by `names`.

    For the constructor of a graph runner, which loads a model and captures it, the assignment alone is run.
    """
    source = textwrap.dedent(inspect.getsource(kind.__init__))  # type: ignore[misc]
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == f"self.{attribute}":
            expression = compile(ast.Expression(statement.value), inspect.getfile(kind), "eval")
            return eval(expression, vars(sys.modules[kind.__module__]) | names)
    raise LookupError(f"the constructor of {kind.__name__} no longer assigns {attribute}")


def never_built() -> tuple[str, ...]:
    """Metadata fields that the eager path of this release leaves to the attention call (query lengths, to 0.5.16)."""
    from sglang.srt.hardware_backend.npu.attention.ascend_backend import AscendAttnBackend

    source = inspect.getsource(AscendAttnBackend.init_forward_metadata)
    return tuple(name for name in ("actual_seq_lengths_q",) if name not in source)


def row_columns(scenario: MetadataScenario) -> int:
    """Columns of `req_to_token`: context, block and four; from 0.5.16 the whole page-aligned reservation too."""
    block, page = scenario.draft_tokens, scenario.pool.page_size
    spare = SPARE_COLUMNS + block
    if find_spec("sglang.srt.mem_cache.allocation_sizing") is not None and page > 1:
        spare = max(spare, 2 * block + page - 1)
    return scenario.pool.context_length + spare


def dflash_accept(worker: Any, **names: Any) -> tuple[Any, Any, Any, Any]:
    """Accept lengths without the bonus and with it, bonus tokens and emitted tokens, by the DFlash worker's own code.

    From 0.5.19 it is a method; before, a statement of `forward_batch_generation`, which is run as it stands.
    """
    kind = type(worker)
    if hasattr(kind, "_accept_block"):
        accept_lens, commit_lens, bonus, out_tokens, *_ = call(worker._accept_block, **names)
        return accept_lens, commit_lens, bonus, out_tokens
    source = textwrap.dedent(inspect.getsource(kind.forward_batch_generation))
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.If) and "is_dflash_sampling_verify_available()" in ast.unparse(statement.test):
            scope = vars(sys.modules[kind.__module__]) | names
            scope |= {"self": worker, "logits_output": SimpleNamespace(next_token_logits=names["next_token_logits"])}
            exec(compile(ast.Module([statement], []), inspect.getfile(kind), "exec"), scope)
            return scope["accept_len"], scope["commit_lens"], scope["bonus"], scope["out_tokens"]
    raise LookupError("the DFlash worker no longer asks whether it can verify samples: where does it accept?")


def grammar_mask(grammar: Any, mask: Any) -> Any:
    """A mask with the grammar that applies it (from 0.5.17; before, both are handed over by themselves)."""
    from sglang.srt.constrained import base_grammar_backend

    return base_grammar_backend.GrammarMask(grammar, mask) if hasattr(base_grammar_backend, "GrammarMask") else mask


@contextmanager
def as_cuda() -> Iterator[None]:
    """Have DSpark's accept code choose as on CUDA: the Triton kernels, which run on the host's tensors here.

    Its modules asked at import whether there is an NPU, and take the rejection of sgl_kernel_npu then (from 0.5.21); at
    each call they ask whether tensors are on CUDA.
    """
    package = "sglang.kernels.ops.speculative."
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(f"{package}dspark.")]
    on_cuda: dict[str, Any] = {"inputs_on_cuda": lambda *inputs, **named: True, "_is_npu": False}
    if modules:  # a release with DSpark
        rejection = import_module(f"{package}reject_sampling")
        on_cuda["chain_speculative_sampling_triton"] = rejection.chain_speculative_sampling_triton
    with ExitStack() as stack:
        for module in modules:
            known = {key: value for key, value in on_cuda.items() if key in vars(module)}
            if known:
                stack.enter_context(patch.multiple(module, **known))
        yield
