"""Carries out a run of a policy for real: a GPT of the zoo serves the trace on this host.

Beside it stands what the simulator says, which knows the layer profile of this host that was measured before
the run, and nothing of the run itself. Both are the same engine: a pass is carried out by torch or priced.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.core.units import human
from experiments.hardware import Hardware, resolve
from experiments.models.served import ServedModel, served_model
from experiments.serving.experiment.batching import kv_slots, plan_json
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.paged import list_settled
from experiments.serving.experiment.rates import WHERE, goal_of, objective_of
from experiments.serving.interface import Engine, ServingPlan, ServingPolicy, violations
from experiments.serving.interface.executor import StepExecutor
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import curves, figures, simulate
from experiments.serving.simulator.paged import PagedEngine, simulate_paged
from experiments.serving.simulator.step_prices import ProfilePrice, StepCost
from experiments.sources import requests_of
from experiments.workloads.profiles.layer_times import LayerTimes
from experiments.workloads.requests import RequestTrace

#: The model of a measured run where none is named.
SMALL = "zoo:gpt2-mini"
#: Bytes of KV memory where no number of blocks is told, and the longest run in seconds.
KV_BYTES, MOST_SECONDS = 2e9, 1800.0
COMPARED = ("ttft", "tpot", "latency")


@dataclass(frozen=True)
class LiveHost:
    """A model that was built on a device of this host, and what its layers take."""

    model: Any
    served: ServedModel
    times: LayerTimes
    hardware: Hardware

    @property
    def price(self) -> ProfilePrice:
        return ProfilePrice(self.times, self.served)

    @property
    def token_bytes(self) -> int:
        """Keys and values of a token."""
        return self.served.kv_bytes_per_token(self.model.dtype.itemsize)

    @property
    def slots(self) -> int:
        """Tokens of KV memory: what fits next to the weights on a GPU, ``KV_BYTES`` on a processor."""
        if not self.model.on_cuda:
            return int(KV_BYTES / self.token_bytes)
        return kv_slots(self.served, self.hardware, self.model.dtype.itemsize)


def prepare(
    source: str, dtype: str, seed: int, longest: int, progress: Progress, device: str = "cpu"
) -> LiveHost:
    """Build the model and measure its layers up to ``longest`` tokens of a step or request."""
    live = importlib.import_module("experiments.serving.live")
    model = live.build(source, dtype, seed, device)
    hardware = resolve("local" if device == "cpu" else live.device_name(device))
    with live.one_thread():
        times = live.measure_layers(model, longest, run_steps, progress)
    return LiveHost(model, served_model(source), times, hardware)


def run_steps(trace: RequestTrace, policy: PagedPolicy, blocks: int, executor: StepExecutor) -> ServingPlan:
    """Serve ``trace`` by an executor's steps."""
    return PagedEngine(trace, policy, blocks, executor).run()


def serve_here(spec: RunSpec, policy: PagedPolicy | ServingPolicy, progress: Progress) -> Result:
    """Serve the request trace of ``spec`` on this host, on its GPU where it has one."""
    live = importlib.import_module("experiments.serving.live")
    whole, loaded = requests_of(spec.workload, spec.seed)
    if goal_of(policy).is_asked:
        where = WHERE if policy.slo_tbt_p99 is None else "knobs.slo_tbt_p99"
        raise BadInput("a search over rates is not measured", where, "empty, or a simulated run")
    if isinstance(policy, PagedPolicy) and policy.branches is not None:
        raise BadInput(
            "several answers to a prompt are not measured", "knobs.sequences", "1, or a simulated run"
        )
    options = spec.workload.options
    device = live.default_device()
    dtype = options.dtype or ("float32" if device == "cpu" else "bfloat16")
    model = options.model or SMALL
    trace, cut = fit_to_context(whole, served_model(model).context, policy.truncate)
    longest = int((trace.prompt + trace.output).max())
    host = prepare(model, dtype, spec.seed, longest, part(progress, 0.0, 0.1), device)
    result = serve_on(host, trace, loaded, spec, policy, part(progress, 0.1, 1.0))
    return dataclasses.replace(result, notes={**result.notes, "warnings": cut}) if cut else result


