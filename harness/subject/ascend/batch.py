"""Real `ForwardBatch` and spec inputs for one round of a scenario, as the producers publish them."""

from itertools import accumulate
from typing import Any, NamedTuple

import torch

from harness.scenario.convention import DFLASH_FAMILY, device_length, host_length
from harness.scenario.metadata import MetadataScenario, Request
from harness.subject.ascend import releases
from harness.subject.ascend.steps import new_positions, padded_rows, published_positions
from harness.subject.blame import StandIn

HOST_DTYPES = {"int32": torch.int32, "int64": torch.int64}

#: sglang's forward mode for each mode of a scenario; the draft block is a TARGET_VERIFY of the draft worker.
FORWARD_MODES = {
    "extend": "EXTEND",
    "decode": "DECODE",
    "target_verify": "TARGET_VERIFY",
    "draft_block": "TARGET_VERIFY",
    "draft_decode": "DECODE",
    "draft_extend": "DRAFT_EXTEND_V2",
}


class Input(NamedTuple):
    """An input tensor of the backend and what it held before the call."""

    name: str
    tensor: torch.Tensor
    before: list[int]


class Batch(NamedTuple):
    """A `ForwardBatch` and the input tensors that nobody may write to."""

    forward_batch: Any
    inputs: tuple[Input, ...]


