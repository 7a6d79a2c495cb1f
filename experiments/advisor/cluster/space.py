"""Every plan of a transformer on a cluster in closed form: with the optimizer on devices and on hosts, and
with sequences divided where they are long.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from experiments.advisor.ask import Ask
from experiments.advisor.cluster.candidates import Candidate
from experiments.core.errors import BadInput
from experiments.core.precision import default_precision, dtype_for
from experiments.core.progress import Progress, part
from experiments.core.spec import Workload
from experiments.hardware import Hardware, resolve
from experiments.parallel.interface import PlanningEstimate, model_estimate
from experiments.parallel.planning.degrees.analytic import Analytic
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.degrees.search import (
    REASONS,
    EvaluatedPlans,
    evaluate_all,
    usable_layout,
)
from experiments.parallel.planning.transformers.plan import Degrees
from experiments.parallel.simulator import evaluate
from experiments.sources import layers_of
from experiments.workloads.step import Floats
from experiments.workloads.transformer_layers import OPERATORS

#: Tokens of a step by default, of all samples: that of Llama 2 (Touvron et al., 2023, section 2.2).
TOKENS = 4 * 2**20
#: A sequence is divided among devices only so far that each has as many tokens.
LEAST_TOKENS = 8192


@dataclass(frozen=True)
class Space:
    """All plans on ``nodes`` nodes of what is asked, with the figures of those that divide."""

    nodes: int
    batch: int
    estimate: PlanningEstimate
    found: EvaluatedPlans

    @property
    def cluster(self) -> Hardware:
        return self.estimate.cluster

    @property
    def devices(self) -> int:
        return self.cluster.device_count

    @functools.cached_property
    def places(self) -> list[int]:
        """The plans whose figures were computed."""
        return [int(place) for place in np.flatnonzero(np.isfinite(self.found.step_time))]

    @property
    def refused(self) -> dict[str, int]:
        """How many plans were refused by arithmetic alone, by reason."""
        counts = np.bincount(self.found.reason, minlength=len(REASONS))
        return {REASONS[place]: int(counts[place]) for place in range(1, len(REASONS)) if counts[place]}

    def candidate(self, place: int) -> Candidate:
        found = self.found
        figures = float(found.step_time[place]), float(found.peak_memory[place])
        return Candidate(found.plans.layout(place), self.nodes, self.devices, self.batch, *figures)

    def figures(self, layout: Degrees) -> tuple[float, float] | None:
        """Return seconds and bytes of one more plan; ``None`` where it does not divide."""
        if not usable_layout(layout, self.devices, self.batch):
            return None
        found = self._analytic.figures(Columns.of([layout], self.devices))
        return float(found.step_time[0]), float(found.peak_memory[0])

    @functools.cached_property
    def _analytic(self) -> Analytic:
        return Analytic(self.estimate, self.batch)


def resolve_workload(ask: Ask) -> Workload:
    """The workload with batch, sequence and precision spelled out, the same for every plan."""
    estimate = _estimate(ask.workload, ask.cluster, None)
    refuse_unknown_sizes(ask, estimate)
    options, devices = ask.workload.options, ask.cluster.device_count
    sequence = int(options.sequence or estimate.model.facts["sequence"])
    told = replace(
        options,
        batch=options.batch or max(TOKENS // sequence, devices),
        sequence=sequence,
        dtype=estimate.dtype,
        optimizer=options.optimizer or estimate.model.facts.get("optimizer"),
        precision=_precision(ask.workload, estimate),
    )
    return replace(ask.workload, options=told)


def _precision(workload: Workload, estimate: PlanningEstimate) -> str:
    """As asked, else with gradients in float32, as every system here can keep them: plans are compared."""
    options = workload.options
    dtype = dtype_for(options.dtype, options.precision, estimate.dtype)
    return options.precision or default_precision(dtype, fp32_gradients=True)


def _estimate(workload: Workload, cluster: Hardware, precision: str | None) -> PlanningEstimate:
    model, _ = layers_of(workload, cluster.device, granularity=OPERATORS)
    options = workload.options
    return model_estimate(model, cluster, evaluate, options.dtype, options.optimizer, precision=precision)


def spaces(ask: Ask, workload: Workload, progress: Progress) -> Iterator[Space]:
    """Yield all plans on all nodes first, then on fewer: half of them, and for the price ever fewer."""
    counts = _node_counts(ask)
    for number, nodes in enumerate(counts):
        share = part(progress, number / len(counts), (number + 1) / len(counts))
        cluster = resolve(ask.with_nodes(nodes)) if len(counts) > 1 else ask.cluster
        estimate = replace(_estimate(workload, cluster, workload.options.precision), progress=share)
        batch = int(workload.options.batch or 1)
        tables = [evaluate_all(estimate, batch, fixed) for fixed in _list_fixed(estimate)]
        yield Space(nodes, batch, estimate, _on_hosts_that_hold_it(estimate, _join(tables)))


def _node_counts(ask: Ask) -> list[int]:
    nodes = ask.cluster.node_count
    can_be_fewer = len(ask.cluster.groups) == 1 and ask.with_nodes(1) != ask.hardware
    if nodes == 1 or not can_be_fewer:
        return [nodes]
    halves = [nodes]
    while halves[-1] % 2 == 0 and (ask.goal == "cost" or len(halves) == 1):
        halves.append(halves[-1] // 2)
    return halves


def _list_fixed(estimate: PlanningEstimate) -> Iterator[Degrees]:
    """What a table of plans shares: devices that share a sequence, and where the optimizer is."""
    sequence = int(estimate.model.facts.get("sequence") or 0)
    context, devices = 1, estimate.cluster.device_count
    while context == 1 or (sequence // context >= LEAST_TOKENS and devices % context == 0):
        plain = Degrees(context=context, overlap_gradients=True)
        yield plain
        yield replace(plain, host_optimizer=True)
        context *= 2


def _join(tables: list[EvaluatedPlans]) -> EvaluatedPlans:
    columns = {
        one.name: np.concatenate([getattr(table.plans, one.name) for table in tables])
        for one in fields(Columns)
    }
    rest = ("reason", "step_time", "peak_memory")
    joined = {name: np.concatenate([getattr(table, name) for table in tables]) for name in rest}
    return EvaluatedPlans(Columns(**columns), **joined)


def _on_hosts_that_hold_it(estimate: PlanningEstimate, found: EvaluatedPlans) -> EvaluatedPlans:
    """Without plans whose hosts lack memory for the optimizer's state, or hold all of it for every device."""
    states, cluster = estimate.states, estimate.cluster
    total = float(estimate.layer_parameters.sum()) * states.optimizer / cluster.node_count
    fits = total <= cluster.node.host.memory_bytes
    kept = (found.plans.host == 0) | (fits & (found.plans.zero > 0))
    time: Floats = np.where(kept, found.step_time, np.inf)
    return replace(found, step_time=time)


def refuse_unknown_sizes(ask: Ask, estimate: PlanningEstimate) -> None:
    """Raise ``BadInput`` for a model that is not known by its sizes."""
    if estimate.model.transformer is None:
        wanted = "a decoder-only transformer's configuration or sheet for several devices, or one device"
        raise BadInput("is not known by its sizes", ask.workload.source, wanted)
