"""FlashInfer's wrappers of attention, planned first and then run: what is common to them.

Semantics are those that FlashInfer's documentation gives them, for a cache in the layout NHD with a slot for a page, as
sglang 0.5.15 to 0.5.23 plans it (`flashinfer_backend.py`). sglang reads and writes some attributes that are private to
FlashInfer, which therefore have its names.
"""

from collections.abc import Sequence
from typing import Any

import torch

from harness.gpu.attention_plan import Plan, Planner
from harness.gpu.dense import Sight, attend
from harness.gpu.refusal import Refusal

# Assumption: float32 is accepted, so that results can be compared closely. Source: the kernels of prefills are built
# for float16, bfloat16 and float8 alone. On a GPU: the subject runs in float16.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Arguments of a run that are not emulated, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {"window_left": (-1,), "k_scale": (None, 1.0), "v_scale": (None, 1.0)}


class AttentionWrapper:
    """A wrapper over a workspace, `backend` of which is about speed."""

    kernel: Refusal

    def __init__(self, workspace: torch.Tensor, kv_layout: str, *, use_cuda_graph: bool = False, backend: str) -> None:
        self.kernel = Refusal(type(self).__name__)
        self.kernel.require_neutral({"kv_layout": kv_layout}, {"kv_layout": ("NHD",)})
        self.device = workspace.device
        self.is_cuda_graph_enabled = use_cuda_graph
        self._backend = backend
        # The workspaces hold the plan; here the plan is an object, and they are handed over as FlashInfer's are.
        self._float_workspace_buffer = self._int_workspace_buffer = self._pin_memory_int_workspace_buffer = workspace
        self._cached_module = Planner()
        self._plan_info: Plan | None = None
        self._custom_mask_buf: torch.Tensor | None = None
        self._cached_q_data_type: torch.dtype | None = None
        self._cached_kv_data_type: torch.dtype | None = None
        # sglang puts its own, faster plans in its place.
        self.begin_forward: Any = self.plan

    def plan(self, *arguments: Any, **options: Any) -> None:
        """Prepare a run; see the wrappers."""
        raise NotImplementedError

    def forward_return_lse(self, *tensors: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Output, and the logarithm of its weights' sum to the base 2, float32 (rows, heads); see the wrappers."""
        raise NotImplementedError

    def forward(self, *tensors: Any, **options: Any) -> torch.Tensor:
        """The output of `forward_return_lse` alone."""
        return self.forward_return_lse(*tensors, **options)[0]

    def _planned(
        self, qo: torch.Tensor, kv: torch.Tensor, heads: int, kv_heads: int, size: int, page_size: int = 1
    ) -> Plan:
        """Plan for the offsets `qo` and `kv`, which are read on the host."""
        qo, kv = qo.cpu(), kv.cpu()
        workspaces = (self._float_workspace_buffer, self._int_workspace_buffer, self._pin_memory_int_workspace_buffer)
        graph, batch = self.is_cuda_graph_enabled, len(kv) - 1
        plan = self._cached_module.plan(
            *(*workspaces, qo, kv, kv.diff(), int(qo[-1]), batch, heads, kv_heads),
            *(page_size, graph, size, size, False, -1),
        )
        self._plan_info = plan
        return plan

    def _ready(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: dict[str, Any]) -> Plan:
        """The plan of a run with these tensors, where they fit it; refuses what is not emulated."""
        self.kernel.require_neutral(options, _NEUTRAL)
        plan = self._plan_info
        if plan is None:
            raise RuntimeError(f"{self.kernel.kernel}: nothing is planned: call plan before a run")
        plan.require_heads(self.kernel, q, keys, values)
        self.kernel.require(q.dtype in _DTYPES, "q", q.dtype, f"it must be one of {[str(one) for one in _DTYPES]}")
        planned = {"q": self._cached_q_data_type, "k": self._cached_kv_data_type, "v": self._cached_kv_data_type}
        for name, tensor in {"q": q, "k": keys, "v": values}.items():
            rule = f"the plan is for {planned[name]}"
            self.kernel.require(tensor.dtype == planned[name], name, tensor.dtype, rule)
            stride = tensor.stride(-1)
            self.kernel.require(stride == 1, name, f"of stride {stride}", "its last dimension must be contiguous")
        return plan


def attention(
    q: torch.Tensor,
    keys: Sequence[torch.Tensor],
    values: Sequence[torch.Tensor],
    rows: list[int],
    seen: list[torch.Tensor],
    sm_scale: float | None,
    soft_cap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output like `q` (rows, heads, size), and the logarithm of its weights' sum to the base 2 (rows, heads), float32.

    Each request has `rows` of `q`, `keys` and `values` (length, KV heads, size), and what it has `seen`, bool (rows,
    length). The scale is by default that of the head size.
    """
    scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    outputs, sums = [q.new_zeros(0, *q.shape[1:], dtype=torch.float32)], [q.new_zeros(0, q.shape[1]).float()]
    for own, key, value, mask in zip(torch.split(q, rows), keys, values, seen, strict=True):
        output, total = attend(own.float() * scale, key.float(), value.float(), mask, soft_cap=soft_cap or 0.0)
        outputs.append(output)
        sums.append(total / _LN_2)
    return torch.cat(outputs).to(q.dtype), torch.cat(sums)


def sights(rows: list[int], lengths: list[int], causal: bool) -> list[torch.Tensor]:
    """What each request's queries see: all keys, or those up to their own, the last query at the last key."""
    sight = Sight(-1, 0 if causal else -1)
    return [sight.mask(count, length) for count, length in zip(rows, lengths, strict=True)]


_LN_2 = 0.6931471805599453
