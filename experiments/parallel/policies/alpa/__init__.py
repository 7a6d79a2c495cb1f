"""Alpa (Zheng et al., OSDI'22): pipeline stages by dynamic programming, inside them operators by an integer
program.

Followed: section 4 (strategies of every operator on the logical mesh, resharding matrices, one-hot program
with linearized edges solved by HiGHS, memory alive at the fullest moment, light operators follow the operand
made last), section 5 (layers clustered to runs, submesh shapes that tile the cluster, stages by F(s, k, d)
under every bound t_max, 1F1B). As released: the achieved maximum in T = sum of t_i + (B - 1) max t_i, and
what a stage holds by the stages behind it.

Left open by the paper: costs come from the simulator's own collectives and roofline times instead of
profiles; equal layers are divided alike, and a stage takes over the division of a longer one with all its
operators (``shared``); a stage takes at least as long as its messages with the one before, unless
``transfers`` is off, as there; reduce-scatters (there a pass after the program) are choices of the program.
Its solver's time limit is one of branch-and-bound nodes here, so that a plan repeats; past it the best found,
or else a greedy choice, is used, and the notes say how often. Not reproduced: optimizer states divided by the
same pass, and machines of different kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from experiments.core.budget import ENDED_AT, caveat
from experiments.core.errors import Infeasible
from experiments.core.knobs import knob, open_knob
from experiments.core.policy import MINUTES
from experiments.core.time_limit import say_ended
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Sharding,
    Stage,
    Worker,
    whole_share,
)
from experiments.parallel.planning.meshes.mesh_plan import shardings
from experiments.parallel.planning.settings import accumulations
from experiments.parallel.planning.stages.one_by_one import replica_order
from experiments.parallel.planning.stages.stage_search import levels_of
from experiments.parallel.policies.alpa.stage_costs import OnMesh, StageCosts, tables
from experiments.parallel.policies.alpa.stage_program import (
    StageChoice,
    Stages,
    best_stages,
    cluster_operators,
    submeshes,
    tile_devices,
)
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats

#: What the notes say of the simulated step.
CARRIED = (
    "simulated: 1F1B with messages between stages on the way and gradients reduced during backward passes; "
    "the prediction "
    "is T = sum of t_i + (B - 1) max t_i, without the update; messages between stages bound a stage's time"
)

#: Micro-batches with which a plan is looked for first.
USUAL = 8


@dataclass(frozen=True)
class Alpa(ParallelPolicy):
    """Stages on submeshes by dynamic programming, every operator's division by an integer program."""

    name: ClassVar[str] = "alpa"
    mechanism: ClassVar[str] = "searched layouts"
    effort: ClassVar[str] = MINUTES
    quick: ClassVar[Mapping[str, Any]] = {"runs": 4}

    micro_batches: int | None = open_knob("micro-batches of a step", low=1, high=65536)
    runs: int = knob(12, "runs of layers between which stages are cut, at most", low=1, high=64)
    pipeline: bool = knob(True, "more than one stage is allowed")
    transfers: bool = knob(True, "messages between stages count in the search (left out in the paper)")
    shared: bool = knob(True, "stages take over the division of a longer one that has all their operators")
    scatter: bool = knob(True, "an all-reduce may be a reduce-scatter and a later all-gather")
    programs: int = knob(
        5000, "integer programs solved; stages after them are divided greedily", low=1, high=10**6
    )
    nodes: int = knob(2000, "branch-and-bound nodes of each integer program", low=1, high=10**6)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few micro-batches as fit, from eight on."""
        return accumulations(self, batch, USUAL)

    @property
    def _count(self) -> int:
        return self.micro_batches or USUAL

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        levels_of(cluster)  # refuses machines that differ
        samples = whole_share(batch, self._count, "samples", "knobs.micro_batches")
        ends = self._ends(model, estimate)
        costs = StageCosts(
            estimate,
            cluster,
            ends,
            samples,
            self._count,
            self.nodes,
            self.programs,
            self.shared,
            self.scatter,
        )
        choices = submeshes(cluster.node_count, cluster.node.device_count)
        if not self.pipeline:
            choices = choices[-1:]
        plans, seconds, fits = tables(costs, choices)
        if self.transfers:
            seconds = np.maximum(seconds, _arrivals(costs, cluster)[:, None, None])
        sizes = [nodes * each for nodes, each in choices]
        found = best_stages(seconds, fits, sizes, cluster.device_count, self._count)
        if found is None:
            raise Infeasible("no division into stages keeps every device within its memory", model.name)
        placed = [plans[stage.begin, stage.end - 1, stage.submesh] for stage in found.stages]
        notes = _notes(costs, found, placed, seconds)
        if costs.counts.greedy:
            notes |= caveat(self.programs, "integer programs", "programs")
        if costs.ended_for_time:
            told = f"{costs.programs} integer programs"
            notes[ENDED_AT] = say_ended(told, "programs", costs.programs)
        return self._plan(costs, found.stages, placed, tile_devices(found.stages, sizes), batch, notes)

    def _ends(self, model: LayerGraph, estimate: PlanningEstimate) -> list[int]:
        if not self.pipeline:
            return [len(model)]
        return cluster_operators(estimate.layer_seconds, _received_bytes(model), self.runs)

    def _plan(
        self,
        costs: StageCosts,
        stages: Sequence[StageChoice],
        placed: Sequence[OnMesh],
        devices: Sequence[range],
        batch: int,
        notes: dict[str, Any],
    ) -> ParallelPlan:
        workers, cut = [], list[Sharding]()
        for number, (stage, on) in enumerate(zip(stages, placed, strict=True)):
            held = min(len(stages) - number, self._count)
            order = replica_order(number, 0, 1, held, self._count)
            workers.append(Worker(tuple(devices[number]), order))
            cut += _shardings(costs, stage, on)
        spans = [costs.layers(stage.begin, stage.end) for stage in stages]
        return ParallelPlan(
            batch=batch,
            micro_batches=self._count,
            mesh=tuple((f"stage{n}", on.mesh.devices) for n, on in enumerate(placed)),
            stages=tuple(Stage(span.start, span.stop, (n,)) for n, span in enumerate(spans)),
            workers=tuple(workers),
            shardings=tuple(cut),
            synchronization=self.sync(),
            notes=notes,
        )


def _shardings(costs: StageCosts, stage: StageChoice, on: OnMesh) -> tuple[Sharding, ...]:
    """Of the stage's layers, its operators counted from its first."""
    span = costs.span(stage.begin, stage.end)
    own = costs.operators[span.start : span.stop]
    layers = costs.layers(stage.begin, stage.end)
    return shardings(own, on.solved.partitions, on.mesh, costs.samples, layers, costs.loss, span.start)


