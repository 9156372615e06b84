"""The operators of a model's layers: normalisation, rotation and activation, against float64.

The references share nothing with the emulation: pairs of dimensions are complex numbers, rows are taken one by one.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from harness.conformance.batch import Floats
from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device

NORM = "npu.npu_rms_norm"
GEMMA_NORM = "npu.npu_gemma_rms_norm"
ADD_NORM = "npu.npu_add_rms_norm"
SWIGLU = "npu.npu_swiglu"
ROTARY = "npu.npu_rotary_mul"
MROPE = "npu.npu_mrope"
TWO_ROTATED = "sgl_kernel_npu.norm.fused_rope_qk_mqa.fused_rope_qk_mqa"
SPLIT = "sgl_kernel_npu.norm.split_qkv_rmsnorm_rope.split_qkv_rmsnorm_rope"

TOKENS, HEADS, KV_HEADS, SIZE = 3, 4, 2, 128
#: As large as the mean squares of `SMALL`, so that a device that left it out would be seen.
EPSILON = 1e-3
SMALL = 2.0**-5


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _precise(tensor: torch.Tensor) -> Floats:
    return tensor.double().numpy()


def normalised(rows: Floats, weight: Floats, epsilon: float) -> Floats:
    """Each row over the root of its mean square, times `weight`."""
    return np.array([row / np.sqrt(np.mean(row**2) + epsilon) * weight for row in rows])


def turned(row: Floats, turns: npt.NDArray[np.complex128], interleaved: bool) -> Floats:
    """A head's dimensions as complex numbers, each times its turn: neighbours, or i and i + half the width."""
    half = len(row) // 2
    real, imaginary = (row[0::2], row[1::2]) if interleaved else (row[:half], row[half:])
    product = (real + 1j * imaginary) * turns
    if interleaved:
        return np.stack([product.real, product.imag], -1).reshape(-1)
    return np.concatenate([product.real, product.imag])


INPUT, OTHER = _random(TOKENS, SIZE) * SMALL, _random(TOKENS, SIZE, seed=1) * SMALL
WEIGHT = _random(SIZE, seed=2)


def norm(**changes: Any) -> Arguments:
    """Rows that are small, and a weight."""
    return {"input": INPUT, "gamma": WEIGHT, "epsilon": EPSILON, **changes}


def sum_and_norm() -> Expected:
    """The sum is what half precision makes of it."""
    total = _precise(INPUT + OTHER)
    return {"output": normalised(total, _precise(WEIGHT), EPSILON), "total": total}


MIXED = norm(input=INPUT.bfloat16(), gamma=WEIGHT.float())


def of_two_types(device: Device) -> Values:
    """Rows in bfloat16 and a weight in float32; the type of the result counts as well."""
    output = device.operator(NORM)(**device.placed(MIXED))[0]
    return {**device.wait_for({"output": output}), "its type": str(output.dtype)}


def gated() -> Expected:
    """SiLU of the first half, times the second."""
    gate, factor = np.split(_precise(WIDE), 2, -1)
    return {"output": gate / (1 + np.exp(-gate)) * factor}


WIDE = _random(TOKENS, 2 * SIZE, seed=3)

