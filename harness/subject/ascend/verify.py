"""The accept code of a release on given logits: a verify without a model.

The release's own functions decide; what stands in is the worker around them, and the grammar, whose mask is the
scenario's. The path of CUDA runs on the host, as far as it is torch or Triton, with the switches as CUDA has them.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from harness.scenario.observation import Emitted
from harness.scenario.verify import Path, VerifyRequest, VerifyScenario
from harness.subject.ascend import releases
from harness.subject.ascend.stand_in import DEVICE
from harness.subject.blame import StandIn

DEVICES: dict[Path, str] = {"ascend": DEVICE, "cuda": "cpu"}
#: What each request has committed; the accept rule does not depend on it.
PREFIX = 5
NO_NODE = -1


class Accepted(NamedTuple):
    """What came out, as tensors: accept lengths and bonus tokens by request, emitted tokens by request and place."""

    accept_lens: torch.Tensor
    tokens: torch.Tensor
    bonus: torch.Tensor


class Grammar(StandIn):
    """A grammar whose masks are true where a token is allowed."""

    def apply_vocab_mask(self, logits: torch.Tensor, vocab_mask: torch.Tensor) -> None:
        """Forbid what is not allowed, in place."""
        logits.masked_fill_(~vocab_mask, float("-inf"))


class Batch:
    """The tensors of a verify: `tokens` of shape (requests, block), `logits` of (requests * block, vocabulary)."""

    def __init__(self, scenario: VerifyScenario) -> None:
        self.scenario = scenario
        self.device = DEVICES[scenario.path]
        self.requests = scenario.requests * scenario.draws
        self.block = scenario.block
        self.tokens = self.tensor([request.tokens for request in self.requests])
        rows = [row for request in self.requests for row in request.logits]
        self.logits = self.tensor(rows, torch.float32)
        self.prefixes = self.tensor([PREFIX] * len(self.requests))
        self.grammar = Grammar()
        allowed = _mask(scenario)
        self.mask = self.tensor(allowed * scenario.draws, torch.bool) if allowed else None
        releases.publish_server_args(
            {
                "device": self.device,
                "speculative_algorithm": scenario.algorithm,
                "speculative_num_draft_tokens": self.block,
                "speculative_accept_threshold_single": 1.0,
                "speculative_accept_threshold_acc": 1.0,
                "speculative_use_rejection_sampling": False,
                "enable_custom_logit_processor": False,
                "enable_deterministic_inference": False,
            }
        )
        self.sampling_info = _sampling_info(self)

    def tensor(self, values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """`values` where this path has its tensors."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def constrain(self) -> None:
        """Put the grammar's mask on the logits, as the workers of DFlash and DSpark do before they accept."""
        if self.mask is not None:
            self.grammar.apply_vocab_mask(self.logits, self.mask)


def emitted(scenario: VerifyScenario) -> tuple[tuple[Emitted, ...], ...]:
    """What each request emits: accept length, tokens and bonus, as the release's worker goes on with them."""
    torch.manual_seed(scenario.seed)
    with releases.as_cuda() if scenario.path == "cuda" else nullcontext():
        accepted = ACCEPT[scenario.algorithm](Batch(scenario))
    lengths, tokens, bonus = (part.tolist() for part in accepted)
    seen: list[Counter[tuple[int, tuple[int, ...], int]]] = [Counter() for _ in scenario.requests]
    for row, length in enumerate(lengths):
        seen[row % len(seen)][length, tuple(tokens[row][:length]), bonus[row]] += 1
    return tuple(tuple(Emitted(*what, count) for what, count in one.most_common()) for one in seen)


def _eagle(batch: Batch) -> Accepted:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode
    from sglang.srt.speculative.eagle_utils import eagle_sample

    forward = StandIn(
        device=batch.device,
        forward_mode=ForwardMode.TARGET_VERIFY,
        seq_lens=batch.prefixes,
        sampling_info=batch.sampling_info,
    )
    predict, accept_lens, accept_index = releases.call(
        eagle_sample,
        verify_input=_verify_input(batch),
        batch=forward,
        logits_output=StandIn(next_token_logits=batch.logits),
        vocab_mask=batch.mask,
        grammar_mask=None if batch.mask is None else releases.grammar_mask(batch.grammar, batch.mask),
    )
    tokens = predict[accept_index.to(torch.int64)]
    last = (accept_lens.to(torch.int64) - 1)[:, None]
    return Accepted(accept_lens, tokens, tokens.gather(1, last)[:, 0])


def _verify_input(batch: Batch) -> Any:
    from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
    from sglang.srt.speculative.eagle_info import EagleVerifyInput
    from sglang.srt.speculative.ngram_info import NgramVerifyInput

    requests, block = batch.requests, batch.block
    links = [_links(request) for request in requests]
    families = [len(request.children(node)) for request in requests for node in range(block)]
    nodes = len(requests) * block
    return releases.call(
        NgramVerifyInput if batch.scenario.algorithm == "NGRAM" else EagleVerifyInput,
        draft_token=batch.tokens.flatten(),
        custom_mask=None,
        positions=batch.tensor([0] * nodes),
        retrieve_index=batch.tensor(range(nodes)).view(-1, block),
        retrieve_next_token=batch.tensor([first for first, _ in links]),
        retrieve_next_sibling=batch.tensor([following for _, following in links]),
        retrieve_cum_len=None,
        spec_steps=max(request.depth() for request in requests) - 1,
        topk=max(families),
        draft_token_num=block,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        seq_lens_sum=0,
        seq_lens_cpu=None,
        grammar=batch.grammar,
        new_seq_lens=batch.prefixes,
    )


