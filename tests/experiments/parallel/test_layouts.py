"""Where parts of tensors lie, what moves them, and what it costs: the card's menu, each entry counted by
hand.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.parallel.interface import Collective
from experiments.parallel.planning.meshes.layouts import (
    PARTIAL,
    WHOLE,
    MeshCollective,
    count_parts,
    moved_bytes,
    moves,
)
from experiments.parallel.planning.meshes.mesh import Mesh, mesh_on
from experiments.parallel.simulator.network import Network
from tests.experiments.hardware import closed_forms
from tests.experiments.parallel.builders import cluster

FAST, SLOW = Link("fast", 100.0, 1.0, True, "test"), Link("slow", 10.0, 5.0, True, "test")


def mesh(*sizes: int) -> Mesh:
    count = 1
    for size in sizes:
        count *= size
    names = ("x", "y", "z")
    return mesh_on(cluster(1, count, link=FAST), list(zip(names, sizes, strict=False)))


def sent(step: MeshCollective, grid: Mesh) -> float:
    """Bytes that each device sends."""
    return grid.costs[step.kind, step.axis].sent * step.bytes


def test_the_menu_axis_by_axis() -> None:
    """A tensor of 160 bytes on 4 devices."""
    four = mesh(4)
    assert moves((WHOLE,), (0,), 160, four) == ()
    assert moves((0,), (WHOLE,), 160, four) == (("all_gather", 0, 160.0, "sample"),)
    assert moves((0,), (1,), 160, four) == (("all_to_all", 0, 40.0, "sample"),)
    assert moves((PARTIAL,), (WHOLE,), 160, four) == (("all_reduce", 0, 160.0, "sample"),)
    assert moves((PARTIAL,), (0,), 160, four) == (("reduce_scatter", 0, 160.0, "sample"),)


def test_an_all_to_all_sends_three_sixteenths_from_each_of_four() -> None:
    """[M/4, N] to [M, N/4]: a device holds a quarter and keeps a quarter of that."""
    (step,) = moves((0,), (1,), 160, mesh(4))
    assert sent(step, mesh(4)) == 160 * 3 / 16


@pytest.mark.parametrize("before", [PARTIAL, WHOLE, 0, 1])
@pytest.mark.parametrize("after", [WHOLE, 0, 1])
def test_what_all_devices_of_an_axis_receive_is_what_they_send(before: int, after: int) -> None:
    """Counted for the whole axis at once, as planners of bytes do, or step by step on the mesh."""
    three = mesh(3)
    each = sum(sent(step, three) for step in moves((before,), (after,), 90, three))
    assert moved_bytes(before, after, 90, 3) == pytest.approx(3 * each)


def test_the_same_tiles_on_other_devices_are_permuted() -> None:
    (step,) = moves((0, 1), (1, 0), 160, mesh(2, 2))
    assert (step.kind, step.bytes) == ("permute", 40.0)


def test_bytes_shrink_before_they_grow() -> None:
    """Cut along y for nothing, then gather half along x: 80 bytes on each device afterwards."""
    assert moves((0, WHOLE), (WHOLE, 1), 160, mesh(2, 2)) == (("all_gather", 0, 80.0, "sample"),)


@given(st.data())
def test_every_layout_is_reached(data: st.DataObject) -> None:
    both = st.integers(WHOLE, 2)
    before = data.draw(st.tuples(st.integers(PARTIAL, 2), st.integers(PARTIAL, 2)))
    after = data.draw(st.tuples(both, both))
    grid = mesh(2, 4)
    for step in moves(before, after, 64, grid):
        assert 0 < step.bytes <= 64
    if PARTIAL not in before and count_parts(after, grid.sizes) == 8 and WHOLE in before:
        assert sum(sent(step, grid) for step in moves(before, after, 64, grid)) < 64


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"])
def test_an_axis_costs_what_the_simulator_says(kind: str) -> None:
    """Two nodes of four; along x one device of each node, four groups that share the network; along y
    neighbors.
    """
    hardware = cluster(2, 4, link=FAST, network=SLOW)
    grid = mesh_on(hardware, [("x", 2), ("y", 4)])
    for axis in (0, 1):
        groups = Collective(kind, 1.0, grid.sizes[axis], grid.strides[axis]).groups(range(8))
        assert grid.seconds(kind, axis, 4000.0) == Network(hardware).groups(kind, groups, 4000.0).seconds
    assert grid.seconds("all_gather", 1, 4000.0) == closed_forms.ring_reduce_scatter(FAST, 4, 4000.0)
    assert grid.slowest == 0
