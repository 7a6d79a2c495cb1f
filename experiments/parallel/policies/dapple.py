"""DAPPLE (Fan et al., PPoPP'21): a synchronous pipeline of replicated stages with early backward passes.

Followed: section 4 (the estimate by the pivot stage, the search over layers, devices and three ways to take devices),
section 3 (early backward; K_s forwards at first, policy ``a``: one for each stage from s on, ``b``: 2 K_s - 1). What a
replica holds is also bounded by the memory of its device (D in the paper).

Left open by the paper: how the states are pruned (the best way into each is kept, by the estimate of its whole plan, so
the result is no proven optimum), and how large graphs are searched (here cuts are tried between at most ``blocks`` runs of
layers of about equal time). Not reproduced: replicas that share one micro-batch by slicing it. The estimate counts them so;
in the plan replicas take whole micro-batches in turn, of equal throughput, so that its first micro-batches arrive later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Estimate,
    ParallelPlan,
    ParallelPolicy,
    Stage,
    Worker,
    whole_share,
)
from experiments.parallel.planning.stages.one_by_one import in_flight, replica_order
from experiments.parallel.planning.stages.stage_search import levels_of
from experiments.parallel.planning.stages.synchronous_search import Blocks, Found, Placed, SynchronousSearch
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats


@dataclass(frozen=True)
class Dapple(ParallelPolicy):
    """Stages, replicas and their devices by dynamic programming over a pipeline's estimated step; early backward."""

    name: ClassVar[str] = "dapple"

    micro_batches: int = knob(8, "micro-batches of a step", low=1, high=65536)
    warm_up: str = knob(
        "a", "forwards at first: one a stage behind (a), or about twice as many (b)", choices=("a", "b")
    )
    blocks: int = knob(16, "runs of layers between which stages are cut, at most", low=2, high=256)

    def place(self, model: LayerGraph, cluster: Hardware, batch: int, estimate: Estimate) -> ParallelPlan:
        levels_of(cluster)  # refuses machines that differ
        samples = whole_share(batch, self.micro_batches, "samples", "knobs.micro_batches")
        blocks = _blocks(model, estimate, samples / model.batch, self.blocks)
        found = SynchronousSearch(blocks, cluster, self.micro_batches).run()
        replicas = [len(stage.devices) for stage in found.stages]
        held = self._held(replicas, _room(found.stages, blocks, estimate, samples / model.batch))
        stages: list[Stage] = []
        workers: list[Worker] = []
        for number, (placed, depth) in enumerate(zip(found.stages, held, strict=True)):
            own = tuple(range(len(workers), len(workers) + len(placed.devices)))
            stages.append(Stage(blocks.ends[placed.begin], blocks.ends[placed.end], own))
            for replica, device in enumerate(placed.devices):
                order = replica_order(number, replica, len(own), depth, self.micro_batches)
                workers.append(Worker((device,), order))
        return ParallelPlan(
            batch=batch,
            micro_batches=self.micro_batches,
            mesh=tuple((f"stage{number}", count) for number, count in enumerate(replicas)),
            stages=tuple(stages),
            workers=tuple(workers),
            synchronisation=self.sync(),
            notes=_notes(found, held),
        )

    def _held(self, replicas: Sequence[int], room: Sequence[int]) -> list[int]:
        """Micro-batches that a replica of each stage runs forward at first.

        A stage may not wait for more micro-batches than the one before it lets through, or both wait for ever.
        """
        held: list[int] = []
        for stage, wanted in enumerate(in_flight(replicas)):
            depth = min(wanted if self.warm_up == "a" else 2 * wanted - 1, max(1, room[stage]))
            if held:
                depth = min(depth, (replicas[stage - 1] * held[-1] - 1) // replicas[stage] + 1)
            held.append(depth)
        return held


def _blocks(model: LayerGraph, estimate: Estimate, scale: float, most: int) -> Blocks:
    """Cut where the time passed reaches the next of ``most`` equal parts; every layer is a block if there are so few."""
    forward, backward = model.forward_seconds * scale, model.backward_seconds * scale
    ends = np.arange(len(model) + 1)
    if len(model) > most:
        passed = np.cumsum(forward + backward)
        parts = np.searchsorted(passed, np.linspace(0, passed[-1], most + 1)[1:-1]) + 1
        ends = np.unique([0, *parts, len(model)])
    gradient = estimate.layer_parameters * estimate.states.gradient

    def upto(column: Floats) -> Floats:
        return np.append(0.0, np.cumsum(column))[ends]

    return Blocks(
        tuple(ends.tolist()), upto(forward), upto(backward), upto(gradient), _crossing(model)[ends] * scale
    )


def _crossing(model: LayerGraph) -> Floats:
    """Bytes of outputs of the layers before each border that a layer behind it reads. Shape: (layers + 1,)."""
    change = np.zeros(len(model) + 2)
    for source, readers in enumerate(model.predecessors.transposed(len(model)).lists()):
        if readers:
            change[source + 1] += model.output_bytes[source]
            change[max(readers) + 1] -= model.output_bytes[source]
    return np.cumsum(change)[:-1]


def _room(stages: Sequence[Placed], blocks: Blocks, estimate: Estimate, scale: float) -> list[int]:
    """Micro-batches whose activations fit beside the model states of each stage; 0 where the states alone do not."""
    model = estimate.model
    stash = np.append(0.0, np.cumsum(model.stash_bytes)) * scale
    parameters = np.append(0.0, np.cumsum(estimate.layer_parameters))
    found = []
    for stage in stages:
        begin, end = blocks.ends[stage.begin], blocks.ends[stage.end]
        memory = min(estimate.devices[device].memory_bytes for device in stage.devices)
        free = memory - (parameters[end] - parameters[begin]) * estimate.states.total
        each = max(float(stash[end] - stash[begin]), 1.0)
        found.append(max(0, int(free // each)))
    return found


def _notes(found: Found, held: Sequence[int]) -> dict[str, object]:
    """What the search predicts, in seconds a step, and what it looked at."""
    return {
        "predicted_step_time": found.seconds,
        "data_parallel_time": found.data_parallel_seconds,
        "states": found.states,
        "candidates": found.candidates,
        "warm_up": list(held),
        "simulation": "simulated with replicas that take whole micro-batches in turn; the prediction slices each of them",
    }
