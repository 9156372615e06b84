"""The driver: scenarios in, observations out, through the real backend of the sglang on sys.path."""

import logging
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from msgspec.structs import replace

from harness.scenario import GateScenario, MetadataScenario, Request, Scenario
from harness.scenario.capability import missing
from harness.scenario.observation import Fault, Observation, Seen
from harness.subject.ascend import gate, reading, releases
from harness.subject.ascend.batch import Batch, BatchBuilder
from harness.subject.ascend.pools import DTYPE, Pools, model_config
from harness.subject.ascend.replay import GraphExecutor
from harness.subject.frames import Observe, SubjectInfo

DEVICE = "npu"
#: Backends kept warm; each holds about 12 MiB of masks, and a multi-step draft has one backend a step.
WARM_BACKENDS = 16


def prepare(path: str, device: str) -> SubjectInfo:
    """Import the sglang in `path`, with the NPU emulated for `device` `emulated`, and say what was found.

    Only imports: the device is not touched, so that the process can be forked afterwards.
    """
    logging.disable(logging.WARNING)
    if device == "emulated":
        from harness.npu import install

        install()
    import torch_npu
    from sglang.srt.hardware_backend.npu.attention import ascend_backend
    from sglang.srt.hardware_backend.npu.graph_runner import (  # noqa: F401
        eagle_draft_extend_npu_graph_runner,
        eagle_draft_npu_graph_runner,
        npu_graph_runner,
    )

    if path and not os.path.realpath(ascend_backend.__file__).startswith(os.path.realpath(path)):
        raise ImportError(f"sglang came from {ascend_backend.__file__}, not from {path}")
    versions = {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "torch_npu": "emulated" if device == "emulated" else str(torch_npu.__version__),
        "cann": "emulated" if device == "emulated" else os.environ.get("ASCEND_TOOLKIT_VERSION", "unknown"),
    }
    return SubjectInfo("ascend", "", device, versions, releases.capabilities())


class Driver:
    """Runs scenarios in one process; sglang's process-wide state is set per backend, before each use."""

    def __init__(self, info: SubjectInfo) -> None:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.info = info
        self.parallel = releases.override_parallel()
        self.builder = BatchBuilder(DEVICE)
        self.never_built = releases.never_built()
        self.warm: OrderedDict[Any, Session] = OrderedDict()

    def observe(self, message: Observe) -> tuple[Observation, ...]:
        """One observation for each scenario."""
        return tuple(self._observe(scenario) for scenario in message.scenarios)

    def _observe(self, scenario: Scenario) -> Observation:
        if lacking := missing(scenario, self.info.capabilities):
            return Observation(fault=Fault("unsupported", f"this sglang has no {', '.join(sorted(lacking))}"))
        try:
            if isinstance(scenario, GateScenario):
                return gate.ask(scenario)
            return Observation(self._session(scenario).run(scenario))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(last.filename)}:{last.lineno}"
            return Observation(fault=Fault("driver", f"{type(error).__name__}: {error} ({where})"))

    def _session(self, scenario: MetadataScenario) -> "Session":
        pool = scenario.pool
        key = (
            pool.page_size,
            pool.context_length,
            pool.rows,
            scenario.algorithm,
            scenario.executor,
            scenario.mode,
            scenario.draft_tokens,
            scenario.target,
            scenario.window,
        )
        if key in self.warm:
            self.warm.move_to_end(key)
        else:
            self.warm[key] = Session(scenario, self.builder, self.never_built)
            while len(self.warm) > 1 and sum(session.backends for session in self.warm.values()) > WARM_BACKENDS:
                self.warm.popitem(last=False)
        return self.warm[key]


