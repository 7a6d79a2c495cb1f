"""A policy's plan for a run, what it was made from, and what is said of one that cannot be carried out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.core.policy import Policy
from experiments.core.precision import default_precision, dtype_for
from experiments.core.progress import Progress, part
from experiments.core.reading import refusal
from experiments.core.spec import Result, RunSpec
from experiments.hardware import Hardware, NodeGroup, resolve
from experiments.parallel.interface import (
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    model_estimate,
)
from experiments.parallel.planning.settings import Settled, settle
from experiments.parallel.simulator import evaluate
from experiments.sources import Loaded, layers_of, repeatable
from experiments.workloads.layers import LayerGraph
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer_layers import CAPTURED, OPERATORS


@dataclass(frozen=True)
class Placed:
    """A policy's plan with its open knobs settled, and what it was made from."""

    settled: Settled
    estimate: PlanningEstimate
    loaded: Loaded

    @property
    def plan(self) -> ParallelPlan:
        return self.settled.plan


def place(spec: RunSpec, policy: Policy, progress: Progress) -> Placed:
    """The plan of ``spec`` without carrying it out."""
    placer = cast(ParallelPolicy, policy)
    cluster = _cluster(spec, placer)
    layers = placer.layers if spec.mode == "simulated" or placer.layers == OPERATORS else CAPTURED
    workload = spec.workload if spec.mode == "simulated" else repeatable(spec.workload)
    model, loaded = layers_of(workload, cluster.device, part(progress, 0.0, 0.8), layers)
    options = workload.options
    estimate = model_estimate(
        model,
        cluster,
        evaluate,
        options.dtype,
        options.optimizer,
        spec.seed,
        part(progress, 0.8, 1.0),
        _precision(placer, spec, model, loaded),
    )
    settled = settle(placer, model, cluster, options.batch or model.batch, estimate)
    progress(1.0, "placed")
    return Placed(settled, estimate, loaded)


def _precision(policy: ParallelPolicy, spec: RunSpec, model: LayerGraph, loaded: Loaded) -> str | None:
    """What the step keeps for each parameter: as asked for, as a stored step was captured, or as the policy's
    system trains.
    """
    options = spec.workload.options
    stored = None if isinstance(loaded.value, ModelSource) else model.facts.get("precision")
    usual = dtype_for(options.dtype, options.precision, str(model.facts.get("dtype", "float32")))
    return options.precision or stored or default_precision(usual, policy.fp32_gradients)


def _cluster(spec: RunSpec, policy: ParallelPolicy) -> Hardware:
    hardware = resolve(spec.hardware)
    if spec.mode == "simulated":
        return hardware
    node = replace(hardware.node, device_count=cast(LivePolicy, policy).processes)
    return replace(hardware, groups=(NodeGroup(1, node),))


def source_of(spec: RunSpec, loaded: Loaded) -> ModelSource:
    """The model to build; ``BadInput`` for what is no model or cannot be divided."""
    if not isinstance(loaded.value, ModelSource):
        raise refusal(loaded.kind, ("model",), spec.workload.source)
    if loaded.value.program is not None:
        what = "an exported graph is planned for one batch and runs whole: it cannot be split over processes"
        raise BadInput(what, spec.workload.source, "a model of the zoo or a configuration, or mode simulated")
    return loaded.value


def rejection(faults: Sequence[str], plan: ParallelPlan | None = None) -> Result:
    """The result of a plan that cannot be carried out: its first fault is the reason."""
    return Result.from_violations(faults, _document(plan) if plan else {})


def _document(plan: ParallelPlan) -> dict[str, Any]:
    """The plan as it is kept; nothing where its fault is a number that no document holds."""
    document = plan.to_json()
    try:
        jsonio.canonical(document)
    except ValueError:
        return {}
    return document
