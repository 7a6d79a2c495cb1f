"""Cost tables over the configurations of every layer: compute, gradient synchronisation, transfers between layers.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks" (OptCNN), ICML'18, section 4:
the cost of a step is the sum over layers of t_C and t_S and over edges of t_X; transfers follow from the regions that a
part reads and that are not on its device. Forward and backward transfers mirror each other.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.parallel.interface import Collective, Estimate
from experiments.parallel.planning.configurations import (
    AXES,
    Configuration,
    Division,
    common,
    configurations,
    lengths,
    read_intervals,
)
from experiments.parallel.planning.layer_dims import LayerDims, layer_dims
from experiments.parallel.planning.wires import Wires
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: What a backward pass does where the forward pass did this.
MIRRORED = {"all_gather": "reduce_scatter", "all_to_all": "all_to_all"}


@dataclass(frozen=True)
class Exchange:
    """Bytes that the busiest device receives on an edge, and among how many neighbouring devices they travel.

    Columns have shape (configurations of the source, configurations of the reader).
    """

    received: Floats
    ranks: npt.NDArray[np.int64]
    gathers: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CostTables:
    """Seconds of a step. ``nodes[i]`` has shape (configurations of i,), ``edges[i, j]`` (those of i, those of j)."""

    choices: tuple[tuple[Configuration, ...], ...]
    nodes: tuple[Floats, ...]
    edges: Mapping[tuple[int, int], Floats]

    def total(self, chosen: Sequence[int]) -> float:
        """Of one configuration (its index) for every layer."""
        own = sum(float(node[choice]) for node, choice in zip(self.nodes, chosen, strict=True))
        return own + sum(float(edge[chosen[i], chosen[j]]) for (i, j), edge in self.edges.items())


class LayerCosts:
    """What configurations of the layers of one model cost on one cluster, for ``batch`` samples a step."""

    def __init__(self, estimate: Estimate, batch: int, axes: Sequence[str] = AXES) -> None:
        self.estimate, self.batch = estimate, batch
        self.model = estimate.model
        self.wires = Wires(estimate.cluster)
        self.dims = layer_dims(self.model, batch)
        devices = self.wires.devices
        self.choices = tuple(configurations(dims, devices, axes) for dims in self.dims)
        self.scale = batch / self.model.batch
        self.slowdown = max(estimate.slowdown(device) for device in range(devices))
        self.edges = self._edges()
        self._exchange = functools.lru_cache(maxsize=None)(self._exchanged)
        self._division = functools.lru_cache(maxsize=None)(lambda choices: Division(choices, devices))

    def tables(self) -> CostTables:
        nodes = tuple(self.compute(i) + self.synchronisation(i) for i in range(len(self.model)))
        edges = {(i, j): self.transfer(i, j) for i, j in self.edges}
        return CostTables(self.choices, nodes, edges)

    def _edges(self) -> dict[tuple[int, int], int]:
        """Source and reader, with the channel at which the source begins in a reader that joins."""
        found: dict[tuple[int, int], int] = {}
        for reader, sources in enumerate(self.model.predecessors.lists()):
            offset = 0
            for source in sources:
                found[source, reader] = offset
                offset += self.dims[source].channels if self.dims[reader].joins else 0
        return found

    def compute(self, layer: int) -> Floats:
        """t_C: work divides evenly over the parts, at the pace of the slowest device. Shape: (configurations,)."""
        seconds = float(self.estimate.layer_seconds[layer]) * self.batch * self.slowdown
        return np.array([seconds / choice.parts for choice in self.choices[layer]])

    def synchronisation(self, layer: int) -> Floats:
        """t_S: an all-reduce of each part of the gradients over the parts that replicate it. Shape: (configurations,)."""
        reduced = (self.reduction(layer, choice) for choice in self.choices[layer])
        return np.array(
            [self.wires.seconds(c.kind, c.bytes, c.ranks, c.stride) if c else 0.0 for c in reduced]
        )

    def reduction(self, layer: int, choice: Configuration) -> Collective | None:
        """The all-reduce of a layer's gradients once a step; ``None`` where nothing is replicated."""
        size = float(self.estimate.layer_parameters[layer]) * self.estimate.states.gradient
        parts = choice.weight_parts(self.dims[layer])
        if size == 0 or choice.parts == parts:
            return None
        return Collective("all_reduce", size / parts, choice.parts // parts, parts, per="step")

    def transfer(self, source: int, reader: int) -> Floats:
        """t_X: the activations forward and their gradients backward."""
        found = self.exchange(source, reader, self.choices[source], self.choices[reader])
        seconds = np.zeros(found.received.shape)
        for ranks in np.unique(found.ranks[found.received > 0]).tolist():
            chosen = (found.ranks == ranks) & (found.received > 0)
            latency = self.wires.seconds("all_to_all", 1e-300, ranks)
            slope = (self.wires.seconds("all_to_all", 1e9, ranks) - latency) / 1e9 * ranks / (ranks - 1)
            seconds[chosen] = 2 * (latency + slope * found.received[chosen])
        return seconds

    def exchange(
        self, source: int, reader: int, sent: Sequence[Configuration], read: Sequence[Configuration]
    ) -> Exchange:
        offset = self.edges[source, reader]
        key = self.dims[source], self.dims[reader], offset, tuple(sent), tuple(read)
        fraction = self._exchange(*key)
        size = float(self.model.output_bytes[source]) * self.scale
        return Exchange(fraction.received * size, fraction.ranks, fraction.gathers)

    def reference_times(self, tables: CostTables) -> dict[str, float | None]:
        """What to compare a prediction with: one device, an equal share of its time, data parallelism (``None`` where the
        samples do not divide), all by the same costs.
        """
        serial = float(self.estimate.layer_seconds.sum()) * self.batch * self.slowdown
        replicated = Configuration(sample=self.wires.devices)
        data_parallel = None
        if all(replicated in choices for choices in self.choices):
            data_parallel = tables.total([choices.index(replicated) for choices in self.choices])
        return {
            "serial_time": serial,
            "lower_bound": serial / self.wires.devices,
            "data_parallel_time": data_parallel,
        }

    def _exchanged(
        self,
        source: LayerDims,
        reader: LayerDims,
        offset: int,
        sent: tuple[Configuration, ...],
        read: tuple[Configuration, ...],
    ) -> Exchange:
        """``received`` as a fraction of the source's output."""
        resident, needed = self._division(sent), self._division(read)
        there = [resident.intervals(extent) for extent in _extents(source)]
        own = [needed.intervals(extent) for extent in _extents(reader)]
        wanted_axes = read_intervals(reader, source, own, offset)
        wanted = _product(lengths(axis)[needed.index[..., a]] for a, axis in enumerate(wanted_axes))
        tables = [common(a, b) for a, b in zip(there, wanted_axes, strict=True)]
        whole = float(np.prod(_extents(source)))
        missing = wanted[None] - _overlap(tables, resident.index, needed.index)
        received = missing.max(axis=-1) / whole
        near = self._within_nodes(tables, resident.index, needed.index, wanted)
        gathers = np.broadcast_to(wanted.sum(axis=-1) > whole * (1 + 1e-9), received.shape)
        ranks = np.where(near, self.wires.per_node, self.wires.devices)
        return Exchange(np.where(received > 1e-12, received, 0.0), ranks, gathers)

    def _within_nodes(
        self, tables: Sequence[Floats], resident: Ints, needed: Ints, wanted: Floats
    ) -> npt.NDArray[np.bool_]:
        """Where all that a device reads is on its own node. Shape: (sent, read)."""
        devices, width = self.wires.devices, self.wires.per_node
        if width == devices or self.wires.uneven:
            return np.full((len(resident), len(needed)), width == devices)
        found = np.zeros((len(resident), len(needed), devices))
        for neighbour in range(width):
            others = np.arange(devices) // width * width + neighbour
            found += _overlap(tables, resident[:, others], needed)
        near: npt.NDArray[np.bool_] = (wanted[None] - found <= 1e-9 * np.maximum(wanted[None], 1)).all(
            axis=-1
        )
        return near


def _extents(dims: LayerDims) -> tuple[float, ...]:
    """A batch of unknown samples is the interval from 0 to 1."""
    return (dims.samples or 1, *dims.extents[1:])


def _overlap(tables: Sequence[Floats], resident: Ints, needed: Ints) -> Floats:
    """Elements that each device has already. Shape: (sent, read, devices)."""
    return _product(
        table[resident[:, None, :, axis], needed[None, :, :, axis]] for axis, table in enumerate(tables)
    )


def _product(columns: Iterable[Floats]) -> Floats:
    found: Floats = functools.reduce(np.multiply, columns)
    return found
