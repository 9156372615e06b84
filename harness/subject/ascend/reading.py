"""Reading a backend's metadata into an observation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from harness.npu.synchronisation import Synchronisation
from harness.scenario import MetadataScenario, Request
from harness.scenario.observation import Array, Changed, Floats, Seen, Wait
from harness.subject.ascend.batch import Batch

#: Fields of `ForwardMetadata` that are reported as they are.
VECTORS = (
    "seq_lens_cpu_int",
    "seq_lens",
    "actual_seq_lengths_q",
    "seq_lens_list_cumsum",
    "prefix_lens",
    "flatten_prefix_block_tables",
)
#: Where the lines of the driver are, as call sites name files.
DRIVER = "ascend/"
TABLES = ("block_tables", "block_tables_swa")


def seen(
    scenario: MetadataScenario,
    requests: tuple[Request, ...],
    batch: Batch,
    metadata: Any,
    host_lengths: list[list[int]] | None,
) -> Seen:
    """The fields that `metadata` has, and the inputs that changed.

    `host_lengths` is what the graph runner hands over: one list for all operators, or one per draft step. A captured
    table is as wide as the context; it is cut a few pages past the longest length that this round could mean.
    """
    fields = {}
    for name in VECTORS:
        value = getattr(metadata, name, None)
        if value is not None and not _is_cumsum_of_nothing(value):
            fields[name] = pack(value)
    columns = _columns_of_interest(scenario, requests)
    for name in TABLES:
        value = getattr(metadata, name, None)
        if value is not None:
            fields[name] = pack(value[:, :columns])
    if host_lengths is not None:
        fields["host_lengths"] = Array.of(host_lengths[scenario.step if len(host_lengths) > 1 else 0])
    mask = getattr(metadata, "swa_mask", None)
    if mask is not None:
        fields["swa_visible"] = _visible(mask)
    return Seen(fields=fields, changed=changed_inputs(batch))


def _is_cumsum_of_nothing(value: Any) -> bool:
    """Outside an extend `seq_lens_list_cumsum` is NumPy's cumsum of None: an array of one object."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def pack(value: Any) -> Array:
    """A tensor, NumPy array or list as an `Array`."""
    if isinstance(value, torch.Tensor):
        narrow = value.detach().to(torch.int32).cpu().contiguous()
        return Array(tuple(narrow.shape), narrow.numpy().tobytes())
    return Array.of(value)


def floats(output: torch.Tensor) -> Floats:
    """An output on the device, as it is reported."""
    return Floats.of(output.float().cpu().numpy())


def waits(counter: Mapping[Synchronisation, int]) -> tuple[Wait, ...]:
    """The synchronisations of sglang's lines; those of the driver itself are none of a server's."""
    return tuple(
        Wait(noted.reason, noted.site, count) for noted, count in counter.items() if not noted.site.startswith(DRIVER)
    )


def changed_inputs(batch: Batch) -> tuple[Changed, ...]:
    """The input tensors that no longer hold what the producers put there."""
    changed = []
    for name, tensor, before in batch.inputs:
        after = tensor.tolist()
        if after != before:
            changed.append(Changed(name, str(tensor.dtype).removeprefix("torch."), tuple(before), tuple(after)))
    return tuple(changed)


def _columns_of_interest(scenario: MetadataScenario, requests: tuple[Request, ...]) -> int:
    longest = max((request.prefix + request.new_tokens + abs(request.host_lag) for request in requests), default=0)
    return -(-(longest + 4 * scenario.draft_tokens) // scenario.pool.page_size) + 2


def _visible(mask: torch.Tensor) -> Array:
    """Per row of a mask (True hides): the first visible position, one past the last, and how many are visible."""
    rows = []
    for row in (~mask).cpu().numpy().reshape(mask.shape[0], -1):
        positions = np.flatnonzero(row)
        rows.append((positions[0], positions[-1] + 1, len(positions)) if len(positions) else (0, 0, 0))
    return Array.of(rows)