def _received_bytes(model: LayerGraph) -> Floats:
    """Bytes that a run beginning with each layer receives from those before it. Shape: (layers,)."""
    change = np.zeros(len(model) + 1)
    for source, readers in enumerate(model.predecessors.transposed(len(model)).lists()):
        if readers:
            change[source + 1] += model.output_bytes[source]
            change[max(readers) + 1] -= model.output_bytes[source]
    return np.cumsum(change)[:-1]


def _arrivals(costs: StageCosts, cluster: Hardware) -> Floats:
    """Seconds in which a stage that begins with each run receives its input and returns its gradient. Shape:
    (runs,).
    """
    model = costs.estimate.model
    link = cluster.network if cluster.node_count > 1 else cluster.node.link
    starts = [0, *costs.ends[:-1]]
    size = _received_bytes(model)[starts] * costs.samples / model.batch
    return np.where(size > 0, 2 * (link.latency + size / link.bandwidth), 0.0)


def _notes(costs: StageCosts, found: Stages, placed: Sequence[OnMesh], seconds: Floats) -> dict[str, Any]:
    """What the search predicts, in seconds, and what it did."""
    counts = costs.counts
    notes = {
        "predicted_step_time": found.seconds,
        "stage_times": [costs.seconds(on.solved) for on in placed],
        "gradient_times": [on.solved.figures.once for on in placed],
        "stage_meshes": [on.mesh.to_json() for on in placed],
        "one_stage_time": float(seconds[0, -1, -1]) * costs.steps
        if np.isfinite(seconds[0, -1, -1])
        else None,
        "programs": {name: count for name, count in asdict(counts).items() if count or name != "greedy"},
        "bounds_tried": found.bounds,
        "states": found.states,
        "simulation": CARRIED,
    }
    if counts.unproven:
        notes["fallback"] = f"{counts.unproven} of {counts.programs} programs ended at their nodes, unproven"
    return notes