class BatchBuilder:
    """Builds the rounds of scenarios on `device`; holds the sglang classes, which are looked up once."""

    def __init__(self, device: str) -> None:
        import inspect

        from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        self.device = device
        self.modes = {mode: ForwardMode[name] for mode, name in FORWARD_MODES.items()}
        self.idle = ForwardMode.IDLE
        self.hidden = CaptureHiddenMode.FULL
        self.algorithm = SpeculativeAlgorithm.from_string
        self.forward_batch = ForwardBatch
        self.known = set(inspect.signature(ForwardBatch).parameters)

    def tensor(self, values: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """`values` on the device."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def build(self, scenario: MetadataScenario, batch: tuple[Request, ...], req_to_token: torch.Tensor) -> Batch:
        """The batch as its producers publish it: device lengths, host lengths, rows, cache locations, spec input."""
        lengths = [device_length(scenario, request) for request in batch]
        rows = [request.row for request in batch]
        published = [host_length(scenario, request) for request in batch]
        seq_lens = self.tensor(lengths)
        host = None
        if scenario.host_view != "absent":
            host = torch.tensor(published, dtype=HOST_DTYPES[scenario.host_dtype])
        req_pool_indices = self.tensor(rows)
        starts, counts = new_positions(scenario, batch)
        out_cache_loc = self._locations(req_to_token, rows, *published_positions(scenario, batch))
        tokens = sum(counts)
        fields: dict[str, Any] = {
            "forward_mode": self.modes[scenario.mode] if batch else self.idle,
            "batch_size": len(batch),
            "input_ids": self.tensor([0] * tokens),
            "req_pool_indices": req_pool_indices,
            "seq_lens": seq_lens,
            "seq_lens_cpu": host,
            "seq_lens_sum": sum(published) if host is not None else None,
            "out_cache_loc": out_cache_loc,
            "positions": self.tensor(
                [start + k for start, count in zip(starts, counts, strict=True) for k in range(count)]
            ),
            "spec_algorithm": self.algorithm(scenario.algorithm),
            "spec_info": self.spec_info(scenario, tokens),
            "capture_hidden_mode": self.hidden,
            "num_token_non_padded_cpu": tokens,
            "global_num_token_non_padded_cpu": tokens,
        }
        inputs = [Input("seq_lens", seq_lens, lengths), Input("req_pool_indices", req_pool_indices, rows)]
        if host is not None:
            inputs.append(Input("seq_lens_cpu", host, published))
        if scenario.mode in ("extend", "draft_extend"):
            prefixes = [request.prefix for request in batch]
            first_rows = [end - count for end, count in zip(accumulate(counts), counts, strict=True)]
            fields |= {
                "extend_start_loc": self.tensor(first_rows, torch.int32),
                "extend_seq_lens": self.tensor(counts, torch.int32),
                "extend_prefix_lens": self.tensor(prefixes, torch.int32),
                "extend_seq_lens_cpu": counts,
                "extend_prefix_lens_cpu": prefixes,
                "extend_num_tokens": tokens,
            }
            inputs.append(Input("extend_start_loc", fields["extend_start_loc"], first_rows))
            inputs.append(Input("extend_seq_lens", fields["extend_seq_lens"], list(counts)))
            inputs.append(Input("extend_prefix_lens", fields["extend_prefix_lens"], prefixes))
        known = {name: value for name, value in fields.items() if name in self.known}
        forward_batch = self.forward_batch(**known)
        if scenario.attention is not None and scenario.attention.padding:
            self._pad(forward_batch, padded_rows(scenario, batch), scenario.attention.padding)
        return Batch(forward_batch, tuple(inputs))

    def _pad(self, forward_batch: Any, rows: int, requests: int) -> None:
        """Pad as data parallelism does, by sglang's own code: tokens alone in an extend (`prepare_mlp_sync_batch`)."""
        size = len(forward_batch.input_ids) + rows
        forward_batch._original_batch_size = forward_batch.batch_size
        if forward_batch.forward_mode == self.modes["extend"]:
            forward_batch.extend_num_tokens = size
        else:
            forward_batch.batch_size += requests
        fill = StandIn(get_cuda_graph_seq_len_fill_value=lambda: 0)  # of Ascend's backend, 0.5.15 to 0.5.23
        forward_batch._pad_inputs_to_size(StandIn(attn_backend=fill), size, forward_batch.batch_size)

    def bind(self, forward_batch: Any) -> None:
        """Give a batch of a graph runner's own buffers what only some devices ask of it."""

    def _locations(
        self, req_to_token: torch.Tensor, rows: list[int], starts: list[int], counts: list[int]
    ) -> torch.Tensor:
        parts = [
            req_to_token[row, start : start + count] for row, start, count in zip(rows, starts, counts, strict=True)
        ]
        return torch.cat(parts).to(torch.int64) if parts else self.tensor([])

    def spec_info(self, scenario: MetadataScenario, tokens: int) -> Any:
        """The spec input of the algorithm and mode; None without speculative decoding."""
        if scenario.algorithm == "NONE":
            return None
        kind: Any
        extra: dict[str, Any] = {}
        if scenario.algorithm in DFLASH_FAMILY:
            from sglang.srt.speculative.dflash_info import DFlashVerifyInput

            kind = DFlashVerifyInput
        elif scenario.mode == "draft_decode":
            from sglang.srt.speculative.eagle_info import EagleDraftInput

            return EagleDraftInput()
        elif scenario.mode == "draft_extend":
            from sglang.srt.speculative.eagle_info import EagleDraftExtendInput

            return EagleDraftExtendInput()
        elif scenario.algorithm == "NGRAM":
            from sglang.srt.speculative.ngram_info import NgramVerifyInput

            kind, extra = NgramVerifyInput, {"new_seq_lens": self.tensor([0])}
        else:
            from sglang.srt.speculative.eagle_info import EagleVerifyInput

            kind, extra = EagleVerifyInput, {"spec_steps": scenario.draft_tokens - 1, "seq_lens_sum": 0}
        nothing = dict.fromkeys(
            (
                "custom_mask",
                "retrieve_index",
                "retrieve_next_token",
                "retrieve_next_sibling",
                "retrieve_cum_len",
                "seq_lens_cpu",
                "grammar",
            )
        )
        positions = self.tensor([0] * tokens)
        return releases.call(
            kind,
            **nothing,
            **extra,
            draft_token=positions,
            positions=positions,
            draft_token_num=scenario.draft_tokens,
            topk=1,
            capture_hidden_mode=self.hidden,
        )
