"""The driver: scenarios in, observations out, through the real backend of the sglang on sys.path."""

import logging
import os
import sys
from collections import OrderedDict
from functools import partial
from typing import Any

import torch
from msgspec.structs import replace

from harness.npu.synchronisation import counting
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario, VerifyScenario
from harness.scenario.capability import missing
from harness.scenario.observation import BadAccess, Fault, Observation, Seen
from harness.shadow.overhead import Overhead, measured
from harness.subject.ascend import gate, linear, masks, reading, releases, verify
from harness.subject.ascend.batch import Batch, BatchBuilder
from harness.subject.ascend.forward import Forward
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.replay import GraphExecutor
from harness.subject.ascend.stand_in import DEVICE, model_runner, server_args
from harness.subject.blame import DEVICE_LOST, out_of_memory, sglang_error, where
from harness.subject.device_driver import of_npu
from harness.subject.frames import Observe, Observed, SubjectInfo

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

    if device != "emulated":
        from harness.npu import real_operators

        real_operators.activate((torch_npu, torch.ops.npu, torch.ops.atb))
    if path and not os.path.realpath(ascend_backend.__file__).startswith(os.path.realpath(path)):
        raise ImportError(f"sglang came from {ascend_backend.__file__}, not from {path}")
    versions = {
        "python": sys.version.split()[0],
        "torch": str(torch.__version__),
        "torch_npu": "emulated" if device == "emulated" else str(torch_npu.__version__),
        "cann": "emulated" if device == "emulated" else os.environ.get("ASCEND_TOOLKIT_VERSION", "unknown"),
    }
    if device != "emulated":
        versions |= of_npu()
    return SubjectInfo("ascend", "", device, versions, releases.capabilities())


class Driver:
    """Runs scenarios in one process, on backends that are kept warm."""

    def __init__(self, info: SubjectInfo) -> None:
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.info = info
        from sglang.srt.hardware_backend.npu.attention import ascend_backend

        self.parallel = releases.override_parallel(ascend_backend)
        masks.make_once(ascend_backend.AscendAttnMaskBuilder)
        self.builder = BatchBuilder(DEVICE)
        self.never_built = releases.never_built()
        self.warm: OrderedDict[Any, Session] = OrderedDict()

    def observe(self, message: Observe) -> Observed:
        """One observation for each scenario, until one loses the device: whatever comes after it would fail, too."""
        observations, overhead = [], Overhead()
        for scenario in message.scenarios:
            observation, cost = measured(partial(self._observe, scenario))
            observations.append(observation)
            overhead += cost
            if DEVICE_LOST in "".join(seen.error for seen in observations[-1].seen):
                return Observed(tuple(observations), last=True, overhead=overhead)
        return Observed(tuple(observations), overhead=overhead)

    def _observe(self, scenario: Scenario) -> Observation:
        if lacking := missing(scenario, self.info.capabilities):
            return Observation(fault=Fault("unsupported", f"this sglang has no {', '.join(sorted(lacking))}"))
        try:
            if isinstance(scenario, GateScenario):
                return gate.ask(scenario)
            if isinstance(scenario, VerifyScenario):
                return _verified(scenario)
            assert isinstance(scenario, MetadataScenario)
            return Observation(self._session(scenario).run(scenario))
        except Exception as error:
            if out_of_memory(error):
                raise
            return Observation(fault=Fault("driver", f"{type(error).__name__}: {error} ({where(error)})"))

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
            scenario.host_view == "published",
            scenario.attention and replace(scenario.attention, fill=0.0),
        )
        if key in self.warm:
            self.warm.move_to_end(key)
        else:
            self.warm[key] = Session(scenario, self.builder, self.never_built)
            while len(self.warm) > 1 and sum(session.backends for session in self.warm.values()) > WARM_BACKENDS:
                self.warm.popitem(last=False)
        return self.warm[key]