def serve_on(
    host: LiveHost,
    trace: RequestTrace,
    loaded: Any,
    spec: RunSpec,
    policy: PagedPolicy | ServingPolicy,
    progress: Progress,
) -> Result:
    """Simulate the run by what ``host`` was measured to be, then let it happen."""
    live = importlib.import_module("experiments.serving.live")
    trace = dataclasses.replace(trace, measured=None, profiles=None)
    way = _Paged(host, trace, policy) if isinstance(policy, PagedPolicy) else _Batched(host, trace, policy)
    predicted = way.predict(spec.seed)
    expected = figures(predicted, trace)
    _refuse_long(predicted)
    prompts = live.prompts_of(trace, host.model.vocabulary, spec.seed)
    with live.one_thread():
        plan = way.carry_out(prompts, progress)
    document = plan_json(plan, trace)
    if faults := violations(plan, trace, way.slots):
        return Result.from_violations(faults, document, loaded.sha256)
    seen = figures(plan, trace, objective_of(policy))
    swapped = {"swapped_bytes": _swapped(plan, host)} if plan.memory else {}
    return Result(
        metrics=seen | _errors(expected, seen) | swapped,
        series=curves(plan, trace),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "mode": "measured",
            "hardware": host.hardware.to_json(),
            "served": {
                "model": host.served.to_json(),
                "dtype": str(host.model.dtype).removeprefix("torch."),
                "tensor_parallel": 1,
                **way.told,
                "cost": "measured; the prediction by a layer profile of this host",
            },
            "predicted": {name: expected[name] for name in seen if name in expected},
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


class _Paged:
    """A policy over KV blocks; all requests together need ``blocks`` at most."""

    def __init__(self, host: LiveHost, trace: RequestTrace, policy: PagedPolicy) -> None:
        self.host, self.trace = host, trace
        self.policy = policy.settle(host.price, trace.prompt.tolist())
        size = policy.block_size
        wanted = int(np.sum(-(-(trace.prompt + trace.output) // size)))
        self.blocks = policy.blocks or max(1, min(wanted, host.slots // size))
        self.slots = self.blocks * size
        self.told = {"blocks": self.blocks, "block_size": size, **list_settled(policy, self.policy)}

    def predict(self, seed: int) -> ServingPlan:
        longest = self.host.model.positions
        blocks, price = self.blocks, self.host.price
        return simulate_paged(self.trace, self.policy, blocks, price, seed=seed, longest=longest)

    def carry_out(self, prompts: Sequence[Sequence[int]], progress: Progress) -> ServingPlan:
        live = importlib.import_module("experiments.serving.live")
        executor = live.TorchSteps(self.host.model, self.blocks, self.policy.block_size, prompts)
        return PagedEngine(self.trace, self.policy, self.blocks, executor, progress=progress).run()


class _Batched:
    """A policy that reserves slots, for all requests together at most.

    There is one stage, whose passes are priced by the layers as well.
    """

    def __init__(self, host: LiveHost, trace: RequestTrace, policy: ServingPolicy) -> None:
        self.host, self.trace, self.policy = host, trace, policy
        longest, positions = int((trace.prompt + trace.output).max()), host.model.positions
        if longest > positions:
            what = f"a request has {longest} tokens, the model has {positions} positions"
            raise BadInput(what, "spec.workload", "a limit on lengths, or a model of a longer context")
        most = len(trace) * int(trace.prompt.max() + trace.output.max())
        self.slots = min(host.slots, most)
        self.engine = Engine(StepCost(host.price), self.slots, int(trace.output.max()))
        self.told = {"kv_slots": self.slots, "max_output": self.engine.max_output, "stages": 1}

    def predict(self, seed: int) -> ServingPlan:
        return simulate(self.trace, self.engine, self.policy)

    def carry_out(self, prompts: Sequence[Sequence[int]], progress: Progress) -> ServingPlan:
        live = importlib.import_module("experiments.serving.live")
        executor = live.TorchBatches(self.trace, self.host.model, self.slots, prompts)
        return simulate(self.trace, self.engine, self.policy, progress, executor)


def _refuse_long(predicted: ServingPlan) -> None:
    seconds = max((row.end for row in predicted.iterations), default=0.0)
    if seconds > MOST_SECONDS:
        what = f"the trace would take {human(seconds, 's')} here"
        raise BadInput(what, "spec.workload", f"at most {MOST_SECONDS:g} s: a limit, or a smaller model")


def _errors(expected: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """The simulator's means over the measured ones, less 1."""
    names = [name for name in COMPARED if f"{name}_mean" in expected and seen.get(f"{name}_mean")]
    return {f"{name}_error": expected[f"{name}_mean"] / seen[f"{name}_mean"] - 1 for name in names}


def _swapped(plan: ServingPlan, host: LiveHost) -> float:
    return float(plan.memory.swapped_blocks * plan.memory.size * host.token_bytes) if plan.memory else 0.0
