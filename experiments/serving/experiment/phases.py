"""Carries out a run with instances for prompts and for answers: what was tried, and what came out."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.errors import BadInput, ImpossiblePlan, Infeasible
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware, resolve
from experiments.models.served import ServedModel
from experiments.serving.experiment.batching import model_of, plan_json, slots_on
from experiments.serving.experiment.context import fit_to_context
from experiments.serving.experiment.prices import measured_shapes, price_of
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    Arrangement,
    Instance,
    InstanceShape,
    PhasePlan,
    PhasePolicy,
    Site,
    Trial,
    instance_fault,
    phase_violations,
)
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.simulator import LatencyObjective
from experiments.serving.simulator.phases import (
    Fabric,
    InstanceEngine,
    phase_curves,
    phase_figures,
    simulate_phases,
)
from experiments.sources import requests_of
from experiments.workloads.ragged import Ints
from experiments.workloads.requests import RequestTrace

#: Requests that are drawn for a trial: so many for each instance, within these bounds.
PER_INSTANCE, FEWEST, MOST = 64, 128, 2048
#: Tokens of a batch of prompts by which the bound of an instance for prompts is known.
BATCH_TOKENS = 8192
#: What is added to a run's seed for the requests of trials.
SAMPLE_SEED = 1_000_003
#: Where no objective is told, trials ask for this many times the time that a mean request needs alone.
SLO_SCALE = 5.0
ROWS = 4000


def serve_phases(spec: RunSpec, policy: PhasePolicy, progress: Progress) -> Result:
    """Arrange ``policy``'s instances, then simulate them on the request trace of ``spec``."""
    whole, loaded = requests_of(spec.workload, spec.seed)
    options = spec.workload.options
    hardware = resolve(spec.hardware)
    if len(hardware.groups) > 1:
        raise BadInput(f"{hardware.name} mixes nodes", "spec.hardware", "equal nodes")
    trace, cut = fit_to_context(whole, model_of(options).context, policy.truncate)
    cluster = PhaseCluster(policy, model_of(options), hardware, options.dtype or "float16", trace.profiles)
    trials = _Trials(cluster, trace, spec.seed, part(progress, 0.02, 0.5))
    arrangement = policy.arrange(_site(cluster, trace, trials))
    if fault := instance_fault(arrangement.instances, hardware.device_count, hardware.node.device_count):
        raise ImpossiblePlan([fault])
    plan = cluster.serve(arrangement.instances, trace, progress=part(progress, 0.5, 0.95))
    document = _plan_json(plan, trace, arrangement)
    if faults := phase_violations(plan, trace):
        return Result.from_violations(faults, document, loaded.sha256)
    return Result(
        metrics=phase_figures(plan, trace, LatencyObjective(policy.slo_ttft, policy.slo_tpot)),
        series=phase_curves(plan, trace),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "warnings": [*hardware.warnings, *cut],
            "served": cluster.to_json() | trials.to_json(),
            "trace": {
                "format": loaded.format,
                "requests": len(trace),
                "assumed": list(loaded.assumed),
                "warnings": list(loaded.warnings),
            },
        },
    )


