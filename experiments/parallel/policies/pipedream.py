"""PipeDream (Narayanan et al., SOSP'19): stages by dynamic programming, replicas, 1F1B without flushes,
weight stashing.

Followed: section 3.1 (partitioning, level by level), 3.2 (NOAM, 1F1B-RR), 3.3 (weight stashing: as many
versions of a stage's weights as mini-batches it holds; ``vertical_sync``: every stage uses the version that
the first one used when the mini-batch entered, so that all keep as many as it does). ``stage_time=released``
is the rule of the released planner, which adds compute and synchronization where the paper takes the longer;
``transfers`` lets activations count, which that planner leaves out by default. A mini-batch is the ``batch``
of the run: each is an update of its own.

Left open by the paper: which of equally fast splits is taken (here the first that is found; the time is the
same). The planner may cut a branching graph anywhere, a plan's stage is a run of layers: where the best cut
is not one, the best among those is placed and both times are in the notes. ``replicate=false`` leaves the
program out: equal stages, one device each. Not simulated: that an update inside the window waits for its
all-reduce, which overlaps the passes that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.budget import ENDED_AT, Budget
from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Slot,
    Stage,
    Training,
    WeightRule,
    Worker,
    stage_bounds,
)
from experiments.parallel.interface.versions import with_versions
from experiments.parallel.planning.stages.cuts import Cuts, cuts_of
from experiments.parallel.planning.stages.one_by_one import in_flight, replica_order
from experiments.parallel.planning.stages.pipelines import shapes_of, window_plan
from experiments.parallel.planning.stages.stage_search import (
    ClusterLevel,
    StageSearchRules,
    StageSolution,
    data_parallel_seconds,
    levels_of,
    search,
)
from experiments.workloads.layers import LayerGraph

#: What the notes say of the simulated window.
CARRIED = (
    "simulated: a window of mini-batches from an empty pipeline to an empty pipeline, an all-reduce of "
    "every round, the "
    "time of every update, the memory of stashed weights; not simulated: that an update inside the window "
    "waits for its all-reduce"
)


@dataclass(frozen=True)
class PipeDream(LivePolicy, ParallelPolicy):
    """An asynchronous pipeline of replicated stages found by dynamic programming.

    It stashes weight versions.
    """

    name: ClassVar[str] = "pipedream"
    mechanism: ClassVar[str] = "asynchronous pipeline"
    keeps_whole: ClassVar[str] = "a mini-batch is an update and is not divided"

    mini_batches: int = knob(32, "mini-batches, each an update, in the simulated window", low=1, high=65536)
    stage_time: str = knob(
        "released",
        "compute plus synchronization (released) or the longer (paper)",
        choices=("released", "paper"),
    )
    transfers: bool = knob(True, "activations between stages count in the search")
    check_memory: bool = knob(
        False, "the search keeps to stages that fit a device with all that is in flight"
    )

    replicate: bool = knob(True, "stages and replicas by the search; false: equal stages, one device each")
    evaluations: int = knob(
        200_000_000_000, "splits that are compared before the best so far is taken", low=1, high=10**15
    )
    vertical_sync: bool = knob(False, "all stages use the version that the first one used")
    rate: float = knob(0.1, "learning rate (measured)", low=0.0, high=1e3)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if not self.replicate:
            return self._straight(model, cluster, batch, estimate)
        levels, rules = levels_of(cluster), self._rules(cluster)
        cuts = cuts_of(model, batch / model.batch)
        budget = Budget(self.evaluations, estimate.progress, "splits")
        ideal = search(cuts, levels, rules, budget)
        placed, kept = ideal, cuts
        if not all(cuts.ends[span.end] for _, spans in ideal.outer for span in spans):
            kept = cuts.placeable()
            placed = search(kept, levels, rules, budget)
        if not placed.outer:
            ended = budget.caveat("evaluations").get(ENDED_AT, "")
            what = "no split keeps every stage within a device's memory"
            raise Infeasible(f"{what}; {ended}" if ended else what, model.name)
        groups = _groups(placed, levels)
        found = notes(cuts, ideal, placed, levels, rules) | budget.caveat("evaluations")
        return self._plan(kept, placed, groups, batch, found)

    def _training(self) -> Training:
        return Training(Learning(rate=self.rate), WeightRule("vertical" if self.vertical_sync else "stash"))

    def _straight(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        bounds = stage_bounds(estimate, shapes_of(model, cluster, batch).depths()[-1])
        held = in_flight([1] * len(bounds))
        orders = [self._order(stage, 0, 1, depth) for stage, depth in enumerate(held)]
        return with_versions(window_plan(bounds, orders, cluster, batch, self.mini_batches, self._training()))

    def _rules(self, cluster: Hardware) -> StageSearchRules:
        memory = float(cluster.device.memory_bytes) if self.check_memory else None
        return StageSearchRules(self.stage_time == "released", self.transfers, memory)

    def _plan(
        self,
        cuts: Cuts,
        placed: StageSolution,
        groups: Sequence[Sequence[int]],
        batch: int,
        found: Mapping[str, Any],
    ) -> ParallelPlan:
        spans = [span for _, inner in placed.outer for span in inner]
        held = in_flight([len(group) for group in groups])
        stages: list[Stage] = []
        workers: list[Worker] = []
        for number, (span, group, depth) in enumerate(zip(spans, groups, held, strict=True)):
            orders = [self._order(number, r, len(group), depth) for r in range(len(group))]
            begin = cuts.ends[span.start] if span.start >= 0 else 0
            own = tuple(range(len(workers), len(workers) + len(group)))
            stages.append(Stage(begin, cuts.ends[span.end], own))
            workers += [Worker((device,), order) for device, order in zip(group, orders, strict=True)]
        plan = ParallelPlan(
            batch=batch * self.mini_batches,
            micro_batches=self.mini_batches,
            mesh=tuple((f"stage{number}", len(group)) for number, group in enumerate(groups)),
            stages=tuple(stages),
            workers=tuple(workers),
            synchronization=self.sync(),
            steps=self.mini_batches,
            notes=found,
            training=self._training(),
        )
        return with_versions(plan)

    def _order(self, stage: int, replica: int, replicas: int, held: int) -> tuple[Slot, ...]:
        return replica_order(stage, replica, replicas, held, self.mini_batches)


def _groups(placed: StageSolution, levels: Sequence[ClusterLevel]) -> list[list[int]]:
    """The devices of each stage: whole machines for the outer stages, in each of them neighbors for the
    inner ones.

    A stage's replicas are numbered machine by machine in turn, so that round robin keeps a mini-batch in its
    machine.
    """
    two = len(levels) == 2
    per_machine = levels[0].count if two else 1
    groups, machine = [], 0
    for outer, spans in placed.outer:
        firsts = [number * per_machine for number in range(machine, machine + outer.replicas)]
        local = 0
        for span in spans:
            width = span.replicas if two else 1
            groups.append([first + local + i for i in range(width) for first in firsts])
            local += width
        machine += outer.replicas
    return groups


def notes(
    cuts: Cuts,
    ideal: StageSolution,
    placed: StageSolution,
    levels: Sequence[ClusterLevel],
    rules: StageSearchRules,
) -> dict[str, Any]:
    """Return what the search predicts and what it looked at.

    Seconds for a mini-batch in steady state.
    """
    return {
        "pipeline_time": ideal.seconds,
        "placed_pipeline_time": placed.seconds,
        "data_parallel_time": data_parallel_seconds(cuts, levels, rules),
        "serial_time": float(cuts.seconds[-1]),
        "cuts": len(cuts),
        "candidates": ideal.candidates + (placed.candidates if placed is not ideal else 0),
        "levels": [{"count": level.count, "bandwidth": level.bandwidth} for level in levels],
        "simulation": CARRIED,
    }
