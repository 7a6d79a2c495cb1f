"""Looped collective einsum: a layer computes on the shard that it has while the next one arrives.

Source: Wang et al., "Overlap Communication with Dependent Computation via Decomposition in Large Deep
Learning Models", ASPLOS'23, sections 5.1 (decomposition into a loop of partial einsums and permutes), 5.4
(bidirectional transfers) and 5.5 (the cost model that decides). T_c is the einsum's time, T_m the
collective's, mu how much longer the permutes take together.

The plan divides every layer with weights over a group of devices by columns: its input is gathered forward
(and again backward for the weight gradient), the input's gradient is reduced and scattered backward; layers
without weights work on their shards. ``mu`` is for a ring in one direction, which leaves half of a torus's
links idle; both directions halve it. Behind a switch one direction is enough: mu = 1 without
``bidirectional``.

Not reproduced: that small partial products are less efficient, fusion and unrolling of the loop, gathers
shared by two einsums (those are then not looped), and the choice between two operands (the input is the one
that is gathered).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.hardware.algorithms import Algorithms
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    Collective,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Sharding,
    Slot,
    Stage,
    Worker,
    whole_share,
)
from experiments.parallel.planning.settings import accumulations
from experiments.parallel.policies.collective_einsum.loops import loop_pays
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class CollectiveEinsum(ParallelPolicy):
    """Tensor parallelism whose gathers and scatters overlap with products in a loop, if that pays."""

    name: ClassVar[str] = "collective_einsum"
    mechanism: ClassVar[str] = "divided tensors"

    ranks: int | None = knob(None, "devices that divide a layer; empty: those of a node", low=1, high=4096)
    gate: str = knob("cost", "loop where it pays, always or never", choices=("cost", "always", "never"))
    mu: float = knob(2.0, "permutes in one direction against the collective, in time", low=0.01, high=100.0)
    bidirectional: bool = knob(True, "half of each shard in either direction, which halves mu")
    least_bytes: float = knob(
        2**20, "smaller gathered operands are not looped", low=0, high=1e12, unit="bytes"
    )
    most_parts: int = knob(32, "larger groups do not loop", low=1, high=4096, unit="parts")
    micro_batches: int | None = open_knob(
        "micro-batches accumulated by each group before the update", low=1, high=65536
    )

    @property
    def slowdown(self) -> float:
        """mu of the directions that are used."""
        return self.mu / 2 if self.bidirectional else self.mu

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few micro-batches as fit."""
        groups = max(1, cluster.device_count // (self.ranks or cluster.node.device_count))
        return accumulations(self, batch // groups)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        ranks = self.ranks or cluster.node.device_count
        groups = whole_share(cluster.device_count, ranks, "devices", "knobs.ranks")
        parts = self.micro_batches or 1
        samples = whole_share(batch, groups * parts, "samples", "knobs.micro_batches")
        divided = _Divided(self, estimate, ranks, samples)
        shardings = tuple(divided.sharding(layer) for layer in range(len(model)))
        looped = [s.layer for s in shardings if any(c.parts > 1 for c in (*s.forward, *s.backward))]
        return ParallelPlan(
            batch=batch,
            micro_batches=groups * parts,
            mesh=(("data", groups), ("tensor", ranks)),
            stages=(Stage(0, len(model), tuple(range(groups))),),
            workers=tuple(_worker(group, ranks, parts) for group in range(groups)),
            shardings=shardings,
            synchronization=self.sync(),
            notes={
                "looped_layers": looped,
                "layers_with_collectives": sum(bool(s.forward) for s in shardings),
            },
        )


def _worker(group: int, ranks: int, micro_batches: int) -> Worker:
    first = group * micro_batches
    slots = (Slot(kind, first + index, 0) for index in range(micro_batches) for kind in (FORWARD, BACKWARD))
    return Worker(tuple(range(group * ranks, (group + 1) * ranks)), tuple(slots))


class _Divided:
    """Layers divided over a group of ``ranks``, for micro-batches of ``samples``."""

    def __init__(
        self, policy: CollectiveEinsum, estimate: PlanningEstimate, ranks: int, samples: int
    ) -> None:
        self.policy, self.model, self.ranks, self.samples = policy, estimate.model, ranks, samples
        algorithms, group = Algorithms(estimate.cluster), (tuple(range(ranks)),)
        self._gather = algorithms.usual("all_gather", group)

    def sharding(self, layer: int) -> Sharding:
        model, ranks = self.model, self.ranks
        size = sum(float(model.output_bytes[before]) for before in model.predecessors[layer]) / model.batch
        if ranks == 1 or size == 0 or model.parameter_bytes[layer] == 0:
            return Sharding(layer, "column", ranks, ranks, ranks)
        each = self.samples / model.batch / ranks
        forward, backward = model.forward_seconds[layer] * each, model.backward_seconds[layer] * each
        gather = self._collective("all_gather", size, float(forward))
        again = self._collective("all_gather", size, float(backward) / 2)
        scatter = self._collective("reduce_scatter", size, float(backward) / 2)
        return Sharding(layer, "column", ranks, ranks, ranks, (gather,), (again, scatter))

    def _collective(self, kind: str, size: float, compute: float) -> Collective:
        """``size`` bytes a sample overlapped with an einsum of ``compute`` seconds: in a loop, or before or
        after it.
        """
        if not self._loops(size * self.samples, compute):
            return Collective(kind, size)
        return Collective(
            "permute", size / self.ranks, overlap=True, parts=self.ranks, slowdown=self.policy.slowdown
        )

    def _loops(self, size: float, compute: float) -> bool:
        policy = self.policy
        if policy.gate != "cost":
            return policy.gate == "always"
        if size < policy.least_bytes or self.ranks > policy.most_parts:
            return False
        return loop_pays(compute, self._gather.seconds(size), self.ranks, policy.slowdown)
