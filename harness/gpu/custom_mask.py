"""FlashInfer's custom masks: a bit for each query and key of a request, packed by requests."""

import torch

from harness.gpu.refusal import Refusal


def pack(kernel: Refusal, mask: torch.Tensor, rows: list[int], lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes (total,), uint8, and where those of each request begin and end, int32 (batch + 1,).

    `mask` is flat, bool or uint8: for each request a row of its keys for each query. Every request begins with a byte
    of its own, lowest bit first (`segment_packbits`, bit order "little", of FlashInfer's prefill.py). What a
    longer mask has at its end is left out. Raises RuntimeError for a mask that is too short.
    """
    sizes = [count * length for count, length in zip(rows, lengths, strict=True)]
    kernel.require(mask.dtype in (torch.bool, torch.uint8), "custom_mask", mask.dtype, "it must be bool or uint8")
    rule = f"{sum(sizes)} pairs of queries and keys are planned"
    kernel.require(mask.numel() >= sum(sizes), "custom_mask", f"of {mask.numel()} bits", rule)
    parts = [
        torch.nn.functional.pad(part.ne(0), (0, -len(part) % 8)).view(-1, 8)
        for part in torch.split(mask.flatten()[: sum(sizes)], sizes)
    ]
    packed = [(part * _BITS.to(mask.device)).sum(dim=1, dtype=torch.uint8) for part in parts]
    ends = torch.tensor([0, *(len(part) for part in packed)], dtype=torch.int32, device=mask.device)
    return torch.cat([*packed, torch.zeros(0, dtype=torch.uint8, device=mask.device)]), ends.cumsum(
        0, dtype=torch.int32
    )


def unpack(
    kernel: Refusal, packed: torch.Tensor, indptr: torch.Tensor, rows: list[int], lengths: list[int]
) -> list[torch.Tensor]:
    """Whether each query sees each key, for each request: bool (queries, keys).

    Raises RuntimeError where `indptr` does not give each request the bytes that it needs, or leads out of `packed`.
    """
    kernel.require(packed.dtype == torch.uint8, "custom_mask_buf", packed.dtype, "it must be torch.uint8")
    kernel.require_int32("mask_indptr", indptr)
    kernel.require_shape("mask_indptr", indptr, (len(rows) + 1,), "a request has two offsets")
    offsets = indptr.tolist()
    masks = []
    for request, (count, length) in enumerate(zip(rows, lengths, strict=True)):
        start, end = offsets[request : request + 2]
        name, need = f"mask_indptr[{request} : {request + 2}]", -(-count * length // 8)
        kernel.require(end - start == need, name, [start, end], f"{count} queries of {length} keys take {need} bytes")
        rule = f"the mask has {len(packed)} bytes"
        kernel.require(start >= 0 and end <= len(packed), name, [start, end], rule)
        bits = (packed[start:end, None] & _BITS).ne(0).flatten()
        masks.append(bits[: count * length].view(count, length))
    return masks


_BITS = 2 ** torch.arange(8, dtype=torch.uint8)
