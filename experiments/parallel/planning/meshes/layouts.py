"""Where the parts of a tensor are resident on a mesh, and what brings it from one layout to another.

A layout has an entry for each axis of the mesh: the dimension of the tensor that the axis divides, ``WHOLE``
(every device has all of it) or ``PARTIAL`` (each has a summand). Source of the menu: Xu et al., "GSPMD:
General and Scalable Parallelization for ML Computation Graphs", 2021, section 4.5; cheapest first, axis by
axis. Parts are counted as equal: sizes that do not divide are padded there, and refused by the planners here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from experiments.parallel.interface import PER_SAMPLE
from experiments.parallel.planning.meshes.mesh import Mesh

WHOLE, PARTIAL = -1, -2
Layout = tuple[int, ...]


class MeshCollective(NamedTuple):
    """A collective along an axis of the mesh.

    ``bytes`` are those of the whole vector (see ``interface.Collective``), for all samples of a
    micro-batch, or for what ``per`` says: a pass (weights), or a step (gradients).
    """

    kind: str
    axis: int
    bytes: float
    per: str = PER_SAMPLE


def entry_of(dims: Sequence[str], loop: str, otherwise: int = WHOLE) -> int:
    """The layout's entry of a tensor with these dimensions where ``loop`` is divided along the axis."""
    return dims.index(loop) if loop and loop in dims else otherwise


def loop_at(dims: Sequence[str], entry: int) -> str:
    """The loop that an axis divides by a layout's entry; ``""`` for none."""
    return dims[entry] if 0 <= entry < len(dims) else ""


def count_parts(layout: Layout, sizes: Sequence[int]) -> int:
    """In how many parts the layout cuts a tensor."""
    return math.prod(size for entry, size in zip(layout, sizes, strict=True) if entry >= 0)


def moves(
    before: Layout, after: Layout, size: float, mesh: Mesh, per: str = PER_SAMPLE
) -> tuple[MeshCollective, ...]:
    """Return what changes a tensor of ``size`` bytes from one layout to the other.

    Empty where devices only cut what they have.

    Bytes shrink first (cutting, reduce-scatter), then dimensions change places (all-to-all), then they grow.
    """
    if before == after:
        return ()
    if _is_reordering(before, after, mesh):
        return (MeshCollective("permute", mesh.slowest, size / count_parts(before, mesh.sizes), per),)
    now = list(before)
    found: list[MeshCollective] = []
    for kind in ("slice", "reduce_scatter", "all_to_all", "all_reduce", "all_gather"):
        for axis, (entry, wanted) in enumerate(zip(tuple(now), after, strict=True)):
            if entry == wanted or change(entry, wanted) != kind:
                continue
            local = size / count_parts(tuple(now), mesh.sizes)
            now[axis] = wanted
            if kind == "all_gather":
                local = size / count_parts(tuple(now), mesh.sizes)
            if kind != "slice":
                found.append(MeshCollective(kind, axis, local, per))
    return tuple(found)


def change(entry: int, wanted: int) -> str:
    """What of the menu brings an axis from one entry of a layout to another."""
    if entry == WHOLE:
        return "slice"
    if entry == PARTIAL:
        return "all_reduce" if wanted == WHOLE else "reduce_scatter"
    return "all_gather" if wanted == WHOLE else "all_to_all"


def moved_bytes(entry: int, wanted: int, size: float, ranks: int) -> float:
    """Bytes that ``ranks`` devices along one axis receive together where a tensor's entry changes."""
    kind = change(entry, wanted)
    if entry == wanted or kind == "slice":
        return 0.0
    if kind == "all_to_all":
        return size * (ranks - 1) / ranks
    return (2 if kind == "all_reduce" else 1) * size * (ranks - 1)


def _is_reordering(before: Layout, after: Layout, mesh: Mesh) -> bool:
    """The same tiles on other devices: each dimension is cut in as many parts by other axes."""
    if PARTIAL in before or PARTIAL in after:
        return False
    return _tiles(before, mesh) == _tiles(after, mesh) != {}


def _tiles(layout: Layout, mesh: Mesh) -> dict[int, int]:
    found: dict[int, int] = {}
    for entry, size in zip(layout, mesh.sizes, strict=True):
        if entry >= 0:
            found[entry] = found.get(entry, 1) * size
    return found


def seconds(steps: Sequence[MeshCollective], mesh: Mesh) -> float:
    """One move after another."""
    return sum(mesh.seconds(step.kind, step.axis, step.bytes) for step in steps)