def _links(request: VerifyRequest) -> tuple[list[int], list[int]]:
    """The first child of each node, and the next child of its parent; -1 where there is none."""
    nodes = range(len(request.tokens))
    families = [request.children(node) for node in nodes]
    following = dict(pair for family in families for pair in pairwise(family))
    return [(*family, NO_NODE)[0] for family in families], [following.get(node, NO_NODE) for node in nodes]


def _dflash(batch: Batch) -> Accepted:
    from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2

    worker = _marked(
        DFlashWorkerV2,
        block_size=batch.block,
        device=batch.device,
        _selector_sample=None,
        _tp_sync=StandIn(sync=lambda site, tensor: None),
        # The constructor: Triton where there is a GPU.
        _use_triton_accept_bonus=batch.scenario.path == "cuda",
        _accept_bonus_buffer_cap=0,
        _accept_bonus_buffer_slot=0,
    )
    batch.constrain()
    _, commit_lens, bonus, out_tokens = releases.dflash_accept(
        worker,
        candidates=batch.tokens,
        next_token_logits=batch.logits,
        sampling_info=batch.sampling_info,
        draft_input=_draft_input(batch),
        prefix_lens=batch.prefixes,
        bs=len(batch.requests),
        device=batch.device,
    )
    if batch.scenario.path == "cuda" and not worker._use_triton_accept_bonus:
        raise RuntimeError("the worker fell back from Triton to torch, so that Triton was not tried")
    return Accepted(commit_lens, out_tokens, bonus)


def _dspark(batch: Batch) -> Accepted:
    from sglang.srt.speculative.dspark_components.dspark_draft import DraftBlockResult
    from sglang.srt.speculative.dspark_components.dspark_verify import TargetVerifyExecutor

    gamma = batch.block - 1
    executor = _marked(
        TargetVerifyExecutor,
        gamma=gamma,
        verify_num_draft_tokens=batch.block,
        _simulate_acc_len=0,
        _simulated_correct_len=None,
        _fused_argmax=False,
        _target_is_dsv41=False,
        _block_verification=False,
        _rejection_noise=None,
        _tp_sync=StandIn(sync=lambda site, tensor: None),
    )
    drafted = batch.tokens[:, 1:].contiguous()
    draft_logits = [request.draft_logits for request in batch.requests]
    block = releases.call(
        DraftBlockResult,
        draft_tokens=drafted,
        corrected_logits=batch.tensor(draft_logits, torch.float32) if batch.scenario.sampled else None,
        greedy_mask=batch.tensor([not request.sampled for request in batch.requests], torch.bool),
        temperatures=batch.sampling_info.temperatures.view(-1),
        greedy_draft=False,
    )
    batch.constrain()
    accepted = releases.call(
        executor.accept_and_finalize,
        folded_accept=False,
        bs=len(batch.requests),
        verify_ids_2d=batch.tokens,
        target_logits=batch.logits,
        draft_block=block,
        sampling_info=batch.sampling_info,
        draft_input=_draft_input(batch),
        layout=None,
        prefix_lens=batch.prefixes,
        draft_tokens=drafted,
    )
    return Accepted(accepted.commit_lens, accepted.out_tokens, accepted.bonus)


ACCEPT: dict[str, Callable[[Batch], Accepted]] = {
    "EAGLE": _eagle,
    "NGRAM": _eagle,
    "DFLASH": _dflash,
    "DSPARK": _dspark,
}


def _marked(kind: type, **attributes: Any) -> Any:
    """An object of sglang's `kind` that was never constructed: what it lacks is a gap of the driver (`is_gap`)."""
    made: Any = object.__new__(kind)
    made.stands_in = True
    for name, value in attributes.items():
        if not hasattr(kind, name):  # what is a method in some releases is an attribute in others
            setattr(made, name, value)
    return made


def _mask(scenario: VerifyScenario) -> list[list[bool]]:
    """A row for each node of each request, true where a token is allowed; empty without any grammar."""
    if not any(request.allowed for request in scenario.requests):
        return []
    everything = range(scenario.vocabulary)
    allowed = [row for request in scenario.requests for row in request.allowed or (everything,) * scenario.block]
    return [[token in row for token in everything] for row in allowed]


def _sampling_info(batch: Batch) -> Any:
    """The release's own, of the requests' parameters as the scheduler has them."""
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    others = {"custom_logit_processor": None, "return_sampling_mask": False, "sampling_logprobs_mode": ""}
    requests = [StandIn(sampling_params=_parameters(request), **others) for request in batch.requests]
    scheduled = StandIn(reqs=requests, device=batch.device)
    return SamplingBatchInfo.from_schedule_batch(scheduled, batch.scenario.vocabulary)


def _parameters(request: VerifyRequest) -> Any:
    from sglang.srt.sampling.sampling_params import SamplingParams

    return SamplingParams(temperature=request.temperature, top_k=request.top_k or -1, top_p=request.top_p)


def _draft_input(batch: Batch) -> StandIn:
    """What `prepare_for_decode` of the draft input notes of the batch's top_k (`dflash_info_v2.py`)."""
    top_ks = [_parameters(request).top_k for request in batch.requests]
    return StandIn(max_top_k=max(top_ks), uniform_top_k_value=top_ks[0] if len(set(top_ks)) == 1 else None)
