"""The axes of a session: server options and environment switches that a session varies, with the values it tries.

The names are sglang's own. Which releases have an option is not written here: a release that lacks it is asked for no
other value than the first. How each option is used was read in 0.5.15 to 0.5.23; what is no axis, and why, says
`harness/inventory/options.json`.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple

from harness.scenario.covering import Row, Value
from harness.scenario.metadata import Algorithm
from harness.scenario.session import SessionTarget

Kind = Literal["option", "environment"]

#: Drafts that decode step by step, and extend after the verify.
_STEPPING: tuple[Algorithm, ...] = ("EAGLE", "EAGLE3", "STANDALONE")


class Axis(NamedTuple):
    """A field of `ServerArgs`, or an environment variable, and the values that sessions give it.

    The first value is that of a session that does not vary the axis; `None` leaves the option to sglang. Values of a
    variable are what is written into the environment. Empty `algorithms` or `targets` mean all; an axis whose values
    differ by target is there once for each.
    """

    name: str
    kind: Kind
    values: tuple[Value, ...]
    algorithms: tuple[Algorithm, ...] = ()
    targets: tuple[SessionTarget, ...] = ()

    def applies(self, algorithm: Algorithm, target: SessionTarget) -> bool:
        """Whether sglang looks at it in a session with that algorithm and that target."""
        return (not self.algorithms or algorithm in self.algorithms) and (not self.targets or target in self.targets)


AXES: tuple[Axis, ...] = (
    Axis("page_size", "option", (128, 64, 16), targets=("mha", "multihead", "swa")),
    Axis("page_size", "option", (128, 16), targets=("mla",)),  # the operators of MLA take no other
    Axis("context_length", "option", (1024, 256)),
    Axis("chunked_prefill_size", "option", (-1, 128, 256)),
    Axis(
        "enable_mixed_chunk",
        "option",
        (False, True),
        algorithms=("NONE", "EAGLE", "EAGLE3", "DFLASH"),
        targets=("mha", "multihead", "swa"),  # the Ascend backend refuses it with MLA, in a sentence of its own
    ),
    Axis("max_running_requests", "option", (8, 2)),
    Axis("max_total_tokens", "option", (4096, 1024)),
    Axis("schedule_policy", "option", ("fcfs", "lpm")),
    Axis("disable_radix_cache", "option", (False, True)),
    Axis("disable_overlap_schedule", "option", (False, True)),
    Axis("disable_cuda_graph_padding", "option", (False, True)),
    Axis("swa_full_tokens_ratio", "option", (None, 0.5, 1.0), targets=("swa",)),
    Axis("disable_hybrid_swa_memory", "option", (False, True), targets=("swa",)),
    Axis("speculative_num_draft_tokens", "option", (8, 4, 16), algorithms=("DFLASH",)),
    # Tokens that are proposed: one less than are verified.
    Axis("speculative_dspark_block_size", "option", (None, 3, 15), algorithms=("DSPARK",)),
    # A window below the block is refused.
    Axis("speculative_draft_window_size", "option", (None, 16, 48), algorithms=("DFLASH",)),
    # With one branch a step, the block is one longer.
    Axis("speculative_num_steps", "option", (3, 1, 5), algorithms=_STEPPING),
    Axis("ASCEND_USE_FIA", "environment", ("0", "1")),
    Axis("SGLANG_USE_FIA_NZ", "environment", ("0", "1"), targets=("mla",)),
    Axis("SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS", "environment", ("1", "0")),
    Axis("SGLANG_NPU_USE_SCATTER_PA_KV_CACHE", "environment", ("0", "1"), targets=("mha", "multihead", "swa")),
    Axis("SGLANG_ENABLE_OVERLAP_PLAN_STREAM", "environment", ("0", "1")),
    Axis("SGLANG_TEST_RETRACT", "environment", ("0", "1")),
    Axis("SGLANG_SWA_EVICTION_INTERVAL", "environment", ("128", "16"), targets=("swa",)),
    Axis("SGLANG_DFLASH_EAGER_DRAFT_SAMPLER", "environment", ("0", "1"), algorithms=("DFLASH",)),
    Axis("SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH", "environment", ("0", "1"), algorithms=_STEPPING),
)

#: Values that no session has together; a name that a session does not vary excludes nothing.
EXCLUDED: tuple[Row, ...] = (
    {"page_size": 16, "SGLANG_USE_FIA_NZ": "1"},  # caches in the layout NZ have pages of 128
    {"chunked_prefill_size": -1, "enable_mixed_chunk": True},  # there is no chunk to mix
    {"ASCEND_USE_FIA": "1", "SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS": "0"},  # is ignored, with a warning
)


def session_axes(algorithm: Algorithm, target: SessionTarget, known: Collection[str]) -> dict[str, tuple[Value, ...]]:
    """The values of each axis that a session with `algorithm` and `target` has, where the sglang has all of `known`."""
    return {axis.name: axis.values for axis in AXES if axis.applies(algorithm, target) and axis.name in known}