#: Angles by position, for all or half of a head's dimensions; the cosines and sines of a token are of half precision.
ANGLES = _random(8, SIZE // 2, seed=4, dtype=torch.float64)
POSITIONS = torch.tensor([5, 0, 3])
QUERY, KEY = _random(TOKENS, HEADS * SIZE, seed=5), _random(TOKENS, KV_HEADS * SIZE, seed=6)


def _turns(cosine: torch.Tensor, sine: torch.Tensor) -> npt.NDArray[np.complex128]:
    return _precise(cosine) + 1j * _precise(sine)


def rotation(width: int = SIZE, mode: str = "half") -> Arguments:
    """Queries and keys of which the first `width` dimensions of a head turn."""
    angles = ANGLES[:, : width // 2]
    return {
        "positions": POSITIONS,
        "query": QUERY,
        "key": KEY,
        "cos_sin_cache": torch.cat([angles.cos(), angles.sin()], -1).half(),
        "head_size": SIZE,
        "mrope_section": [0, 0, 0],
        "rotary_mode": mode,
    }


def rotated(width: int = SIZE, mode: str = "half") -> Expected:
    """Token by token, head by head; what is behind `width` stays."""
    turns = _turns(*rotation(width, mode)["cos_sin_cache"].chunk(2, -1))
    results: Expected = {}
    for name, rows in (("query", QUERY), ("key", KEY)):
        heads = _precise(rows).reshape(TOKENS, -1, SIZE).copy()
        for token, position in enumerate(POSITIONS.tolist()):
            for head in heads[token]:
                head[:width] = turned(head[:width], turns[position], mode == "interleave")
        results[name] = heads
    return results


def rotation_of_heads(width: int = SIZE, neighbours: bool = True) -> Arguments:
    """Queries and keys by head, and a row of cosines and sines for each token."""
    angles = ANGLES[POSITIONS, : width // 2]
    return {
        "query": QUERY.view(TOKENS, HEADS, SIZE),
        "key": KEY.view(TOKENS, KV_HEADS, SIZE),
        "cos_sin": torch.cat([angles.cos(), angles.sin()], -1).half(),
        "rotary_dim": width,
        "is_neox_style": not neighbours,
    }


def _per_dimension(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of each token, as sglang hands them on: (tokens, 1, 1, head size)."""
    angles = ANGLES[POSITIONS].repeat(1, 2).view(TOKENS, 1, 1, SIZE)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def multiplied() -> Arguments:
    """A batch of one, as sglang makes it; all heads of a token turn alike."""
    cosine, sine = (angles.transpose(0, 1) for angles in _per_dimension(torch.float16))
    return {"input": QUERY.view(1, TOKENS, HEADS, SIZE), "r1": cosine.contiguous(), "r2": sine.contiguous()}


#: In bfloat16, which is the type that the device's kernel computes with in between.
FUSED = _random(TOKENS, (HEADS + 2 * KV_HEADS) * SIZE, seed=7, dtype=torch.bfloat16) * SMALL
WEIGHTS = {name: _random(SIZE, seed=8 + n, dtype=torch.bfloat16) for n, name in enumerate(("q_weight", "k_weight"))}
BIASES = {name: _random(SIZE, seed=10 + n, dtype=torch.bfloat16) for n, name in enumerate(("q_bias", "k_bias"))}


def split(**biases: torch.Tensor) -> Arguments:
    """Queries, keys and values side by side."""
    cosine, sine = _per_dimension(torch.bfloat16)
    sizes = {"q_hidden_size": HEADS * SIZE, "kv_hidden_size": KV_HEADS * SIZE, "head_dim": SIZE}
    return {"input": FUSED, "sin": sine, "cos": cosine, **sizes, "eps": EPSILON, **WEIGHTS, **biases}


def split_up(**biases: torch.Tensor) -> Expected:
    """Queries and keys normalised, moved by the bias and turned, head by head; values as they are."""
    cosine, sine = (angles.view(TOKENS, SIZE)[:, : SIZE // 2] for angles in _per_dimension(torch.bfloat16))
    turns = _turns(cosine, sine)
    query, key, value = np.split(_precise(FUSED), [HEADS * SIZE, (HEADS + KV_HEADS) * SIZE], -1)
    results: Expected = {"value": value}
    for name, rows in (("query", query), ("key", key)):
        weight = _precise(WEIGHTS[f"{name[0]}_weight"])
        bias = _precise(biases[f"{name[0]}_bias"]) if biases else 0.0
        results[name] = np.array([
            [turned(head, turns[token], False) for head in normalised(row.reshape(-1, SIZE), weight, EPSILON) + bias]
            for token, row in enumerate(rows)
        ])  # fmt: skip
    return results


def _norm_cases() -> list[Case]:
    return [
        accepted("rows over the root of their mean square",
                 Rule("normalization.py", "`input` normalised and weighted by `gamma`"), Call(NORM, norm),
                 lambda: {"output": normalised(_precise(INPUT), _precise(WEIGHT), EPSILON)}),
        Case("rows in bfloat16 by a weight in float32", (NORM,),
             Rule("normalization.py", "Assumption: different types are promoted"), of_two_types,
             lambda: {"output": normalised(_precise(MIXED["input"]), _precise(MIXED["gamma"]), EPSILON),
                      "its type": "torch.float32"}),
        accepted("a weight of Gemma is one more", Rule("normalization.py", "weighted by one more than `gamma`"),
                 Call(GEMMA_NORM, norm),
                 lambda: {"output": normalised(_precise(INPUT), 1 + _precise(WEIGHT), EPSILON)}),
        accepted("a sum is normalised, and returned as well",
                 Rule("normalization.py", "The sum of `x1` and `x2` normalised and weighted by `gamma`"),
                 Call(ADD_NORM, lambda: {"x1": INPUT, "x2": OTHER, "gamma": WEIGHT, "epsilon": EPSILON},
                      returned=("output", None, "total")), sum_and_norm),
    ]  # fmt: skip


def _rotation_cases() -> list[Case]:
    sections = Rule("rotary.py", "Assumption: sections of zero, which sglang passes for text")
    neighbours = Rule("rotary.py", "or each even one against the next")
    kept = Rule("rotary.py", "the first dimensions of `rows`; the others stay")
    parts = Rule("rotary.py", "The queries, keys and values of (token, queries + keys + values)")
    biased = Rule("rotary.py", "heads = heads if bias is None else heads + wide(bias)")
    both, three = ("query", "key"), ("query", "key", "value")
    return [
        accepted("heads turn by the angles of one position", sections, Call(MROPE, rotation, returned=both), rotated),
        *(
            accepted(name, rule, Call(MROPE, partial(rotation, *how), returned=both), partial(rotated, *how))
            for name, rule, how in (
                ("neighbours turn against each other", neighbours, (SIZE, "interleave")),
                ("half of a head turns and the rest stays", kept, (SIZE // 2,)),
            )
        ),
        accepted("neighbours of two tensors' heads turn by the angles of their token",
                 Rule("rotary.py", "they stay neighbours"),
                 Call(TWO_ROTATED, rotation_of_heads, returned=both), partial(rotated, SIZE, "interleave")),
        accepted("halves of a part of two tensors' heads turn",
                 Rule("rotary.py", "Queries and keys (token, head, dimension) with their first `rotary_dim`"),
                 Call(TWO_ROTATED, partial(rotation_of_heads, SIZE // 2, False), returned=both),
                 partial(rotated, SIZE // 2)),
        accepted("heads turn by cosines and sines per dimension",
                 Rule("rotary.py", "`input` turned by the angles whose cosines are `r1` and sines `r2`"),
                 Call(ROTARY, multiplied), lambda: {"output": rotated()["query"]}),
        accepted("fused queries, keys and values are split, normalised and turned", parts,
                 Call(SPLIT, split, returned=three), split_up),
        accepted("a bias comes between the norm and the turn", biased,
                 Call(SPLIT, partial(split, **BIASES), returned=three), partial(split_up, **BIASES)),
    ]  # fmt: skip


CASES: tuple[Case, ...] = (
    *_norm_cases(),
    accepted("the first half gates the second", Rule("activation.py", "SiLU of the first half of `input`"),
             Call(SWIGLU, lambda: {"input": WIDE}), gated),
    *_rotation_cases(),
)  # fmt: skip