@dataclass(frozen=True)
class PhaseCluster:
    """A model on a cluster of equal nodes, served by instances of any shape that holds it."""

    policy: PhasePolicy
    model: ServedModel
    hardware: Hardware
    dtype: str
    profile: Any = None
    _engines: dict[InstanceShape, InstanceEngine] = field(default_factory=dict, repr=False)

    @property
    def kv_bytes(self) -> int:
        return self.model.kv_bytes_per_token(DTYPE_BYTES[self.dtype])

    def shapes(self, longest: int) -> tuple[InstanceShape, ...]:
        """Powers of two that divide the model and hold its weights with the KV of ``longest`` tokens."""
        found = measured_shapes(self.profile, self.model, self.hardware)
        options = self._powers() if found is None else found
        return tuple(shape for shape in options if self._holds(shape, longest))

    def _powers(self) -> list[InstanceShape]:
        per_node, devices = self.hardware.node.device_count, self.hardware.device_count
        tensors = [1 << power for power in range(per_node.bit_length()) if 1 << power <= per_node]
        return [
            InstanceShape(1 << power, tensor)
            for tensor in tensors
            for power in range((devices // tensor).bit_length())
            if self.model.heads % tensor == 0 and 1 << power <= self.model.layers
        ]

    def _holds(self, shape: InstanceShape, longest: int) -> bool:
        try:
            return self.engine(shape).blocks * self.policy.block_size > longest
        except Infeasible:
            return False

    def engine(self, shape: InstanceShape) -> InstanceEngine:
        if shape not in self._engines:
            memory, element = self.hardware.device.memory_bytes, DTYPE_BYTES[self.dtype]
            blocks = slots_on(self.model, memory, shape.devices, element) // self.policy.block_size
            price, _ = price_of(self.profile, self.model, self.hardware, self.dtype, shape)
            self._engines[shape] = InstanceEngine(price, blocks)
        return self._engines[shape]

    def serve(
        self,
        instances: Sequence[Instance],
        trace: RequestTrace,
        *,
        answers_only: bool = False,
        progress: Progress,
    ) -> PhasePlan:
        """Simulate ``instances`` under the requests of ``trace``."""
        node = self.hardware.node
        fabric = Fabric(node.link, self.hardware.network, node.device_count, self.kv_bytes, self.model.layers)
        return simulate_phases(
            trace,
            instances,
            self.policy.begin(instances),
            [self.engine(one.shape) for one in instances],
            fabric,
            block_size=self.policy.block_size,
            max_batch=self.policy.max_batch,
            context=self.model.context,
            answers_only=answers_only,
            progress=progress,
        )

    def to_json(self) -> dict[str, Any]:
        shape = next(iter(self._engines))
        _, told = price_of(self.profile, self.model, self.hardware, self.dtype, shape)
        return {
            "model": self.model.to_json(),
            "dtype": self.dtype,
            "block_size": self.policy.block_size,
            "blocks": {f"{p} x {t}": engine.blocks for (p, t), engine in self._engines.items()},
            **told,
        }


def _site(cluster: PhaseCluster, trace: RequestTrace, trials: _Trials) -> Site:
    hardware = cluster.hardware
    longest = int(np.minimum(trace.prompt, cluster.model.context).max())
    shapes = cluster.shapes(longest)
    if not shapes:
        # Says how much is missing on all devices; else the longest prompt is what does not fit.
        slots = slots_on(
            cluster.model, hardware.device.memory_bytes, hardware.device_count, DTYPE_BYTES[cluster.dtype]
        )
        what = f"no instance holds the weights and a prompt of {longest} tokens"
        raise Infeasible(what, f"model {cluster.model.name}", float(max(0, longest - slots)))
    span = float(trace.arrival[-1] - trace.arrival[0])
    rate = len(trace) / span if span else float(len(trace))
    return Site(hardware.node_count, hardware.node.device_count, shapes, rate, trials.carried, trials.try_out)


@dataclass
class _Trials:
    """Simulations of requests drawn from the trace's lengths, with Poisson arrivals at any rate."""

    cluster: PhaseCluster
    trace: RequestTrace
    seed: int
    progress: Progress
    count: int = 0

    def try_out(self, instances: Sequence[Instance], rate: float) -> Trial:
        self.count += 1
        # A search does not know how many it will ask for.
        self.progress(0.0, f"{self.count} simulations of arrangements")
        roles = {one.role for one in instances}
        sample = self._sample(min(MOST, max(FEWEST, PER_INSTANCE * len(instances))), rate, roles)
        plan = self.cluster.serve(instances, sample, answers_only=roles == {DECODE}, progress=lambda *_: None)
        wanted = self.objective
        objective = LatencyObjective(
            None if roles == {DECODE} else wanted.ttft, None if roles == {PREFILL} else wanted.tpot
        )
        found = phase_figures(plan, sample, objective)
        return Trial(found.get("slo_attainment", 0.0), found.get("latency_mean", float("inf")))

    def _sample(self, count: int, rate: float, roles: set[str]) -> RequestTrace:
        rng = np.random.default_rng(self.seed + SAMPLE_SEED)
        rows = self._servable[rng.integers(len(self._servable), size=count)]
        arrival = np.cumsum(rng.exponential(1.0, count)) / rate
        output = self.trace.output[rows]
        if roles == {PREFILL}:
            output = np.ones_like(output)
        return RequestTrace("trial", arrival - arrival[0], self.trace.prompt[rows], output, ("",) * count)

    @functools.cached_property
    def _servable(self) -> Ints:
        """Requests within the model's context: others are refused whatever the instances."""
        found = np.flatnonzero(self.trace.prompt <= self.cluster.model.context)
        return found if len(found) else np.arange(len(self.trace))

    def carried(self, instances: Sequence[Instance]) -> float:
        """The slower phase's requests a second, with every batch full of mean requests."""
        prompt = int(self.trace.prompt[self._servable].mean())
        output = float(self.trace.output[self._servable].mean())
        phases: dict[str, float] = {}
        for one in instances:
            of_one = (
                self._prompts_of(one, prompt)
                if one.role == PREFILL
                else self._answers_of(one, prompt, output)
            )
            phases[one.role] = phases.get(one.role, 0.0) + of_one
        return min(phases.values())

    def _prompts_of(self, instance: Instance, prompt: int) -> float:
        count = max(1, BATCH_TOKENS // prompt)
        return count / self._seconds(instance.shape, [Entry(place, prompt, 0) for place in range(count)])

    def _answers_of(self, instance: Instance, prompt: int, output: float) -> float:
        policy, shape = self.cluster.policy, instance.shape
        context = prompt + int(output / 2)
        fit = int(self.cluster.engine(shape).blocks * policy.block_size / (prompt + output / 2))
        count = max(1, min(policy.max_batch, fit) // shape.pipeline)
        entries = [Entry(place, 1, context) for place in range(count)]
        return count / self._seconds(shape, entries) / max(1.0, output - 1)

    def _seconds(self, shape: InstanceShape, entries: Sequence[Entry]) -> float:
        return float(self.cluster.engine(shape).price.seconds(StepLoad.of(entries))[0])

    @property
    def objective(self) -> LatencyObjective:
        """What is told, and for the rest a multiple of what a mean request takes alone."""
        policy = self.cluster.policy
        return LatencyObjective(policy.slo_ttft or self._alone(1), policy.slo_tpot or self._alone(0))

    def _alone(self, is_prompt: int) -> float:
        """On the least devices that hold the model."""
        mean = int(self.trace.prompt.mean())
        shape = min(self.cluster.shapes(0), key=lambda shape: (shape.devices, shape.pipeline))
        entry = Entry(0, mean, 0) if is_prompt else Entry(0, 1, mean)
        return SLO_SCALE * shape.pipeline * self._seconds(shape, [entry])

    def to_json(self) -> dict[str, Any]:
        if not self.count:
            return {}
        policy, objective = self.cluster.policy, self.objective
        names = {"slo_ttft": policy.slo_ttft, "slo_tpot": policy.slo_tpot}
        assumed = [name for name, value in names.items() if value is None]
        return {
            "simulations": self.count,
            "searched_for": {"slo_ttft": objective.ttft, "slo_tpot": objective.tpot, "assumed": assumed},
        }


def _plan_json(plan: PhasePlan, trace: RequestTrace, arrangement: Arrangement) -> dict[str, Any]:
    step = -(-len(plan.copies) // ROWS) or 1
    rows = [list(copy) for copy in plan.copies[::step]]
    stride = -(-len(plan.passes) // ROWS) or 1
    passes = [list(row) for row in sorted(plan.passes, key=lambda row: row.start)[::stride]]
    return {
        **arrangement.plan,
        **plan_json(plan.serving, trace),
        "instances": [one.to_json() for one in plan.instances],
        "copies": {
            "columns": ["request", "source", "goal", "bytes", "asked", "start", "end"],
            "rows": rows,
            "sampling": "every copy" if step == 1 else f"every {step}th of {len(plan.copies)} copies",
        },
        "passes": {
            "columns": ["instance", "start", "free", "end", "prefill", "decode", "steps", "used_blocks"],
            "rows": passes,
            "sampling": "every pass" if stride == 1 else f"every {stride}th of {len(plan.passes)} passes",
        },
    }
