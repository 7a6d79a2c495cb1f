"""DAPPLE (Fan et al., PPoPP'21): a synchronous pipeline of replicated stages with early backward passes.

Followed: section 4 (the estimate by the pivot stage, the search over layers, devices and three ways to take
devices), section 3 (early backward; K_s forwards at first, policy ``a``: one for each stage from s on, ``b``:
2 K_s - 1). What a replica holds is also bounded by the memory of its device (D in the paper).

Replicas of a stage slice every micro-batch. Data parallelism, in as few micro-batches as fit, overlaps the
sum of gradients with its last backward pass and is taken where no pipeline is estimated to be faster, or none
fits. The estimate is a lower bound of a pipeline's step and close for data parallelism; where ``judge`` says
``simulator``, not the paper's estimate, data parallelism is also taken where its simulated step is shorter.

Left open by the paper: how the states are pruned (the best way into each is kept, by the estimate of its
whole plan, so the result is no proven optimum), and how large graphs are searched (here cuts are tried
between at most ``blocks`` runs of layers of about equal time). A slice is a number of whole samples, so that
more replicas than samples are no faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from experiments.core.budget import Budget
from experiments.core.errors import Infeasible
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Stage,
    Worker,
    whole_share,
)
from experiments.parallel.planning.judges import COSTS, JUDGES, fits
from experiments.parallel.planning.settings import accumulations
from experiments.parallel.planning.stages.one_by_one import replica_order
from experiments.parallel.planning.stages.stage_search import levels_of
from experiments.parallel.policies.dapple.shared_micro_batches import by_samples, shared_ways
from experiments.parallel.policies.dapple.synchronous_search import (
    LayerBlocks,
    PlacedStage,
    SynchronousSearch,
    SynchronousSearchResult,
)
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats

#: Micro-batches with which a plan is looked for first.
USUAL = 8


@dataclass(frozen=True)
class Dapple(ParallelPolicy):
    """Stages, replicas and devices by dynamic programming over a pipeline's estimated step.

    With early backward passes.
    """

    name: ClassVar[str] = "dapple"
    mechanism: ClassVar[str] = "pipeline"
    retired: ClassVar[Mapping[str, str]] = {"simulated": 'judge: "simulator" where it was true, or "costs"'}

    micro_batches: int | None = open_knob("micro-batches of a step", low=1, high=65536)
    warm_up: str = knob(
        "auto",
        "forwards at first: one a stage behind (a), about twice as many (b), or what is faster when "
        "simulated",
        choices=("auto", "a", "b"),
    )
    judge: str = knob(
        COSTS, "what says whether data parallelism is faster: the estimate, or a step", choices=JUDGES
    )
    blocks: int = knob(16, "runs of layers between which stages are cut, at most", low=2, high=256)
    evaluations: int = knob(
        2_000_000, "plans that are compared before the best so far is taken", low=1, high=10**15
    )

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
        blocks = _blocks(model, estimate, samples / model.batch, self.blocks)
        accumulated = _fewest_micro_batches(estimate, cluster.device_count, batch, self._count)
        budget = Budget(self.evaluations, estimate.progress, "plans")
        found = SynchronousSearch(blocks, cluster, self._count, samples, accumulated, budget).run()
        plan = self._best_plan(found, blocks, batch, estimate, accumulated)
        return replace(plan, notes={**plan.notes, **budget.caveat("evaluations")})

    def _best_plan(
        self,
        found: SynchronousSearchResult,
        blocks: LayerBlocks,
        batch: int,
        estimate: PlanningEstimate,
        accumulated: int,
    ) -> ParallelPlan:
        """The pipeline that was found, with one of the warm-ups, or data parallelism."""
        by_pipeline = [
            self._plan(found, found.stages, blocks, batch, estimate, warm_up)
            for warm_up in (("a", "b") if self.warm_up == "auto" else (self.warm_up,))
        ]
        replicated = replace(self, micro_batches=accumulated)._plan(
            found, [found.data_parallel], blocks, batch, estimate, "a"
        )
        if len(found.stages) == 1:
            return replicated
        best = _fastest(by_pipeline, estimate)
        if self.judge == COSTS and fits(estimate, best):
            return best
        return _fastest([*by_pipeline, replicated], estimate)

    def _plan(
        self,
        found: SynchronousSearchResult,
        placed: Sequence[PlacedStage],
        blocks: LayerBlocks,
        batch: int,
        estimate: PlanningEstimate,
        warm_up: str,
    ) -> ParallelPlan:
        samples = batch // self._count
        spans = [range(blocks.ends[stage.begin], blocks.ends[stage.end]) for stage in placed]
        owners = [stage.devices for stage in placed]
        held = _warm_up_counts(_room(spans, owners, estimate, samples), self._count, warm_up)
        cut = [by_samples(estimate, span, samples, len(own)) for span, own in zip(spans, owners, strict=True)]
        return ParallelPlan(
            batch=batch,
            micro_batches=self._count,
            mesh=tuple((f"stage{number}", len(own)) for number, own in enumerate(owners)),
            stages=tuple(Stage(span.start, span.stop, (number,)) for number, span in enumerate(spans)),
            workers=tuple(
                Worker(own, replica_order(number, 0, 1, depth, self._count))
                for number, (own, depth) in enumerate(zip(owners, held, strict=True))
            ),
            shardings=tuple(itertools.chain.from_iterable(cut)),
            synchronization=self.sync(),
            notes=_notes(found, held),
        )


def _warm_up_counts(fitting: Sequence[int], micro_batches: int, warm_up: str) -> list[int]:
    """Micro-batches that each stage runs forward at first: no more than the one before it lets through, or
    both would never continue.
    """
    held: list[int] = []
    for stage, fit in enumerate(fitting):
        left = len(fitting) - stage
        wanted = left if warm_up == "a" else 2 * left - 1
        most = min(held[-1], micro_batches) if held else micro_batches
        held.append(min(wanted, max(1, fit), most))
    return held


def _fastest(plans: Sequence[ParallelPlan], estimate: PlanningEstimate) -> ParallelPlan:
    """By simulation, the first among equals; the first too where none fits."""

    def seconds(plan: ParallelPlan) -> float:
        try:
            return estimate.evaluate(plan).step_time
        except Infeasible:
            return float("inf")

    return min(plans, key=seconds)


def _blocks(model: LayerGraph, estimate: PlanningEstimate, scale: float, most: int) -> LayerBlocks:
    """Cut where the time passed reaches the next of ``most`` equal parts; every layer is a block if there are
    so few.
    """
    forward, backward = model.forward_seconds * scale, model.backward_seconds * scale
    ends = np.arange(len(model) + 1)
    if len(model) > most:
        passed = np.cumsum(forward + backward)
        parts = np.searchsorted(passed, np.linspace(0, passed[-1], most + 1)[1:-1]) + 1
        ends = np.unique([0, *parts, len(model)])
    gradient = estimate.layer_parameters * estimate.states.gradient

    def upto(column: Floats) -> Floats:
        return np.append(0.0, np.cumsum(column))[ends]

    return LayerBlocks(
        tuple(ends.tolist()), upto(forward), upto(backward), upto(gradient), _crossing(model)[ends] * scale
    )


def _crossing(model: LayerGraph) -> Floats:
    """Bytes of outputs of the layers before each border that a layer behind it reads. Shape:
    (layers + 1,).
    """
    change = np.zeros(len(model) + 2)
    for source, readers in enumerate(model.predecessors.transposed(len(model)).lists()):
        if readers:
            change[source + 1] += model.output_bytes[source]
            change[max(readers) + 1] -= model.output_bytes[source]
    return np.cumsum(change)[:-1]


def _room(
    spans: Sequence[range], owners: Sequence[Sequence[int]], estimate: PlanningEstimate, samples: int
) -> list[int]:
    """Micro-batches whose activations fit next to the model states of each stage; 0 where the states alone do
    not.
    """
    stash = estimate.model.stash_bytes / estimate.model.batch * samples
    found = []
    for span, own in zip(spans, owners, strict=True):
        memory = min(estimate.devices[device].memory_bytes for device in own)
        layers = slice(span.start, span.stop)
        free = memory - float(estimate.layer_parameters[layers].sum()) * estimate.states.total
        each = max(float(stash[layers].sum()) / shared_ways(samples, len(own)), 1.0)
        found.append(max(0, int(free // each)))
    return found


def _fewest_micro_batches(estimate: PlanningEstimate, devices: int, batch: int, most: int) -> int:
    """In which data parallelism over all devices fits; ``most`` where it does in none, and then it is
    infeasible.
    """
    everything = [range(len(estimate.model))]
    for count in range(1, most):
        if batch % count == 0 and _room(everything, [range(devices)], estimate, batch // count)[0]:
            return count
    return most


def _notes(found: SynchronousSearchResult, held: Sequence[int]) -> dict[str, object]:
    """What the search predicts, in seconds a step, and what it looked at."""
    return {
        "predicted_step_time": found.seconds,
        "data_parallel_time": found.data_parallel_seconds,
        "stages_found": len(found.stages),
        "states": found.states,
        "candidates": found.candidates,
        "warm_up": list(held),
    }
