"""Cost tables over the configurations of every operator: compute, gradient synchronization, transfers between
operators.

Source: Jia et al., "Exploring Hidden Dimensions in Accelerating Convolutional Neural Networks" (OptCNN),
ICML'18, section 4: the cost of a step is the sum over layers of t_C and t_S and over edges of t_X; transfers
follow from the regions that a part reads and that are not on its device. Forward and backward transfers
mirror each other. Gradients of several layers travel together as the plan is carried out, so that t_S has
only its share of a bucket's latency.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from experiments.core.units import DTYPE_BYTES
from experiments.parallel.interface import PER_STEP, Collective, PlanningEstimate, Synchronization
from experiments.parallel.planning.operators.collective_costs import CollectiveCosts, in_bucket
from experiments.parallel.planning.operators.divisions import (
    BATCH,
    Axes,
    Boxes,
    Configuration,
    axes_of,
    boxes_made,
    boxes_read,
    configurations,
    counts_batch,
    overlap,
)
from experiments.parallel.planning.operators.operators import for_samples, operators_of
from experiments.parallel.planning.operators.part_loss import PartLoss, share_parts
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.step import Floats

Entry = TypeVar("Entry")

#: What a backward pass does where the forward pass did this.
MIRRORED = {"all_gather": "reduce_scatter", "all_to_all": "all_to_all"}

#: Rows of a batch that one expert takes.
CAPACITY = "capacity"


@dataclass(frozen=True)
class Exchange:
    """Bytes that the busiest device receives on an edge, and among how many neighboring devices they travel.

    Columns have shape (configurations of the source, configurations of the reader).
    """

    received: Floats
    ranks: npt.NDArray[np.int64]
    gathers: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CostTables:
    """Seconds of a step by configuration of its operators.

    ``nodes[i]`` has shape (configurations of i,), ``edges[i, j]`` (those of i, those of j).
    """

    choices: tuple[tuple[Configuration, ...], ...]
    nodes: tuple[Floats, ...]
    edges: Mapping[tuple[int, int], Floats]

    def total(self, chosen: Sequence[int]) -> float:
        """Of one configuration (its index) for every operator."""
        own = sum(float(node[choice]) for node, choice in zip(self.nodes, chosen, strict=True))
        return own + sum(float(edge[chosen[i], chosen[j]]) for (i, j), edge in self.edges.items())


class OperatorCosts:
    """What configurations of the operators of one model cost on one cluster, for ``batch`` samples at once.

    A step has ``micro_batches`` of them; each is costed with its part of what is sent once a step.

    ``only`` keeps to some axes by name; ``partial_sums`` lets the loops be divided that an operator sums
    over; ``most`` is how many axes may be divided at once. ``operators`` are those of the model on its own
    batch where they are others than its source tells (rewritten ones).
    """

    def __init__(
        self,
        estimate: PlanningEstimate,
        batch: int,
        only: Sequence[str] | None = None,
        partial_sums: bool = False,
        most: int | None = None,
        micro_batches: int = 1,
        operators: tuple[Operator, ...] = (),
    ) -> None:
        self.estimate, self.batch, self.model = estimate, batch, estimate.model
        self.micro_batches = micro_batches
        self.collectives = CollectiveCosts(estimate.cluster)
        self.devices = self.collectives.devices
        own = operators or operators_of(self.model)
        self.operators = for_samples(own, batch / self.model.batch)
        counted = counts_batch(self.model)
        self.axes = tuple(axes_of(o, counted, partial_sums) for o in self.operators)
        self.choices = tuple(_allowed_configurations(axes, self.devices, only, most) for axes in self.axes)
        self.loss = PartLoss(estimate, batch)
        self.slowdown = max(estimate.slowdown(device) for device in range(self.devices))
        self.edges = self._edges()
        gradients = float(self.model.parameter_bytes.sum()) * self._gradient
        self.bucket = min(Synchronization().bucket_bytes, gradients)
        self._nodes: dict[Operator, Floats] = {}
        self._fractions: dict[object, tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]] = {}

    @property
    def _gradient(self) -> float:
        """Bytes of a gradient for each byte of a parameter."""
        return self.estimate.states.gradient / DTYPE_BYTES[self.estimate.dtype]

    def _edges(self) -> dict[tuple[int, int], list[Operand]]:
        """Source and reader, and what is read: a tensor may be read several times."""
        found: dict[tuple[int, int], list[Operand]] = defaultdict(list)
        for reader, operator in enumerate(self.operators):
            for operand in operator.operands:
                if operand.source >= 0:
                    found[operand.source, reader].append(operand)
        return dict(found)

    def tables(self) -> CostTables:
        nodes = tuple(self.node(i) for i in self.report_each(range(len(self.operators))))
        edges = {(i, j): self.transfer(i, j) for i, j in self.report_each(self.edges)}
        return CostTables(self.choices, nodes, edges)

    def report_each(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Each entry, with a sign of life: for large models what is made of all of them takes minutes."""
        for entry in entries:
            self.estimate.show_life()
            yield entry

    # --- operators
    # ------------------------------------------------------------------------------------------------

    def node(self, number: int) -> Floats:
        """t_C + t_S, and the sum of partial results, of equal operators once. Shape: (configurations,)."""
        key = self._cost_key(number)
        if key not in self._nodes:
            self._nodes[key] = np.array(
                [self.compute(number, c) + self.exchange_seconds(number, c) for c in self.choices[number]]
            )
        return self._nodes[key]

    def _cost_key(self, number: int) -> Operator:
        """The operator without what its costs do not depend on: names, numbers, and how its time is told."""
        operator = self.operators[number]
        seconds = float(self.estimate.layer_seconds[operator.layer]) * operator.share
        operands = tuple(
            replace(o, source=min(o.source, 0), parameter=min(o.parameter, 0)) for o in operator.operands
        )
        return replace(operator, name="", layer=0, share=seconds, operands=operands)

    def work_parts(self, number: int, choice: Configuration) -> float:
        """Return how many equal parts of the work take as long as one of these, whose tiles may be small."""
        parts = math.prod(choice)
        if parts == 1:
            return parts
        division = dict(zip(self.axes[number].names, choice, strict=True))
        return share_parts(parts, self.loss(self.operators[number], division))

    def compute(self, number: int, choice: Configuration) -> float:
        """t_C: the time of a part, at the pace of the slowest device."""
        operator = self.operators[number]
        seconds = float(self.estimate.layer_seconds[operator.layer]) * operator.share * self.batch
        return seconds * self.slowdown / self.work_parts(number, choice)

    def exchange_seconds(self, number: int, choice: Configuration) -> float:
        """t_S and the sums of partial results, in seconds."""
        summed = self.summation(number, choice)
        return (self.collectives.seconds(summed) if summed else 0.0) + self.synchronization_seconds(
            number, choice
        )

    def synchronization_seconds(self, number: int, choice: Configuration) -> float:
        """Return the paper's t_S: seconds to synchronize parameters; a micro-batch's part of them."""
        found = self.reductions(number, choice)
        step = sum(
            in_bucket(self.collectives.cost(r.kind, r.ranks, r.stride), r.bytes, self.bucket) for r in found
        )
        return step / self.micro_batches

    def synchronization(self, number: int) -> Floats:
        """t_S of every configuration. Shape: (configurations,)."""
        return np.array([self.synchronization_seconds(number, choice) for choice in self.choices[number]])

    def summation(self, number: int, choice: Configuration) -> Collective | None:
        """The forward all-reduce of partial results, for the whole batch."""
        axes, operator = self.axes[number], self.operators[number]
        ranks = axes.partial_sums(choice)
        if ranks == 1:
            return None
        return Collective("all_reduce", operator.output_bytes * ranks / math.prod(choice), ranks)

    def reductions(self, number: int, choice: Configuration) -> list[Collective]:
        """The all-reduces of gradients once a step, one for each way to replicate a parameter."""
        axes = self.axes[number]
        found: dict[tuple[int, int], float] = defaultdict(float)
        for operand in self.operators[number].parameters:
            parts = axes.parts_of(choice, operand.dims)
            found[math.prod(choice) // parts, parts] += operand.bytes * self._gradient / parts
        return [Collective("all_reduce", b, r, s, per=PER_STEP) for (r, s), b in found.items() if r > 1 and b]

    # --- edges
    # ----------------------------------------------------------------------------------------------------

    def transfer(self, source: int, reader: int) -> Floats:
        """t_X: the activations forward and their gradients backward."""
        found = self.exchange(source, reader, self.choices[source], self.choices[reader])
        seconds = np.zeros(found.received.shape)
        moved = found.received > 0
        for ranks in np.unique(found.ranks[moved]).tolist():
            for gathers in (False, True):
                chosen = moved & (found.ranks == ranks) & (found.gathers == gathers)
                seconds[chosen] = self._both_ways(found.received[chosen], ranks, gathers)
        return seconds

    def _both_ways(self, received: Floats, ranks: int, gathers: bool) -> Floats:
        if ranks == 1:
            return np.zeros_like(received)
        kind = "all_gather" if gathers else "all_to_all"
        size = received * ranks / (ranks - 1)
        costs = [self.collectives.cost(kind, ranks), self.collectives.cost(MIRRORED[kind], ranks)]
        total: Floats = sum((c.latency + c.slope * size for c in costs), np.zeros_like(size))
        return total

    def transfer_from_afar(self, source: int, reader: int) -> Floats:
        """Return transfer seconds where a reader's devices have nothing of what they read.

        By the reader's configuration only.
        """
        total = np.zeros(len(self.choices[reader]))
        for operand in self.edges[source, reader]:
            there, wanted = self.boxes(
                source, reader, operand, self.choices[source][:1], self.choices[reader]
            )
            whole = float(np.prod([i[-1, 1] for i in there.intervals]))
            total += wanted.volumes.max(axis=-1) / whole * operand.bytes
        return np.where(total > 0, self._both_ways(total, self.devices, gathers=False), 0.0)

    def exchange(
        self, source: int, reader: int, sent: Sequence[Configuration], read: Sequence[Configuration]
    ) -> Exchange:
        """Of all that ``reader`` reads of ``source``'s output."""
        total = np.zeros((len(sent), len(read)))
        near, gathers = np.ones(total.shape, np.bool_), np.zeros(total.shape, np.bool_)
        for operand in self.edges[source, reader]:
            fraction, inside, more = self._fraction(source, reader, operand, tuple(sent), tuple(read))
            total = total + fraction * operand.bytes
            near, gathers = near & inside, gathers | more
        ranks = np.where(near, self.collectives.per_node, self.devices)
        return Exchange(total, ranks, gathers)

    def boxes(
        self,
        source: int,
        reader: int,
        operand: Operand,
        sent: tuple[Configuration, ...],
        read: tuple[Configuration, ...],
    ) -> tuple[Boxes, Boxes]:
        """Return where the source's output is resident, and what each device reads of it."""
        made, by = self.operators[source], self.operators[reader]
        there = boxes_made(made, self.axes[source], sent, self.devices)
        sizes = tuple(_size(self.axes[source], made.size, name) for name in made.output)
        dims = operand.dims if len(operand.dims) == len(sizes) else ("",) * len(sizes)
        wanted = boxes_read(by, Operand(dims, 0.0), self.axes[reader], read, self.devices, sizes)
        return there, wanted

    def _fraction(
        self,
        source: int,
        reader: int,
        operand: Operand,
        sent: tuple[Configuration, ...],
        read: tuple[Configuration, ...],
    ) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """What the busiest device receives of the tensor, whether all comes from its own node, and whether
        devices together read more than the tensor. Equal edges are looked at once.
        """
        made, by = self.operators[source], self.operators[reader]
        key = (
            made.output,
            made.sizes,
            self.axes[source],
            operand.dims,
            by.halo,
            self.axes[reader],
            sent,
            read,
        )
        if key not in self._fractions:
            self.estimate.show_life()
            there, wanted = self.boxes(source, reader, operand, sent, read)
            whole = float(np.prod([i[-1, 1] for i in there.intervals]))
            missing = (wanted.volumes[None] - overlap(there, wanted)).max(axis=-1) / whole
            gathers = np.broadcast_to(wanted.volumes.sum(axis=-1) > whole * (1 + 1e-9), missing.shape)
            near = self._within_nodes(there, wanted, whole)
            self._fractions[key] = (np.where(missing > 1e-12, missing, 0.0), near, gathers)
        return self._fractions[key]

    def _within_nodes(self, there: Boxes, wanted: Boxes, whole: float) -> npt.NDArray[np.bool_]:
        """Where all that a device reads is on its own node. Shape: (sent, read)."""
        width = self.collectives.per_node
        shape = len(there.volumes), len(wanted.volumes)
        if width == self.devices or self.collectives.uneven:
            return np.full(shape, width == self.devices)
        found = np.zeros((*shape, self.devices))
        for neighbor in self.report_each(range(width)):
            found += overlap(there, wanted, np.arange(self.devices) // width * width + neighbor)
        missing = wanted.volumes[None] - found
        near: npt.NDArray[np.bool_] = np.less_equal(missing.max(axis=-1), 1e-9 * whole)
        return near

    # --- to compare with
    # --------------------------------------------------------------------------------------------

    @property
    def serial_seconds(self) -> float:
        return float(self.estimate.layer_seconds.sum()) * self.batch * self.slowdown

    def reference_times(self, tables: CostTables) -> dict[str, float | None]:
        """Return what to compare a prediction of a step with, all by the same costs.

        One device, an equal share of its time, data parallelism (``None`` where the samples do not
        divide).
        """
        chosen = self.data_parallel()
        return {
            "serial_time": self.serial_seconds * self.micro_batches,
            "lower_bound": self.serial_seconds * self.micro_batches / self.devices,
            "data_parallel_time": tables.total(chosen) * self.micro_batches if chosen else None,
        }

    def data_parallel(self) -> list[int] | None:
        """Return for each operator the configuration that divides every batch among all devices.

        Its index; or that of the rows that experts were dealt. What has neither is whole.
        """
        found = []
        for axes, choices in zip(self.axes, self.choices, strict=True):
            rows = BATCH if BATCH in axes.names else CAPACITY
            wanted = tuple(self.devices if name == rows else 1 for name in axes.names)
            if wanted not in choices:
                return None
            found.append(choices.index(wanted))
        return found


def _size(axes: Axes, sizes: Mapping[str, int], name: str) -> int:
    return axes.sizes[axes.names.index(name)] if name in axes.names else sizes[name]


def _allowed_configurations(
    axes: Axes, devices: int, only: Sequence[str] | None, most: int | None
) -> tuple[Configuration, ...]:
    found = configurations(axes, devices, most)
    if only is None:
        return found
    named = zip(axes.names, range(len(axes.names)), strict=True)
    fixed = [number for name, number in named if name not in only]
    return tuple(c for c in found if all(c[number] == 1 for number in fixed))