class Session:
    """One backend over its pools."""

    def __init__(self, scenario: MetadataScenario, builder: BatchBuilder, never_built: tuple[str, ...]) -> None:
        from sglang.srt.hardware_backend.npu.attention.ascend_backend import (
            AscendAttnBackend,
            AscendAttnMultiStepDraftBackend,
        )

        self.builder = builder
        self.never_built = never_built if scenario.executor == "eager" else ()
        arguments = server_args(scenario)
        if scenario.attention is not None:
            os.environ["ASCEND_USE_FIA"] = str(int(scenario.attention.fia))
        _choose_layout(scenario)
        os.environ[releases.HOST_SWITCH] = str(int(scenario.host_view == "published"))
        self.pools = Pools(scenario, DEVICE)
        self.model_runner = model_runner(scenario, self.pools, arguments, builder.algorithm(scenario.algorithm))
        self.backends = 1
        if scenario.mode == "draft_decode":
            self.backends = steps = scenario.draft_tokens - 1
            self.backend = AscendAttnMultiStepDraftBackend(self.model_runner, 1, steps)
        else:
            self.backend = AscendAttnBackend(self.model_runner)
            if scenario.target == "gdn":
                self.backend = linear.wrapped(self.model_runner, self.backend)
        self.forward = Forward(scenario, self.pools, DEVICE) if scenario.attention is not None else None

    def run(self, scenario: MetadataScenario) -> tuple[Seen, ...]:
        """Build every round as often as the scenario says; what sglang raises is an observation."""
        _choose_layout(scenario)  # which another session may have changed
        self.pools.lay_out(scenario)
        req_to_token = self.pools.req_to_token_pool.req_to_token
        executor: GraphExecutor | None = None
        if scenario.executor == "graph":
            if scenario.target == "gdn":
                # Its lists for graphs only grow: a server makes them once, and every scenario is a server here.
                self.backend = linear.wrapped(self.model_runner, linear.unwrapped(self.backend))
            try:
                executor = GraphExecutor(scenario, self.backend, self.model_runner, self.builder, self.forward)
            except Exception as error:
                seen = Seen(error=sglang_error(error))
                return (seen,) * (len(scenario.rounds) * scenario.builds)
        results: list[Seen] = []
        for requests in scenario.rounds:
            batch: Batch | None = None
            for _ in range(scenario.builds):
                if results and DEVICE_LOST in results[-1].error:
                    # Not even a batch can be put on a lost device: the next build would fail as the last one did.
                    results.append(results[-1])
                    continue
                batch = batch or self.builder.build(scenario, requests, req_to_token)
                results.append(self._build(scenario, requests, batch, executor))
        if executor is not None:
            executor.close()
        return tuple(results)

    def _build(
        self,
        scenario: MetadataScenario,
        requests: tuple[Request, ...],
        batch: Batch,
        executor: GraphExecutor | None,
    ) -> Seen:
        made: torch.Tensor | None = None
        try:
            if self.forward is not None:
                self.forward.prepare(scenario, requests)
            with counting() as counter:
                if executor is None:
                    self.backend.init_forward_metadata(batch.forward_batch)
                    if self.forward is not None:
                        made = self.forward.eager(scenario, requests, self.backend, batch.forward_batch)
                elif self.forward is not None:
                    made = self.forward.watched(lambda: executor.attention(scenario, requests, batch))
                else:
                    executor.replay(batch)
            output = None if made is None else reading.floats(made)
        except Exception as error:
            message = sglang_error(error)
            changed = () if DEVICE_LOST in message else reading.changed_inputs(batch)
            return Seen(changed=changed, error=message, accesses=self._bad_accesses())
        host_lengths = executor.host_lengths if executor is not None else None
        seen = reading.seen(scenario, requests, batch, self._metadata(scenario), host_lengths)
        if scenario.target == "gdn":
            told = linear.told(scenario, self.backend)
            seen = replace(seen, fields=seen.fields | {name: reading.pack(value) for name, value in told.items()})
        return replace(
            seen,
            never_built=self.never_built,
            output=output,
            accesses=self._bad_accesses(),
            waits=reading.waits(counter),
        )

    def _bad_accesses(self) -> tuple[BadAccess, ...]:
        return self.forward.accesses if self.forward is not None else ()

    def _metadata(self, scenario: MetadataScenario) -> Any:
        backend = self.backend
        if scenario.mode == "draft_decode":
            backend = backend.attn_backends[scenario.step]
        if scenario.target == "gdn":
            backend = backend.full_attn_backend
        return backend.forward_metadata


def _verified(scenario: VerifyScenario) -> Observation:
    if kernel := scenario.needs_cuda:
        return Observation(fault=Fault("unsupported", f"{kernel} is compiled for CUDA, and runs on no other device"))
    try:
        return Observation(accepted=verify.emitted(scenario))
    except Exception as error:
        return Observation((Seen(error=sglang_error(error)),))


def _choose_layout(scenario: MetadataScenario) -> None:
    releases.choose_layout(scenario.attention is not None and scenario.attention.nz)
