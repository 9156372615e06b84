"""The driver: scenarios in, observations out, through a real CUDA backend of the sglang on sys.path."""

from collections import OrderedDict
from importlib import import_module
from typing import Any

import torch
from msgspec.structs import replace

from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.capability import missing
from harness.scenario.observation import Array, Fault, Observation, Seen
from harness.subject.ascend import reading, releases
from harness.subject.ascend.pools import Kinds, Pools
from harness.subject.ascend.unwatched import UnwatchedForward
from harness.subject.blame import out_of_memory, sglang_error, where
from harness.subject.cuda.backends import BACKENDS
from harness.subject.cuda.batch import CudaBatchBuilder
from harness.subject.cuda.captured import CudaExecutor
from harness.subject.cuda.stand_in import model_runner, server_args
from harness.subject.frames import Observe, Observed, SubjectInfo

#: Backends kept warm.
WARM_SESSIONS = 8


class Driver:
    """Runs attention scenarios in one process, on backends that are kept warm."""

    def __init__(self, info: SubjectInfo) -> None:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.info = info
        self.device = "cuda" if info.device.startswith("cuda:") else "cpu"
        self.parallel = releases.override_parallel(import_module(BACKENDS[info.kind].module))
        self.warm: OrderedDict[Any, Session] = OrderedDict()

    def observe(self, message: Observe) -> Observed:
        """One observation for each scenario."""
        return Observed(tuple(self._observe(scenario) for scenario in message.scenarios))

    def _observe(self, scenario: Scenario) -> Observation:
        if lacking := missing(scenario, self.info.capabilities):
            return Observation(fault=Fault("unsupported", f"this sglang has no {', '.join(sorted(lacking))}"))
        if not isinstance(scenario, MetadataScenario) or scenario.attention is None or scenario.target == "mla":
            return Observation(
                fault=Fault("unsupported", f"the subject {self.info.kind} runs attention with heads of keys only")
            )
        if scenario.target == "swa" and not BACKENDS[self.info.kind].windows:
            return Observation(fault=Fault("unsupported", f"the subject {self.info.kind} runs no window layers"))
        try:
            return Observation(self._session(scenario).run(scenario))
        except Exception as error:
            if out_of_memory(error):
                raise
            return Observation(fault=Fault("driver", f"{type(error).__name__}: {error} ({where(error)})"))

    def _session(self, scenario: MetadataScenario) -> "Session":
        assert scenario.attention is not None
        alike = replace(
            scenario, rounds=(), builds=1, step=0, buckets=(), attention=replace(scenario.attention, fill=0.0)
        )
        key = replace(alike, pool=replace(scenario.pool, page_stride=1, page_offset=0, shared_pages=0))
        if key in self.warm:
            self.warm.move_to_end(key)
        else:
            self.warm[key] = Session(scenario, self.info.kind, self.device, getattr(torch, self.info.dtype))
            while len(self.warm) > WARM_SESSIONS:
                self.warm.popitem(last=False)
        return self.warm[key]


class Session:
    """One backend over its pools."""

    def __init__(self, scenario: MetadataScenario, name: str, device: str, dtype: torch.dtype) -> None:
        self.kind = BACKENDS[name]
        self.builder = CudaBatchBuilder(device)
        arguments = server_args(scenario, device, name)
        self.pools = Pools(scenario, device, cuda_kinds, dtype)
        self.builder.translator = _translator(scenario, self.pools, device)
        algorithm = self.builder.algorithm(scenario.algorithm)
        context = self.kind.context(scenario)
        self.model_runner = model_runner(
            scenario, self.pools, arguments, algorithm, device, self.builder.translator, context, name
        )
        steps = scenario.draft_tokens - 1 if scenario.mode == "draft_decode" else 0
        self.backend = self.kind.make(self.model_runner, steps)
        self.forward = UnwatchedForward(scenario, self.pools, device)

    def run(self, scenario: MetadataScenario) -> tuple[Seen, ...]:
        """Build every round as often as the scenario says; what sglang raises is an observation."""
        self.pools.lay_out(scenario)
        executor: CudaExecutor | None = None
        if scenario.executor == "graph":
            try:
                self.forward.prepare(scenario, ())
                executor = CudaExecutor(scenario, self.backend, self.model_runner, self.builder, self.forward)
            except Exception as error:
                return (Seen(error=sglang_error(error)),) * (len(scenario.rounds) * scenario.builds)
        seen = tuple(
            self._round(scenario, requests, executor) for requests in scenario.rounds for _ in range(scenario.builds)
        )
        if executor is not None:
            executor.close()
        return seen

    def _round(self, scenario: MetadataScenario, requests: tuple[Request, ...], executor: CudaExecutor | None) -> Seen:
        batch = self.builder.build(scenario, requests, self.pools.req_to_token_pool.req_to_token)
        try:
            self.forward.prepare(scenario, requests)
            if executor is not None:
                made = executor.attention(scenario, requests, batch)
            else:
                self.backend.init_forward_metadata(batch.forward_batch)
                made = self.forward.eager(scenario, requests, self.backend, batch.forward_batch)
            output = reading.floats(made)
        except Exception as error:
            return Seen(changed=reading.changed_inputs(batch), error=sglang_error(error))
        return Seen(
            {"kv_lengths": self._lengths(scenario, len(requests))}, reading.changed_inputs(batch), output=output
        )

    def _lengths(self, scenario: MetadataScenario, requests: int) -> Array:
        """How many positions each request attends to."""
        backend = self.backend.attn_backends[scenario.step] if scenario.mode == "draft_decode" else self.backend
        return reading.pack(self.kind.lengths(backend.forward_metadata, requests))


def cuda_kinds() -> Kinds:
    """The classes of a GPU."""
    from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool

    return Kinds(MHATokenToKVPool, MLATokenToKVPool, PagedTokenToKVPoolAllocator)


def _translator(scenario: MetadataScenario, pools: Pools, device: str) -> Any:
    """The runner's translator of KV ids (from 0.5.19), or None."""
    try:
        from sglang.srt.mem_cache.kv_index_translator import KVIndexTranslator
    except ImportError:
        return None
    return releases.call(
        KVIndexTranslator,
        req_to_token=pools.req_to_token_pool.req_to_token,
        token_to_kv_pool_allocator=pools.allocator,
        token_to_kv_pool=pools.kv_pool,
        page_size=scenario.pool.page_size,
        device=device,
        is_draft_worker=scenario.mode in ("draft_block", "draft_decode", "draft_extend"),
    )
