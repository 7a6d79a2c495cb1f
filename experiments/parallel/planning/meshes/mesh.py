"""Devices as a grid with named axes, and what collectives along an axis cost on the cluster's topology."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.hardware import Hardware
from experiments.hardware.algorithms import Algorithms
from experiments.hardware.topology import Cost

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


@dataclass(frozen=True)
class Mesh:
    """Devices arranged along named axes, in row-major order.

    ``names`` and ``sizes`` of the axes; ``costs`` of collectives by kind and axis.

    All groups along an axis communicate at once, so that a cost includes what they share.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    costs: Mapping[tuple[str, int], Cost] = field(hash=False, compare=False)

    @property
    def devices(self) -> int:
        return math.prod(self.sizes)

    @functools.cached_property
    def strides(self) -> tuple[int, ...]:
        """Between neighbors along each axis, in the row-major order of devices."""
        return tuple(math.prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes)))

    def seconds(self, kind: str, axis: int, size: float) -> float:
        """Of a collective among the devices along ``axis``; ``size`` as in ``interface.Collective``."""
        return self.costs[kind, axis].seconds(size) if self.sizes[axis] > 1 and size else 0.0

    @functools.cached_property
    def slowest(self) -> int:
        """The axis along which a byte takes longest."""
        return max(range(len(self.sizes)), key=lambda axis: self.costs["permute", axis].slope)

    def to_json(self) -> dict[str, int]:
        return dict(zip(self.names, self.sizes, strict=True))


def mesh_on(cluster: Hardware, axes: Sequence[tuple[str, int]], devices: Sequence[int] | None = None) -> Mesh:
    """Return the mesh over ``devices`` of ``cluster`` (all of them if not given).

    Axes of one device are left out.
    """
    kept = [(name, size) for name, size in axes if size > 1] or list(axes[:1])
    names, sizes = tuple(name for name, _ in kept), tuple(size for _, size in kept)
    order = np.arange(cluster.device_count) if devices is None else np.array(devices)
    if math.prod(sizes) != len(order):
        raise ValueError(f"a mesh of {sizes} does not hold {len(order)} devices")
    grid, algorithms = order.reshape(sizes), Algorithms(cluster)
    costs = {}
    for axis, size in enumerate(sizes):
        groups = tuple(map(tuple, np.moveaxis(grid, axis, -1).reshape(-1, size).tolist()))
        for kind in KINDS:
            costs[kind, axis] = algorithms.usual(kind, groups)
    return Mesh(names, sizes, costs)
