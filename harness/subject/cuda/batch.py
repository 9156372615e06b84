"""Batches as the producers of a CUDA server publish them, where they differ from those of an NPU."""

from typing import Any

import torch

from harness.scenario.convention import DFLASH_FAMILY
from harness.scenario.metadata import MetadataScenario, Request
from harness.subject.ascend.batch import Batch, BatchBuilder


class CudaBatchBuilder(BatchBuilder):
    """Builds rounds for a backend of a GPU.

    A verify of the EAGLE family carries the mask of its tree, here a chain (`build_tree_kernel_efficient`), and a draft
    extend the number of its new tokens on the device (`EagleDraftExtendInput.extend_seq_lens_tensor`).
    `translator` is the `KVIndexTranslator` of releases that have one (from 0.5.19); batches carry a plan of it from
    0.5.22 on.
    """

    translator: Any = None

    def build(self, scenario: MetadataScenario, batch: tuple[Request, ...], req_to_token: torch.Tensor) -> Batch:
        """See `BatchBuilder`."""
        built = super().build(scenario, batch, req_to_token)
        forward_batch = built.forward_batch
        spec_info = forward_batch.spec_info
        if scenario.mode == "target_verify" and scenario.algorithm not in DFLASH_FAMILY:
            spec_info.custom_mask = self._chain(scenario, batch)
        if scenario.mode == "draft_decode":
            # One batch for the whole draft, at the positions of its first step (`draft_forward`).
            forward_batch.positions = self.tensor([request.prefix for request in batch])
        if scenario.mode == "draft_extend":
            # The graph runner hands over its buffer as far as it pads the batch; rows that pad hold a block.
            padded = min((bucket for bucket in scenario.buckets if bucket >= len(batch)), default=len(batch))
            padding = (0, padded - len(batch))
            lengths = torch.nn.functional.pad(forward_batch.extend_seq_lens, padding, value=scenario.draft_tokens)
            spec_info.extend_seq_lens_tensor = lengths
            self._accept(spec_info, padded, scenario.draft_tokens)
        if hasattr(self.translator, "own_plan"):
            self.translator.own_plan(forward_batch).bind(forward_batch, self.translator)
        return built

    def bind(self, forward_batch: Any) -> None:
        """Have the backend write to the graph runner's own buffers.

        Those of a draft extend have the number of its new tokens on the device, too
        (`eagle_draft_extend_cuda_graph_runner.py`, 0.5.15 to 0.5.23); they hold a block.
        """
        if forward_batch.forward_mode.is_draft_extend_v2():
            lengths = torch.tensor(forward_batch.extend_seq_lens_cpu, dtype=torch.int32, device=self.device)
            forward_batch.extend_seq_lens = lengths
        # What a runner captures says how long all requests are together (`decode_cuda_graph_runner.py`, 0.5.15 to
        # 0.5.23), and FlashInfer's backend makes its indices as long.
        forward_batch.seq_lens_sum = int(forward_batch.seq_lens.sum())
        if hasattr(self.translator, "bind_runner_slots"):
            self.translator.bind_runner_slots(forward_batch)

    def spec_info(self, scenario: MetadataScenario, tokens: int) -> Any:
        """See `BatchBuilder`; a draft extend has a block of tokens for each request, all of them accepted, and says so.

        A verify of the EAGLE family is captured with a mask in which every query sees every position (`get_spec_info`
        of decode_cuda_graph_runner.py, 0.5.15 to 0.5.23).
        """
        info = super().spec_info(scenario, tokens)
        if scenario.mode == "draft_extend":
            info.num_tokens_per_req = scenario.draft_tokens
            self._accept(info, tokens // scenario.draft_tokens, scenario.draft_tokens)
        if scenario.mode == "target_verify" and scenario.algorithm not in DFLASH_FAMILY:
            info.custom_mask = torch.ones(tokens * scenario.draft_tokens, dtype=torch.bool, device=self.device)
        return info

    def _accept(self, spec_info: Any, requests: int, block: int) -> None:
        """Whole blocks are accepted; the graph runner hands this over as far as it pads the batch, too."""
        accepted = torch.full((requests,), block, dtype=torch.int32, device=self.device)
        spec_info.num_correct_drafts = spec_info.num_accept_tokens = accepted

    def _chain(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> torch.Tensor:
        """For each request and query, whether it sees each position: the prefix, and the block up to itself."""
        block = scenario.draft_tokens
        own = torch.ones(block, block, dtype=torch.bool).tril()
        masks = [
            torch.cat([torch.ones(block, request.prefix, dtype=torch.bool), own], dim=1).flatten() for request in batch
        ]
        return torch.cat([*masks, torch.ones(0, dtype=torch.bool)]).to(self.device)
