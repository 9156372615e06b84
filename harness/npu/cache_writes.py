"""The operators that write to KV caches."""

from typing import NamedTuple

import torch

from harness.npu import fault
from harness.npu.arguments import Arguments
from harness.npu.boundary import CacheWrite, TileWrite, announce, announced
from harness.npu.overloads import operator
from harness.npu.paged_cache import TILE

# What npu_scatter_nd_update_ takes, as torch_npu 2.14.0 documents for the A2 and A3, and float64, to compare closely.
_SCATTERED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.int8, torch.int64),
)
_MOST_AXES = 8
_CACHE_MODES = ("PA_NZ", "Norm", None)


class _Rows(NamedTuple):
    """Rows (token, head, dimension) that go to a cache (page, position, head, dimension).

    In the layout NZ the cache is (page, head * tile, position, number of the tile).
    """

    name: str
    rows: torch.Tensor
    cache_name: str
    cache: torch.Tensor
    tiled: bool = False

    def check(self, arguments: Arguments, slots: int) -> None:
        """Refuse rows that are not those of `slots` places in the cache."""
        axes = f"(pages, heads * D / {TILE}, page size, {TILE})" if self.tiled else "(pages, page size, heads, D)"
        whole = self.cache.dim() == 4 and (not self.tiled or self.cache.shape[3] == TILE)
        arguments.require_shape(whole, self.cache_name, self.cache, f"it must be {axes}")
        if self.tiled:
            width = self.cache.shape[1] * TILE
            fits = self.rows.dim() == 3 and (len(self.rows), self.rows[0:1].flatten(1).shape[1]) == (slots, width)
            rule = f"it must be [{slots}, heads, D] with heads * D of {width}"
        else:
            expected = [slots, *self.cache.shape[2:]]
            fits, rule = list(self.rows.shape) == expected, f"it must be {expected}"
        arguments.require_shape(fits, self.name, self.rows, rule)
        same = self.rows.dtype == self.cache.dtype
        arguments.require(same, self.name, self.rows.dtype, f"{self.cache_name} is {self.cache.dtype}")

    @property
    def positions(self) -> torch.Tensor:
        """The cache as a view that begins with the axes (page, position)."""
        return self.cache.transpose(1, 2) if self.tiled else self.cache

    def write(self, places: torch.Tensor) -> None:
        """Put each row to its place."""
        positions = self.positions
        pages, within = places // positions.shape[1], places % positions.shape[1]
        positions[pages, within] = self.rows.reshape(-1, *positions.shape[2:])


def _require_inside(arguments: Arguments, name: str, indices: torch.Tensor, size: int) -> None:
    # Assumption: an index outside the cache stops the device; none, such as -1, means that nothing is written. Source:
    # torch_npu 2.14.0 documents for both scatters that indices lie inside, and not what happens else. On a device:
    # write to slot -1, and to the first one past the cache, in a process of its own.
    outside = indices[(indices < 0) | (indices >= size)]
    if outside.numel():
        fault.fail(arguments.operator, f"{name} has {int(outside[0])}, but there are {size} places")


def _announce(arguments: Arguments, cache: torch.Tensor, slots: torch.Tensor) -> None:
    announce(CacheWrite(arguments.operator, cache.data_ptr(), slots.numpy().copy()))


def _write(arguments: Arguments, slots_name: str, slots: torch.Tensor, writes: tuple[_Rows, ...]) -> None:
    arguments.require_integers(slots_name, slots)
    arguments.require_shape(slots.dim() == 1, slots_name, slots, "it must have 1 axis")
    for write in writes:
        write.check(arguments, len(slots))
    places = slots.long()
    for write in writes:
        _announce(arguments, write.cache, places)
    announced()
    for write in writes:
        _require_inside(arguments, slots_name, places, write.positions.shape[0] * write.positions.shape[1])
    for write in writes:
        write.write(places)


@operator(writes=True, announces=CacheWrite)
def _npu_reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """Write each token's key and value to its slot."""
    arguments = Arguments("_npu_reshape_and_cache")
    writes = (_Rows("key", key, "key_cache", key_cache), _Rows("value", value, "value_cache", value_cache))
    _write(arguments, "slot_indices", slot_indices, writes)


@operator(
    writes=True, neutral=dict.fromkeys(("compress_lens", "compress_seq_offsets", "seq_lens")), announces=CacheWrite
)
def npu_scatter_pa_kv_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    cache_mode: str | None = "PA_NZ",
) -> None:
    """Write each token's key and value to its slot, in the layout NZ unless `cache_mode` says otherwise."""
    arguments = Arguments("npu_scatter_pa_kv_cache")
    arguments.require(cache_mode in _CACHE_MODES, "cache_mode", cache_mode, f"it must be one of {_CACHE_MODES}")
    tiled = cache_mode == _CACHE_MODES[0]
    arguments.require(value.dtype == key.dtype, "value", value.dtype, f"key is {key.dtype}")
    arguments.require_shape(value.shape[:2] == key.shape[:2], "value", value, f"key is {list(key.shape)}")
    writes = (
        _Rows("key", key, "key_cache", key_cache, tiled),
        _Rows("value", value, "value_cache", value_cache, tiled),
    )
    _write(arguments, "slot_mapping", slot_mapping, writes)


@operator(announces=CacheWrite, writes=True, returns=("input",))
def npu_scatter_nd_update_(input: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """Write each update to the place in `input` that its indices name."""
    arguments = Arguments("npu_scatter_nd_update_")
    arguments.require(input.dtype in _SCATTERED, "input", input.dtype, f"it must be one of {_SCATTERED}")
    arguments.require_shape(1 <= input.dim() <= _MOST_AXES, "input", input, f"it must have 1 to {_MOST_AXES} axes")
    arguments.require_integers("indices", indices)
    depth = indices.shape[-1]
    rule = f"it must have 2 axes or more, the last of 1 to {input.dim()}"
    arguments.require_shape(indices.dim() >= 2 and 0 < depth <= input.dim(), "indices", indices, rule)
    expected = [*indices.shape[:-1], *input.shape[depth:]]
    arguments.require_shape(list(updates.shape) == expected, "updates", updates, f"it must be {expected}")
    arguments.require(updates.dtype == input.dtype, "updates", updates.dtype, f"input is {input.dtype}")
    places = indices.long()
    # sglang scatters to other things too: only caches have a head and a dimension after their slots, or are tiles.
    if depth == 1 and input.dim() >= 3:
        _announce(arguments, input, places.flatten())
    elif depth == 1 and input.shape[1:] == (TILE,):
        announce(TileWrite(arguments.operator, input.data_ptr(), places.flatten().numpy().copy()))
    announced()
    for axis in range(depth):
        _require_inside(arguments, "indices", places[..., axis], input.shape[axis])
    input[places.unbind(-1)] = updates
    return input
