"""The operators of a model's layers, held to their definitions, written out in numpy and float64."""

import numpy as np
import pytest
import torch

from harness.conformance.batch import Floats
from harness.conformance.layers import normalised, turned
from harness.npu import fault
from harness.npu.activation import npu_swiglu
from harness.npu.fault import DeviceFault
from harness.npu.kernels import cache_loc_update
from harness.npu.normalization import npu_add_rms_norm, npu_gemma_rms_norm, npu_rms_norm
from harness.npu.products import batch_matmul_transpose, npu_transpose_batchmatmul
from harness.npu.rotary import fused_rope_qk_mqa, npu_mrope, npu_rotary_mul, split_qkv_rmsnorm_rope

TOKENS, HEADS, KV_HEADS, SIZE = 3, 4, 2, 8
EPSILON = 1e-3
TYPES = (torch.float64, torch.float32, torch.bfloat16)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _close(made: torch.Tensor, expected: Floats) -> None:
    bounds = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
    np.testing.assert_allclose(made.double().numpy(), expected, rtol=bounds[made.dtype], atol=bounds[made.dtype])


def _normalised(rows: Floats, weight: Floats) -> Floats:
    return normalised(rows, weight, EPSILON)


def _turned(row: Floats, angles: Floats, interleaved: bool) -> Floats:
    return turned(row, np.exp(1j * angles), interleaved)


@pytest.mark.parametrize("dtype", TYPES)
def test_rms_norm_divides_by_the_root_of_the_mean_square_and_weights(dtype: torch.dtype) -> None:
    rows, weight = _random(TOKENS, SIZE).to(dtype), _random(SIZE, seed=1).to(dtype)
    made, factor = npu_rms_norm(rows, weight, EPSILON)

    precise = rows.double().numpy()
    _close(made, _normalised(precise, weight.double().numpy()))
    _close(factor, 1 / np.sqrt((precise**2).mean(-1, keepdims=True) + EPSILON))
    assert made.dtype == dtype
    assert factor.shape == (TOKENS, 1)


def test_gemma_rms_norm_weights_by_one_more() -> None:
    rows, weight = _random(TOKENS, SIZE), _random(SIZE, seed=1)

    _close(npu_gemma_rms_norm(rows, weight, EPSILON)[0], _normalised(rows.numpy(), 1 + weight.numpy()))


def test_add_rms_norm_normalises_the_sum_and_returns_it_last() -> None:
    first, second, weight = _random(TOKENS, SIZE), _random(TOKENS, SIZE, seed=1), _random(SIZE, seed=2)
    made, _, total = npu_add_rms_norm(first, second, weight, EPSILON)

    _close(total, (first + second).numpy())
    _close(made, _normalised((first + second).numpy(), weight.numpy()))


def test_a_weight_that_is_not_the_last_axis_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"npu_rms_norm: gamma is of shape \[7\]"):
        npu_rms_norm(_random(TOKENS, SIZE), _random(SIZE - 1))


def test_different_shapes_are_not_added() -> None:
    with pytest.raises(RuntimeError, match=r"npu_add_rms_norm: x2 is of shape \[1, 8\]"):
        npu_add_rms_norm(_random(TOKENS, SIZE), _random(1, SIZE), _random(SIZE))


@pytest.mark.parametrize("dtype", TYPES)
def test_swiglu_gates_the_second_half_by_the_first(dtype: torch.dtype) -> None:
    rows = _random(TOKENS, 2 * SIZE).to(dtype)
    gate, factor = np.split(rows.double().numpy(), 2, -1)

    _close(npu_swiglu(rows), gate / (1 + np.exp(-gate)) * factor)


def test_swiglu_refuses_an_odd_width() -> None:
    with pytest.raises(RuntimeError, match=r"npu_swiglu: input is of shape \[3, 7\]"):
        npu_swiglu(_random(TOKENS, 7))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned_size", [SIZE, SIZE - 4])
