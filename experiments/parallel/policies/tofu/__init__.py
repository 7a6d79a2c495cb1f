"""Tofu (Wang, Huang and Li, EuroSys'19): every tensor and operator of the training graph divided among all
devices.

Followed: section 3 and 4 (partition-n-reduce from an operator's description, see ``partition_n_reduce``),
section 5 (coarsening, dynamic program, recursion over the factors of the number of devices, see
``recursive_partition``). What is least is the bytes moved, of forward and backward operators together. Early
steps of the recursion, whose groups are largest, go over the slow links: nodes first, then the devices of a
node.

Left open by the paper: tensors that no axis divides (here every worker has a copy), strategies whose parts
are unequal (not used), and links that differ (bytes are counted alike). The description of an operator is its
loops over named dimensions, as far as the model tells them; an operator without any is divided by samples.
Not reproduced: the order of kernels in a worker's own memory plan, which the paper keeps by control
dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from experiments.core.budget import Budget
from experiments.core.integers import prime_factors
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    PER_PASS,
    Collective,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Sharding,
    whole_share,
)
from experiments.parallel.planning.meshes.layouts import WHOLE
from experiments.parallel.planning.operators.collective_costs import CollectiveCosts
from experiments.parallel.planning.operators.divisions import counts_batch
from experiments.parallel.planning.operators.one_group import (
    OperatorParts,
    layer_sharding,
    numbers_by_layer,
    one_group_plan,
)
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.operators.sharded_plan import CARRIED
from experiments.parallel.planning.settings import parts_that_may_fit
from experiments.parallel.policies.tofu.recursive_partition import (
    Split,
    TrainingGraph,
    recursion,
)
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class Tofu(ParallelPolicy):
    """Layouts of all tensors with the fewest bytes moved, one split of the devices after another."""

    name: ClassVar[str] = "tofu"
    mechanism: ClassVar[str] = "searched layouts"

    slow_links_first: bool = knob(
        True, "the first splits go across nodes (else across the devices of a node)"
    )

    evaluations: int = knob(
        2_000_000_000,
        "sums of bytes that are compared; beyond it tensors keep few layouts",
        low=1,
        high=10**15,
    )

    micro_batches: int | None = open_knob("parts of the batch, one after another", low=1, high=65536)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few parts as fit."""
        return parts_that_may_fit(self, batch, estimate)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        parts = self.micro_batches or 1
        samples = whole_share(batch, parts, "samples", "knobs.micro_batches")
        operators = operators_of(model, samples)
        graph = TrainingGraph(operators, counts_batch(model))
        budget = Budget(self.evaluations, estimate.progress, "sums")
        splits = recursion(graph, self._factors(cluster), budget)
        collectives = CollectiveCosts(cluster)
        found = _Divided(graph, splits, collectives.devices, self.slow_links_first)
        shardings = [found.sharding(layer) for layer in range(len(model))]
        notes = _notes(estimate, batch, graph, splits, shardings, collectives) | budget.caveat("evaluations")
        mesh = (("devices", collectives.devices),)
        return one_group_plan(mesh, len(model), batch, shardings, notes, parts)

    def _factors(self, cluster: Hardware) -> list[int]:
        """Of the nodes, then of the devices of one (the other way round where fast links come first)."""
        inside = math.gcd(*(node.device_count for node in cluster.nodes))
        levels = [prime_factors(cluster.device_count // inside), prime_factors(inside)]
        return [factor for level in (levels if self.slow_links_first else levels[::-1]) for factor in level]


class _Divided:
    """What the splits mean for each layer."""

    def __init__(
        self, graph: TrainingGraph, splits: Sequence[Split], devices: int, outer_first: bool
    ) -> None:
        self.graph, self.splits, self.devices = graph, splits, devices
        self._outer_first = outer_first
        self._members = numbers_by_layer(graph.operators)

    def sharding(self, layer: int) -> Sharding:
        inside = self._members.get(layer, [])
        return layer_sharding(
            layer,
            " | ".join(dict.fromkeys(self._loops(number) for number in inside)),
            [self._parts(number) for number in inside],
            self._collectives(inside, backward=False),
            self._collectives(inside, backward=True),
        )

    def _parts(self, number: int) -> OperatorParts:
        operator, tensors = self.graph.operators[number], self.graph.tensors[number]
        work = math.prod(split.workers for split in self.splits if split.loops[number, 0])
        weights = tuple(
            self.pieces(tensor)
            for operand, tensor in zip(operator.operands, tensors[1:], strict=True)
            if operand.parameter >= 0
        )
        return OperatorParts(operator, work, weights, self.pieces(tensors[0]))

    def pieces(self, tensor: int) -> int:
        return math.prod(split.workers for split in self.splits if split.layouts[tensor] != WHOLE)

    def _loops(self, number: int) -> str:
        """The loop of the forward operator that each split divides."""
        return ", ".join(split.loops[number, 0] or "whole" for split in self.splits)

    def _collectives(self, inside: Sequence[int], backward: bool) -> list[Collective]:
        """Of all kernels of one pass, for each split: what is fetched, and what is sent to reduce or lay out
        results.
        """
        found = []
        for split in self.splits:
            fetched = sent = 0.0
            for number in inside:
                for index, kernel in enumerate(self.graph.kernels[number]):
                    if kernel.backward == backward:
                        fetched += split.moves[number, index].fetched
                        sent += split.moves[number, index].sent
            found += [
                self._collective("all_to_all", split, fetched),
                self._collective("reduce_scatter", split, sent),
            ]
        return [collective for collective in found if collective.bytes]

    def _collective(self, kind: str, split: Split, moved: float) -> Collective:
        """``moved`` bytes of one group are shared by its devices; a ring carries (n - 1) / n of a vector."""
        each = moved * split.groups / self.devices
        inner = self.devices // (split.groups * split.workers)
        stride = inner if self._outer_first else split.groups
        return Collective(
            kind, each * split.workers / (split.workers - 1), split.workers, stride, per=PER_PASS
        )


def _notes(
    estimate: PlanningEstimate,
    batch: int,
    graph: TrainingGraph,
    splits: Sequence[Split],
    shardings: Sequence[Sharding],
    collectives: CollectiveCosts,
) -> dict[str, Any]:
    """Predicted bytes by split and seconds a step, and what the search looked at."""
    slowdown = max(estimate.slowdown(device) for device in range(collectives.devices))
    seconds = estimate.layer_seconds * batch * slowdown
    compute = sum(float(seconds[s.layer]) / s.compute for s in shardings)
    moving = sum(collectives.seconds(c) for s in shardings for c in (*s.forward, *s.backward))
    return {
        "predicted_step_time": compute + moving,
        "predicted_bytes": sum(split.total for split in splits),
        "bytes_by_split": [split.total for split in splits],
        "factors": [split.workers for split in splits],
        "serial_time": float(seconds.sum()),
        "lower_bound": float(seconds.sum()) / collectives.devices,
        "operators": len(graph.operators),
        "kernels": sum(map(len, graph.kernels)),
        "tensors_after_coarsening": len(graph.sizes),
        "tensors_copied": sum(all(s.layouts[t] == WHOLE for s in splits) for t in range(len(graph.sizes)))
        if splits
        else 0,
        "simulation": CARRIED,
    }
