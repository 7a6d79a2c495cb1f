"""What a block, the ends and the messages of a transformer cost under one division of its operators.

The simulator's own figures (``PlanningEstimate.pass_seconds``, ``hardware.topology``), summed once for each
division and size of a micro-batch, so that thousands of plans that share them need not sum them again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.hardware.algorithms import Algorithms, Groups
from experiments.hardware.topology import Cost, Flows, Round
from experiments.parallel.interface import EXPERT, Collective, PlanningEstimate, Sharding
from experiments.parallel.planning.transformers.plan import block_starts
from experiments.parallel.planning.transformers.shardings import WorkerMesh, megatron_shardings
from experiments.workloads.transformer_layers import ATTENTION_CORE

NO_COST = Cost(0.0, 0.0, 0.0, {})


@dataclass(frozen=True)
class Part:
    """Costs of some operators on one device, for a micro-batch.

    Seconds of each pass with their collectives, parameters and the bytes kept. ``again`` are the seconds of a
    backward pass that recomputes them, ``experts`` the parameters of experts that devices share,
    ``largest`` those of the largest tensor.
    """

    forward: float = 0.0
    backward: float = 0.0
    again: float = 0.0
    parameters: float = 0.0
    kept: float = 0.0
    experts: float = 0.0
    largest: float = 0.0

    def __add__(self, other: Part) -> Part:
        return Part(
            self.forward + other.forward,
            self.backward + other.backward,
            self.again + other.again,
            self.parameters + other.parameters,
            self.kept + other.kept,
            self.experts + other.experts,
            max(self.largest, other.largest),
        )


@dataclass(frozen=True)
class Costs:
    """Costs of one division and micro-batch: a block, its attention core, embedding and end.

    ``plain`` is a first block without experts where the others have them, and else the same block.
    ``boundary`` are the bytes of a block's input that a device keeps, ``core_input`` of an attention core's,
    ``crossing`` those that each of a worker's devices sends to the next stage, ``gathered`` the seconds in
    which its pieces come together there where every device needs all, ``tied`` the parameters of a copy of
    the table that the logits read.
    """

    block: Part
    plain: Part
    core: Part
    first: Part
    last: Part
    boundary: float
    core_input: float
    crossing: float
    gathered: float
    tied: float


class Lines(NamedTuple):
    """Seconds of messages as latency + slope x bytes.

    A hop to the next stage and one from the first to the last (bytes of each device), and a reduce-scatter or
    all-gather among replicas and parts of sequences (bytes of the whole vector), or among devices with the
    same experts.
    """

    hop_latency: float
    hop_slope: float
    across_latency: float
    across_slope: float
    ring_latency: float
    ring_slope: float
    experts_latency: float
    experts_slope: float


class CostTable:
    """Costs of a model on its cluster, found once for each key."""

    def __init__(self, estimate: PlanningEstimate) -> None:
        self.estimate, self.model = estimate, estimate.model
        self.algorithms = Algorithms(estimate.cluster)
        starts = block_starts(self.model)
        sizes = self.model.transformer
        assert sizes is not None
        mixed = [start for block, start in enumerate(starts) if sizes.has_experts(block)] or starts
        plain = next((start for start in starts if start not in mixed), mixed[-1])
        self._plain, self._block = (range(start, self._end(start)) for start in (plain, mixed[-1]))
        self._first, self._last = range(starts[0]), range(self._end(starts[-1]), len(self.model))

    def _end(self, start: int) -> int:
        names = self.model.layer
        prefix = names[start].rpartition(".")[0] + "."
        return next((i for i in range(start, len(names)) if not names[i].startswith(prefix)), len(names))

    @functools.cache  # noqa: B019 - a table lives as long as one search
    def costs(self, mesh: WorkerMesh, samples: int) -> Costs:
        layers = [*self._first, *dict.fromkeys([*self._plain, *self._block]), *self._last]
        sharded = {s.layer: s for s in megatron_shardings(self.model, mesh, layers)}
        part = functools.partial(self._part, mesh=mesh, samples=samples, sharded=sharded)
        core = next(i for i in self._block if self.model.layer[i].endswith(f".{ATTENTION_CORE}"))
        scale = samples / self.model.batch
        read = [int(i) for i in self.model.predecessors[core]]
        start = sharded.get(self._block.start)
        whole = float(self.model.output_bytes[self._block.stop - 1]) * scale
        block = part(self._block)
        return Costs(
            block=block,
            plain=part(self._plain) if self._plain != self._block else block,
            core=part(range(core, core + 1)),
            first=part(self._first),
            last=part(self._last),
            boundary=whole / (start.activations if start else 1),
            core_input=float(self.model.output_bytes[read].sum()) * scale / mesh.devices,
            crossing=whole / mesh.devices,
            gathered=self._together(mesh, whole),
            tied=sum(tie[2] for tie in self.model.facts["tied"]) / self.estimate.states.weight / mesh.tensor,
        )

    def _part(
        self, layers: Sequence[int], *, mesh: WorkerMesh, samples: int, sharded: dict[int, Sharding]
    ) -> Part:
        found = Part()
        for layer in layers:
            found += self._row(layer, mesh, samples, sharded.get(layer))
        return found

    def _row(self, layer: int, mesh: WorkerMesh, samples: int, sharding: Sharding | None) -> Part:
        seconds = self.estimate.pass_seconds(layer, samples, sharding)
        forward, backward = seconds.forward, seconds.backward + seconds.weight
        again, parameters, activations = forward + backward, 1.0, 1.0
        if sharding is not None:
            both = (*sharding.forward, *sharding.backward)
            again = self._with(again, both, mesh, samples)
            forward = self._with(forward, sharding.forward, mesh, samples)
            backward = self._with(backward, sharding.backward, mesh, samples)
            parameters, activations = sharding.parameters, sharding.activations
        kept = float(self.model.stash_bytes[layer]) * samples / self.model.batch / activations
        owned = float(self.estimate.layer_parameters[layer]) / parameters
        largest = min(float(self.estimate.largest_tensors[layer]) / parameters, owned)
        if sharding is not None and sharding.axis == EXPERT:
            return Part(forward, backward, again, 0.0, kept, owned, largest)
        return Part(forward, backward, again, owned, kept, 0.0, largest)

    def _with(
        self, seconds: float, collectives: Sequence[Collective], mesh: WorkerMesh, samples: int
    ) -> float:
        """Collectives overlapped with computation hold it up where they take longer; the others follow it.

        Overlapped ones that use the same channels follow each other.
        """
        times = [(c.overlap, self._inside(c, mesh, samples)) for c in collectives]
        beside = sum(time for overlap, time in times if overlap)
        return max(seconds, beside) + sum(time for overlap, time in times if not overlap)

    def _inside(self, collective: Collective, mesh: WorkerMesh, samples: int) -> float:
        return self.collective(
            collective.kind, collective.groups(range(mesh.devices)), collective.bytes * samples
        )

    def collective(self, kind: str, groups: Sequence[Sequence[int]], size: float) -> float:
        """Return the seconds of ``kind`` by rings in every one of ``groups`` at once."""
        latency, slope = self._ring(kind, tuple(map(tuple, groups)))
        return latency + slope * size

    def _together(self, mesh: WorkerMesh, size: float) -> float:
        """Seconds of an all-gather of pieces that every device of a worker needs whole."""
        whole = mesh.devices > 1 and mesh.between == 1
        return self.collective("all_gather", (range(mesh.devices),), size) if whole else 0.0

    def _ring(self, kind: str, groups: Groups) -> tuple[float, float]:
        cost = self.algorithms.usual(kind, groups)
        return cost.latency, cost.slope

    @functools.cache  # noqa: B019
    def lines(self, mesh: WorkerMesh, replicas: int, pipeline: int) -> Lines:
        """Return the costs of a division's messages.

        Between the stages of a ``pipeline``, and among those that hold the same weights.
        """
        hop, across = NO_COST, NO_COST
        if pipeline > 1:
            hop, across = (self._hop(mesh.devices, replicas, stages) for stages in (1, pipeline - 1))
        rings = (self._holders_ring(replicas * mesh.devices, parts) for parts in (mesh.tensor, mesh.expert))
        costs = (hop, across, *rings)
        return Lines(*(figure for cost in costs for figure in (cost.latency, cost.slope)))

    def _holders_ring(self, devices: int, parts: int) -> Cost:
        """Among those of a stage's ``devices`` that hold the same of ``parts`` parts."""
        if devices == parts:
            return NO_COST
        groups = [tuple(range(place, devices, parts)) for place in range(parts)]
        return self.algorithms.usual("reduce_scatter", tuple(groups))

    def _hop(self, devices: int, replicas: int, stages: int) -> Cost:
        """``stages`` further, for all replicas that share a node with the first one."""
        topology = self.algorithms.topology
        sources = np.flatnonzero(topology.node[: devices * replicas] == topology.node[0])
        sources = sources[: max(len(sources) // devices, 1) * devices]
        targets = sources + devices * replicas * stages
        return topology.cost([Round(1, [Flows(sources, targets, np.ones(len(sources)))])])