def test_mrope_turns_each_head_by_the_angles_of_its_position_and_keeps_the_rest(
    interleaved: bool, turned_size: int
) -> None:
    positions = torch.tensor([5, 0, 3])
    angles = _random(6, turned_size // 2)
    cache = torch.cat([angles.cos(), angles.sin()], -1)
    query, key = _random(TOKENS, HEADS * SIZE), _random(TOKENS, KV_HEADS * SIZE, seed=1)
    mode = "interleave" if interleaved else "half"
    made = npu_mrope(positions, query, key, cache, SIZE, mrope_section=[0, 0, 0], rotary_mode=mode)

    for rows, result in zip((query, key), made, strict=True):
        expected = rows.numpy().reshape(TOKENS, -1, SIZE).copy()
        for token, position in enumerate(positions.tolist()):
            for head in expected[token]:
                head[:turned_size] = _turned(head[:turned_size], angles[position].numpy(), interleaved)
        _close(result, expected.reshape(rows.shape))


@pytest.mark.parametrize("position", [6, -1])
def test_a_position_without_angles_stops_the_device(position: int) -> None:
    with pytest.raises(DeviceFault, match=rf"npu_mrope: error code 507015.*position {position}, but"):
        npu_mrope(torch.tensor([position]), _random(1, SIZE), _random(1, SIZE), _random(6, SIZE), SIZE)
    fault.reset()


def test_mrope_by_sections_is_not_emulated() -> None:
    with pytest.raises(NotImplementedError, match="mrope_section"):
        npu_mrope(torch.tensor([0]), *[_random(1, SIZE)] * 3, SIZE, mrope_section=[2, 1, 1])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_mul_turns_by_cosines_and_sines_per_dimension(interleaved: bool) -> None:
    rows, angles = _random(TOKENS, SIZE), _random(TOKENS, SIZE // 2, seed=1)
    spread = angles.repeat_interleave(2, -1) if interleaved else torch.cat([angles, angles], -1)
    mode = "interleave" if interleaved else "half"

    expected = [_turned(row, turn, interleaved) for row, turn in zip(rows.numpy(), angles.numpy(), strict=True)]
    _close(npu_rotary_mul(rows, spread.cos(), spread.sin(), mode), np.array(expected))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned_size", [SIZE, SIZE - 4])
def test_heads_of_two_tensors_turn_by_the_angles_of_their_token_and_keep_the_rest(
    interleaved: bool, turned_size: int
) -> None:
    angles = _random(TOKENS, turned_size // 2)
    query, key = _random(TOKENS, HEADS, SIZE), _random(TOKENS, 1, SIZE, seed=1)
    made = fused_rope_qk_mqa(query, key, torch.cat([angles.cos(), angles.sin()], -1), turned_size, not interleaved)

    for rows, result in zip((query, key), made, strict=True):
        expected = rows.numpy().copy()
        for token, turn in enumerate(angles.numpy()):
            for head in expected[token]:
                head[:turned_size] = _turned(head[:turned_size], turn, interleaved)
        _close(result, expected)


def test_angles_of_another_count_than_tokens_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"fused_rope_qk_mqa: query is of shape \[3, 4, 8\]"):
        fused_rope_qk_mqa(_random(TOKENS, HEADS, SIZE), _random(TOKENS, 1, SIZE), _random(2, SIZE), SIZE, True)


def test_every_head_is_multiplied_by_its_matrix_and_stays_second() -> None:
    rows, matrices = _random(TOKENS, HEADS, SIZE), _random(HEADS, SIZE, 5, seed=1)
    expected = np.stack([rows[:, head].numpy() @ matrices[head].numpy() for head in range(HEADS)], axis=1)
    written = torch.zeros(TOKENS, HEADS, 5, dtype=torch.float64)
    batch_matmul_transpose(rows, matrices, written)

    _close(npu_transpose_batchmatmul(rows, matrices, perm_x1=(1, 0, 2), perm_x2=(0, 1, 2), perm_y=(1, 0, 2)), expected)
    _close(written, expected)


def test_heads_in_another_order_are_not_emulated() -> None:
    with pytest.raises(NotImplementedError, match="perm_x1"):
        npu_transpose_batchmatmul(_random(TOKENS, HEADS, SIZE), _random(HEADS, SIZE, 5), perm_y=(1, 0, 2))


def test_matrices_of_other_heads_are_refused() -> None:
    with pytest.raises(RuntimeError, match="tensor_b is of shape"):
        batch_matmul_transpose(_random(TOKENS, HEADS, SIZE), _random(HEADS, 5, SIZE), _random(TOKENS, HEADS, SIZE))


def _split(input: torch.Tensor, **changes: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    angles = _random(TOKENS, SIZE // 2, seed=3)
    wide = torch.cat([angles, angles], -1).view(TOKENS, 1, 1, SIZE)
    return split_qkv_rmsnorm_rope(input, wide.sin(), wide.cos(), HEADS * SIZE, KV_HEADS * SIZE, SIZE, **changes)


def test_fused_queries_and_keys_are_normalised_then_turned_and_values_only_split() -> None:
    input = _random(TOKENS, (HEADS + 2 * KV_HEADS) * SIZE)
    weights = {"q_weight": _random(SIZE, seed=1), "k_weight": _random(SIZE, seed=2)}
    made = _split(input, eps=EPSILON, **weights)

    angles = _random(TOKENS, SIZE // 2, seed=3).numpy()
    parts = np.split(input.numpy(), [HEADS * SIZE, (HEADS + KV_HEADS) * SIZE], -1)
    for rows, weight, result in zip(parts, weights.values(), made, strict=False):
        heads = [
            [_turned(head, angles[token], False) for head in _normalised(row.reshape(-1, SIZE), weight.numpy())]
            for token, row in enumerate(rows)
        ]
        _close(result, np.array(heads).reshape(rows.shape))
    _close(made[2], parts[2])


def test_without_an_epsilon_fused_queries_are_only_turned() -> None:
    input = _random(TOKENS, (HEADS + 2 * KV_HEADS) * SIZE)
    angles = _random(TOKENS, SIZE // 2, seed=3).numpy()
    rows = input.numpy()[:, : HEADS * SIZE].reshape(TOKENS, HEADS, SIZE)

    expected = [[_turned(head, angles[token], False) for head in row] for token, row in enumerate(rows)]
    _close(_split(input)[0], np.array(expected).reshape(TOKENS, -1))


def test_a_fused_input_of_another_width_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"split_qkv_rmsnorm_rope: input is of shape \[3, 63\]"):
        _split(_random(TOKENS, 63))


def _slots(rows: list[int], starts: list[int], ends: list[int], places: int) -> list[int]:
    pool = torch.arange(40, dtype=torch.int32).view(4, 10)
    out = torch.full((places,), -1, dtype=torch.int32)
    assert cache_loc_update(torch.tensor(rows), pool, torch.tensor(starts), torch.tensor(ends), out) is out
    return out.tolist()


def test_slots_of_requests_follow_one_another() -> None:
    assert _slots([2, 0], [3, 8], [6, 10], 5) == [23, 24, 25, 8, 9]


@pytest.mark.parametrize(
    "rows, starts, ends, places", [([4], [0], [1], 1), ([0], [9], [11], 2), ([0], [-1], [1], 2), ([0], [0], [3], 2)]
)
def test_slots_outside_a_table_stop_the_device(
    rows: list[int], starts: list[int], ends: list[int], places: int
) -> None:
    with pytest.raises(DeviceFault, match="507015"):
        _slots(rows, starts, ends, places)
    fault.reset()
