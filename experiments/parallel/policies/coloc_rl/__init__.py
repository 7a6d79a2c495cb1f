"""ColocRL (Mirhoseini et al., ICML'17): which device computes which part of a model, learned by trying.

Followed: groups of layers, a placement drawn group by group with the choices before it in sight, REINFORCE on
the square root of the step's time with a moving average as baseline, a constant cost for what does not fit
which is ignored in the second half, the fastest placement seen as the result. The step's time comes from our
simulator.

Left open by the paper: grouping beyond colocation (neighboring layers that take least time are merged); the
size of the network. Not reproduced: the attentional sequence-to-sequence network (``placer`` is linear in its
features, with a weight for each group and device), operations finer than a layer, and several controllers
that share parameters. Random placements with the same budget, one device and the best contiguous cut stand in
the notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate, balanced_cut
from experiments.parallel.policies.coloc_rl.assignment import assigned_plan, merge_layers
from experiments.parallel.policies.coloc_rl.placer import Groups, Placement, Placer, train
from experiments.workloads.layers import LayerGraph

#: What a placement that does not fit costs, in square roots of the serial step.
UNFIT = 10.0


@dataclass(frozen=True)
class ColocRl(ParallelPolicy):
    """A device for each group of layers, by a placer that learns from simulated steps."""

    name: ClassVar[str] = "coloc_rl"
    mechanism: ClassVar[str] = "searched layouts"
    keeps_whole: ClassVar[str] = "a device runs its layers for the whole batch at once"
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"updates": 4, "samples": 3}

    groups: int = knob(24, "groups of layers that are placed, at most", low=1, high=512)
    updates: int = knob(60, "updates of the placer", low=1, high=10_000)
    samples: int = knob(8, "placements tried for each update", low=1, high=256)
    rate: float = knob(0.1, "step of an update (Adam)", low=1e-4, high=1.0)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        trials = _Trials(self._ends(model, estimate), batch, estimate)
        random = np.random.default_rng(estimate.seed)
        placer = Placer(trials.groups(model), cluster.device_count, random, self.rate)
        serial = float(estimate.layer_seconds.sum()) * batch
        found = train(
            placer,
            trials.seconds,
            self.updates,
            self.samples,
            UNFIT * serial**0.5,
            lambda update: estimate.progress((update + 1) / self.updates, f"update {update + 1}"),
        )
        if found.placement is None:
            what = f"none of {self.updates * self.samples} placements fitted the devices"
            raise Infeasible(what, model.name)
        plan = trials.plan(found.placement)
        notes = {
            "predicted_step_time": found.seconds,
            "placement": list(found.placement),
            "probability": placer.probability(found.placement),
            "curve": list(found.curve),
            **self._others(trials, cluster.device_count, random),
        }
        return replace(plan, synchronization=self.sync(), notes=notes)

    def _ends(self, model: LayerGraph, estimate: PlanningEstimate) -> list[int]:
        return merge_layers(estimate.layer_seconds.tolist(), self.groups)

    def _others(self, trials: _Trials, devices: int, random: np.random.Generator) -> dict[str, float | None]:
        """Seconds of what needs no learning; ``None`` where nothing of the kind fits."""
        drawn = random.integers(devices, size=(self.updates * self.samples, len(trials.ends)))
        tried = [trials.seconds(tuple(row)) for row in drawn.tolist()]
        return {
            "random_step_time": min((s for s in tried if s is not None), default=None),
            "one_device_step_time": trials.seconds((0,) * len(trials.ends)),
            "contiguous_step_time": trials.seconds(trials.contiguous(devices)),
            "trials": 2 * self.updates * self.samples,
            "distinct_trials": len(trials.known),
        }


class _Trials:
    """Simulated steps of placements, each once."""

    def __init__(self, ends: Sequence[int], batch: int, estimate: PlanningEstimate) -> None:
        self.ends, self.batch, self.estimate = ends, batch, estimate
        self.known: dict[Placement, float | None] = {}

    def plan(self, placement: Placement) -> ParallelPlan:
        return assigned_plan(self.ends, placement, self.batch)

    def seconds(self, placement: Placement) -> float | None:
        """Of the step; ``None`` where it does not fit."""
        if placement not in self.known:
            try:
                self.known[placement] = self.estimate.evaluate(self.plan(placement)).step_time
            except Infeasible:
                self.known[placement] = None
        return self.known[placement]

    def groups(self, model: LayerGraph) -> Groups:
        group_of = np.searchsorted(self.ends, np.arange(len(model)), side="right").tolist()
        reads: list[dict[int, float]] = [{} for _ in self.ends]
        for layer, sources in enumerate(model.predecessors.lists()):
            for source in sources:
                if group_of[source] != group_of[layer]:
                    reads[group_of[layer]][group_of[source]] = float(model.output_bytes[source])
        costs = np.add.reduceat(self.estimate.layer_seconds, [0, *self.ends[:-1]])
        return Groups(costs.tolist(), [sorted(row.items()) for row in reads])

    def contiguous(self, devices: int) -> Placement:
        """The fastest cut into one run of groups for each device: what an expert would do first."""
        costs = np.add.reduceat(self.estimate.layer_seconds, [0, *self.ends[:-1]]).tolist()
        bounds = balanced_cut(costs, min(devices, len(costs)), self.estimate.model.name)
        return tuple(device for device, (begin, end) in enumerate(bounds) for _ in range(begin, end))
