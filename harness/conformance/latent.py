"""Multi-head latent attention beside the fused operators, and the kernels for attention with sinks."""

from typing import Any

import numpy as np
import torch

from harness.conformance.attention import DECODE, SINKS, WINDOWED, batch, reference, within
from harness.conformance.batch import SCALE, Batch, everything
from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device, Host

DECODING = "npu._npu_paged_attention_mla"
RING = "npu.npu_ring_mla"
TOGETHER = "npu.npu_attention_update"
SINK_KERNELS = "sgl_kernel_npu.attention.sinks_attention"

LATENT = batch((1, 1), (18, 135), kv_heads=1, dimension=512)
ROPE = batch((1, 1), (18, 135), kv_heads=1, dimension=64)


def _joined(name: str) -> torch.Tensor:
    return torch.cat([getattr(one, name) for one in (LATENT, ROPE)], -1)


def decoding() -> Arguments:
    """Latents and rope parts side by side in one cache, as sglang copies them."""
    given = LATENT.single(query=_joined("query"), key_cache=_joined("key"), out=torch.empty_like(LATENT.query))
    del given["value_cache"]
    return {**given, "context_lens": Host(given["context_lens"]), "mla_vheadsize": 512}


def decoded() -> Expected:
    """Values are the latents."""
    whole = LATENT._replace(query=_joined("query"), key=_joined("key"), value=LATENT.key)
    return {"out": whole.reference(everything)}


#: Queries, own keys and prefix keys of two requests, none of them cached.
QUERIES, PREFIXES = (3, 2), (5, 4)
HEADS = 4
_WIDTHS = {"q_nope": 128, "q_rope": 64, "k_nope": 128, "k_rope": 64, "value": 128}


def _random(tokens: int, width: int, stream: int) -> torch.Tensor:
    drawn = np.random.default_rng((stream, width)).standard_normal((tokens, HEADS, width))
    return torch.from_numpy(drawn).half()


def _part(tokens: tuple[int, ...], stream: int) -> dict[str, torch.Tensor]:
    """Queries, and keys and values of `tokens`; the queries are the same for every part."""
    return {
        name: _random(sum(QUERIES), width, 1) if name.startswith("q") else _random(sum(tokens), width, stream)
        for name, width in _WIDTHS.items()
    }


OWN, EARLIER = _part(QUERIES, 2), _part(PREFIXES, 3)


def ring(device: Device) -> Values:
    """Causal attention over the new keys, joined with attention over those of the prefix."""
    made = {
        "output": torch.zeros(sum(QUERIES), HEADS, 128, dtype=torch.float16, device="npu"),
        "softmax_lse": torch.zeros(HEADS, sum(QUERIES), device="npu"),
    }
    mask = torch.ones(512, 512).triu(1).half().to("npu")
    common: dict[str, Any] = {
        "mask": mask,
        "head_num": HEADS,
        "kv_head_num": HEADS,
        "qk_scale": SCALE,
        "kernel_type": "kernel_type_high_precision",
        "input_layout": "type_bsnd",
        **made,
    }
    operator = device.operator(RING)
    first = {"mask_type": "mask_type_triu", "calc_type": "calc_type_first_ring"}
    operator(**device.placed(OWN), **common, **first, seqlen=torch.tensor(QUERIES, dtype=torch.int32))
    values = device.wait_for({"first": made["output"].clone()})
    later = {"mask_type": "no_mask", "calc_type": "calc_type_default"}
    joined = {"pre_out": made["output"], "prev_lse": made["softmax_lse"]}
    seqlen = torch.tensor([QUERIES, PREFIXES], dtype=torch.int32)
    operator(**device.placed(EARLIER), **common, **later, **joined, seqlen=seqlen)
    return {**values, **device.wait_for({"both": made["output"]})}


def _dense(request: int, with_prefix: bool) -> np.ndarray:
    """Attention of one request in float64, prefix first where it is asked for."""

    def rows(part: dict[str, torch.Tensor], counts: tuple[int, ...], names: tuple[str, ...]) -> np.ndarray:
        start = sum(counts[:request])
        return np.concatenate([part[name][start : start + counts[request]].double().numpy() for name in names], -1)

    query = rows(OWN, QUERIES, ("q_nope", "q_rope"))
    parts = ((EARLIER, PREFIXES), (OWN, QUERIES)) if with_prefix else ((OWN, QUERIES),)
    key = np.concatenate([rows(part, counts, ("k_nope", "k_rope")) for part, counts in parts])
    value = np.concatenate([rows(part, counts, ("value",)) for part, counts in parts])
    result = np.zeros((len(query), HEADS, 128))
    for index, head in np.ndindex(len(query), HEADS):
        seen = len(key) - len(query) + index + 1
        weights = np.exp(key[:seen, head] @ query[index, head] * SCALE)
        result[index, head] = weights @ value[:seen, head] / weights.sum()
    return result


def rings() -> Expected:
    """First the new keys alone, then all."""
    requests = range(len(QUERIES))
    return {
        name: np.concatenate([_dense(request, with_prefix) for request in requests])
        for name, with_prefix in (("first", False), ("both", True))
    }


SUMS = torch.tensor([[0.0, 1.0, -3.0], [0.5, -1.0, 2.0]])
PARTS = torch.stack([_random(3, 128, stream)[:, 0] for stream in (4, 5)])


def together() -> Expected:
    """Each part counts by the sum that it was divided by."""
    weights = np.exp(SUMS.double().numpy())
    parts = PARTS.double().numpy()
    return {"output": (parts * (weights / weights.sum(0))[:, :, np.newaxis]).sum(0)}


def sinks(made: Batch, window: int, **more: torch.Tensor) -> Arguments:
    """Arguments of the kernels, all tensors of which are on the device."""
    return {
        "query": made.query.flatten(1),
        "k_cache": made.key,
        "v_cache": made.value,
        "sinks": torch.tensor(SINKS).half(),
        **more,
        "block_tables": made.table,
        "context_lens": torch.tensor(made.kv_lengths, dtype=torch.int32),
        "scale": SCALE,
        "sliding_window_size": window,
        "q_head_num": made.heads,
        "k_head_num": made.kv_heads,
    }


def _prefill() -> Arguments:
    return sinks(WINDOWED, 5, seq_lens=torch.tensor(WINDOWED.query_lengths, dtype=torch.int32))


_WINDOW = Rule("sink_attention.py", "each query sees the last `sliding_window_size` positions, its own included")
_MEANT = Rule("sink_attention.py", "Assumption: the version that takes the new tokens")

CASES: tuple[Case, ...] = (
    accepted("decoding latents by ATB", Rule("paged_attention.py", "whose values are the first part of each key"),
             Call(DECODING, decoding, written=("out",)), decoded),
    Case("latent attention in two parts", (RING,),
         Rule("partial_attention.py", "Write attention over keys that are not cached, joined"), ring, rings),
    accepted("parts put together", Rule("partial_attention.py", "The whole attention of parts"),
             Call(TOGETHER, lambda: {"lse": list(SUMS), "local_out": list(PARTS), "update_type": 0}), together),
    accepted("a decode with sinks by Triton", _MEANT,
             Call(f"{SINK_KERNELS}.attention_sinks_triton", lambda: sinks(DECODE, -1)),
             reference(DECODE, everything, SINKS)),
    accepted("an extend with sinks and a window by Triton", _WINDOW,
             Call(f"{SINK_KERNELS}.attention_sinks_prefill_triton", _prefill), reference(WINDOWED, within, SINKS)),
)  # fmt: skip