class Session:
    """One backend over its pools, and the captured buckets of the last graph scenario."""

    def __init__(self, scenario: MetadataScenario, builder: BatchBuilder, never_built: tuple[str, ...]) -> None:
        from sglang.srt.hardware_backend.npu.attention.ascend_backend import (
            AscendAttnBackend,
            AscendAttnMultiStepDraftBackend,
        )

        self.builder = builder
        self.never_built = never_built if scenario.executor == "eager" else ()
        self.server_args = _server_args(scenario)
        self.pools = Pools(scenario, DEVICE)
        self.model_runner = _model_runner(scenario, self.pools, self.server_args, builder)
        self.backends = 1
        if scenario.mode == "draft_decode":
            self.backends = steps = scenario.draft_tokens - 1
            self.backend = AscendAttnMultiStepDraftBackend(self.model_runner, 1, steps)
        else:
            self.backend = AscendAttnBackend(self.model_runner)

    def run(self, scenario: MetadataScenario) -> tuple[Seen, ...]:
        """Build every round as often as the scenario says; what sglang raises is an observation."""
        self.pools.lay_out(scenario)
        req_to_token = self.pools.req_to_token_pool.req_to_token
        executor: GraphExecutor | None = None
        if scenario.executor == "graph":
            try:
                executor = GraphExecutor(scenario, self.backend, self.model_runner, self.builder)
            except Exception as error:
                seen = Seen(error=_sglang_error(error))
                return (seen,) * (len(scenario.rounds) * scenario.builds)
        results = []
        for requests in scenario.rounds:
            batch = self.builder.build(scenario, requests, req_to_token)
            for _ in range(scenario.builds):
                results.append(self._build(scenario, requests, batch, executor))
        return tuple(results)

    def _build(
        self,
        scenario: MetadataScenario,
        requests: tuple[Request, ...],
        batch: Batch,
        executor: GraphExecutor | None,
    ) -> Seen:
        build: Callable[[], list[list[int]] | None]
        if executor is None:
            build = lambda: self.backend.init_forward_metadata(batch.forward_batch)  # noqa: E731
        else:
            build = lambda: executor.replay(batch)  # noqa: E731
        try:
            host_lengths = build()
        except Exception as error:
            return Seen(changed=reading.changed_inputs(batch), error=_sglang_error(error))
        seen = reading.seen(scenario, requests, batch, self._metadata(scenario), host_lengths)
        return replace(seen, never_built=self.never_built)

    def _metadata(self, scenario: MetadataScenario) -> Any:
        backend = self.backend
        if scenario.mode == "draft_decode":
            backend = backend.attn_backends[scenario.step]
        return backend.forward_metadata


def _sglang_error(error: Exception) -> str:
    """What sglang raised, as an observation; an error of the driver's own making is raised again instead.

    It is the driver's where the last sglang frame asked a stand-in for something that it lacks, or where no frame of
    sglang is on the stack at all.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AttributeError) and isinstance(getattr(error, "obj", None), SimpleNamespace):
        raise error
    if not any(f"{os.sep}sglang{os.sep}" in frame.filename for frame in frames):
        raise error
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"


def _server_args(scenario: MetadataScenario) -> Any:
    """Server arguments as the named algorithm has them; a DSpark draft block is one shorter than the setting."""
    from harness.subject.ascend.releases import publish_server_args

    speculative = scenario.algorithm != "NONE"
    block = scenario.draft_tokens + (1 if (scenario.algorithm, scenario.mode) == ("DSPARK", "draft_block") else 0)
    return publish_server_args(
        {
            "device": DEVICE,
            "page_size": scenario.pool.page_size,
            "speculative_algorithm": scenario.algorithm if speculative else None,
            "speculative_num_draft_tokens": block if speculative else None,
            "dllm_algorithm": None,
        }
    )


def _model_runner(scenario: MetadataScenario, pools: Pools, server_args: Any, builder: BatchBuilder) -> Any:
    """A stand-in `ModelRunner`: the attributes that backend and graph runner read (0.5.15 to 0.5.23)."""
    return SimpleNamespace(
        device=DEVICE,
        page_size=scenario.pool.page_size,
        model_config=model_config(scenario),
        is_draft_worker=scenario.mode in ("draft_block", "draft_decode", "draft_extend"),
        dtype=DTYPE,
        kv_cache_dtype=DTYPE,
        req_to_token_pool=pools.req_to_token_pool,
        token_to_kv_pool=pools.kv_pool,
        token_to_kv_pool_allocator=pools.allocator,
        is_hybrid_swa=pools.hybrid,
        sliding_window_size=scenario.window or None,
        use_mla_backend=scenario.target == "mla",
        server_args=server_args,
        spec_algorithm=builder.algorithm(scenario.algorithm),
        ps=SimpleNamespace(attn_cp_size=1, attn_tp_size=1),
        attn_cp_size=1,
        attn_tp_size=1,
        tp_size=1,
    )
