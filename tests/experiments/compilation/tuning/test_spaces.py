"""Spaces of schedules as numbers, and their loop nests: points, cuts, footprints and strides, by walking
the loops.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.interface.tuning import (
    BufferAccess,
    Contraction,
    ScheduleKnob,
    ScheduleSpace,
    TuningTask,
)
from experiments.compilation.planning.tuning.features import comparable, features, knob_features
from experiments.compilation.planning.tuning.nests import nests_of
from experiments.compilation.planning.tuning.schedules import (
    divisors,
    factorizations,
    schedule_of,
    sketch_space,
    template_space,
)
from experiments.compilation.planning.tuning.sketches import SketchStage, derive, needs_rfactor, ways_of

#: Three knobs of 2, 3 and 4 values: point 23 is the last of each.
SPACE = ScheduleSpace(
    (
        ScheduleKnob("a", ("x", "y")),
        ScheduleKnob("b", (1, 2, 3), "unroll"),
        ScheduleKnob("c", ((1, 8), (2, 4), (4, 2), (8, 1)), "tile"),
    )
)
spaces = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
    lambda sizes: ScheduleSpace(tuple(ScheduleKnob(f"k{i}", tuple(range(n))) for i, n in enumerate(sizes)))
)


# --- points ---------------------------------------------------------------------------------------


def test_the_first_knob_counts_least() -> None:
    assert SPACE.size == 24
    assert SPACE.config(0) == {"a": "x", "b": 1, "c": (1, 8)}
    assert SPACE.config(1) == {"a": "y", "b": 1, "c": (1, 8)}
    assert SPACE.config(2) == {"a": "x", "b": 2, "c": (1, 8)}
    assert SPACE.config(23) == {"a": "y", "b": 3, "c": (8, 1)}
    assert SPACE.index({"a": "y", "b": 3, "c": (2, 4)}) == 1 + 2 * 2 + 6 * 1


def test_a_space_beyond_63_bits_keeps_its_points_apart() -> None:
    """2^70 points: neighbors would be one number as 64-bit integers."""
    large = ScheduleSpace(tuple(ScheduleKnob(f"k{i}", (0, 1)) for i in range(70)))
    last = large.size - 1
    assert large.indices(large.digits([last, last - 1, 2**64])) == [last, last - 1, 2**64]
    assert large.config(last - 1)["k0"] == 0 and not large.is_small


def test_a_recorded_table_has_only_its_points() -> None:
    table = ScheduleSpace(SPACE.knobs, listed=(3, 20, 7))
    assert table.size == 3 and list(table.points()) == [3, 20, 7]
    drawn = table.indices(table.random_digits(50, np.random.default_rng(0)))
    assert set(drawn) == {3, 20, 7}
    assert sorted(table.fresh(9, {7}, np.random.default_rng(0))) == [3, 20]


# --- cuts -----------------------------------------------------------------------------------------


@given(st.integers(1, 400))
def test_divisors(number: int) -> None:
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 64))
def test_cuts_are_all_ordered_products(extent: int, parts: int, innermost: int) -> None:
    choices = itertools.product(divisors(extent), repeat=parts)
    expected = {cut for cut in choices if math.prod(cut) == extent and cut[-1] <= innermost}
    found = factorizations(extent, parts, innermost)
    assert len(found) == len(set(found)) and set(found) == expected


def matmul(m: int = 4, n: int = 6, k: int = 8) -> Contraction:
    return Contraction(
        "matmul",
        (("m", m), ("n", n)),
        (("k", k),),
        BufferAccess("c", (m, n), ({"m": 1}, {"n": 1})),
        (BufferAccess("a", (m, k), ({"m": 1}, {"k": 1})), BufferAccess("b", (k, n), ({"k": 1}, {"n": 1}))),
    )


def window(out: int = 4, kernel: int = 3) -> Contraction:
    """y[f, o] = sum over w of x[o + w] w[f, w], for two filters."""
    return Contraction(
        "conv",
        (("f", 2), ("o", out)),
        (("w", kernel),),
        BufferAccess("y", (2, out), ({"f": 1}, {"o": 1})),
        (
            BufferAccess("x", (out + kernel - 1,), ({"o": 1, "w": 1},)),
            BufferAccess("w", (2, kernel), ({"f": 1}, {"w": 1})),
        ),
    )


def test_a_space_of_sketches_has_every_cut() -> None:
    """4 as four factors: 10 ways, 6: 16; 8 as two: 4. One sketch, 4 limits of unrolling, 0 to 2 parallel
    loops.
    """
    sketches = derive((SketchStage("c", 24, 8, reuses=True),), cores=1)
    space = sketch_space(matmul(), sketches)
    assert [len(knob.values) for knob in space.knobs] == [len(sketches), 10, 16, 4, 1, 4, 3]


def test_a_template_orders_the_outer_loops_of_axes_that_have_any() -> None:
    """A template cuts an axis in three: its second level is 1."""
    space = template_space(matmul(m=1))
    knobs = {knob.name: knob.values for knob in space.knobs}
    assert knobs["order"] == ("n",), "the axis of one row has no loop"
    assert all(cut[1] == 1 for cut in knobs["tile_n"])  # type: ignore[index]
    assert knobs["vectorize"] == (1, 4, 8, 16)


@pytest.mark.parametrize(
    ("innermost", "wanted", "lanes"), [(8, 16, 8), (6, 16, 1), (4, 1, 1), (16, 8, 8), (12, 16, 4)]
)
def test_lanes_divide_the_innermost_loop(innermost: int, wanted: int, lanes: int) -> None:
    config = {
        "tile_m": (1, 1, 1, 4),
        "tile_n": (1, 1, 1, innermost),
        "tile_k": (1, 8),
        "vectorize": wanted,
        "unroll": 16,
        "parallel": 1,
    }
    schedule = schedule_of(matmul(n=innermost), config)
    assert (schedule.lanes, schedule.sketch, schedule.order) == (lanes, "fused-2", "m")
    assert schedule.to_json()["tiles"] == {"m": [1, 1, 1, 4], "n": [1, 1, 1, innermost], "k": [1, 8]}


# --- sketches -------------------------------------------------------------------------------------


def test_stages_by_ansors_rules() -> None:
    """A product is tiled in three ways; a rectifier before it is inlined, one behind it is left as the
    output.
    """
    product, relu = SketchStage("product", 4096, 64, reuses=True), SketchStage("relu", 4096, inlinable=True)
    assert ways_of(product, 8, is_output=False) == ("fused-1", "fused-2", "tile")
    assert ways_of(relu, 8, is_output=False) == ("inline",)
    assert ways_of(relu, 8, is_output=True) == ("skip",)
    found = derive((relu, product), cores=8)
    assert [sketch.steps for sketch in found] == [
        (("relu", "inline"), ("product", way)) for way in ("fused-1", "fused-2", "tile")
    ]
    assert [sketch.keeps for sketch in found] == ["fused-1", "fused-2", "tile"]


@pytest.mark.parametrize(
    ("stage", "cores", "needed"),
    [
        (SketchStage("few outputs", 16, 1024, reuses=True), 1, True),
        (SketchStage("more than 16 for a core", 17, 1024, reuses=True), 1, False),
        (SketchStage("enough for two cores", 17, 1024, reuses=True), 2, True),
        (SketchStage("sums no longer than outputs", 16, 15, reuses=True), 1, False),
        (SketchStage("a norm", 1, 9), 8, True),
        (SketchStage("a short norm", 1, 8), 8, False),
    ],
)
def test_a_reduction_is_divided_where_outputs_are_few(stage: SketchStage, cores: int, needed: bool) -> None:
    assert needs_rfactor(stage, cores) is needed
    assert ("rfactor-outer" in ways_of(stage, cores, is_output=True)) is needed


# --- nests ----------------------------------------------------------------------------------------


def walked(
    nest: Contraction, tiles: dict[str, tuple[int, ...]]
) -> tuple[list[tuple[str, int]], list[list[int]]]:
    """Loops outside in (axis, extent), and for each buffer how many elements each loop and all inside it
    touch.
    """
    spatial, reduce = [axis for axis, _ in nest.spatial], [axis for axis, _ in nest.reduce]
    structure = [(spatial, 0), (spatial, 1), (reduce, 0), (spatial, 2), (reduce, 1), (spatial, 3)]
    loops = [(axis, level) for axes, level in structure for axis in axes]
    extents = [(axis, tiles[axis][level]) for axis, level in loops]
    touched = []
    for access in (nest.output, *nest.inputs):
        row = []
        for start in range(len(loops)):
            seen = set()
            for steps in itertools.product(*(range(extent) for _, extent in extents[start:])):
                value = dict.fromkeys((axis for axis, _ in nest.axes), 0)
                for (axis, level), step in zip(loops[start:], steps, strict=True):
                    value[axis] += step * math.prod(tiles[axis][level + 1 :])
                seen.add(tuple(sum(value[a] * c for a, c in form.items()) for form in access.forms))
            row.append(len(seen))
        touched.append(row)
    return extents, touched


@pytest.mark.parametrize(
    ("nest", "tiles"),
    [
        (matmul(), {"m": (2, 1, 1, 2), "n": (1, 3, 1, 2), "k": (2, 4)}),
        (matmul(), {"m": (1, 2, 2, 1), "n": (2, 1, 3, 1), "k": (8, 1)}),
        (window(), {"f": (1, 2, 1, 1), "o": (2, 1, 1, 2), "w": (1, 3)}),
        (window(), {"f": (2, 1, 1, 1), "o": (1, 2, 2, 1), "w": (3, 1)}),
    ],
)
def test_loops_touch_what_walking_them_touches(nest: Contraction, tiles: dict[str, tuple[int, ...]]) -> None:
    knobs = [ScheduleKnob(f"tile_{axis}", (lengths,), "tile") for axis, lengths in tiles.items()]
    knobs += [ScheduleKnob("vectorize", (16,)), ScheduleKnob("unroll", (64,)), ScheduleKnob("parallel", (1,))]
    space = ScheduleSpace(tuple(knobs))
    nests = nests_of(nest, space, np.zeros((1, len(knobs)), np.int64))
    extents, touched = walked(nest, tiles)
    assert nests.extent[0].tolist() == [extent for _, extent in extents]
    assert nests.touched[:, 0].tolist() == touched
    inside = [math.prod(extent for _, extent in extents[place:]) for place in range(len(extents))]
    assert nests.inside[0].tolist() == inside
    assert (nests.outside * nests.inside == inside[0]).all()
    assert nests.parallel_loops[0].tolist() == [True] + [False] * (len(extents) - 1)
    assert nests.local[0] == 2 and nests.rfactor[0] == 0


def test_strides_are_what_a_step_moves() -> None:
    """Of b [8, 6]: a step of the outer k loop of 4 each skips 4 rows of 6; of n, as many columns as lie
    inside.
    """
    tiles = {"m": (2, 1, 1, 2), "n": (1, 3, 1, 2), "k": (2, 4)}
    knobs = [ScheduleKnob(f"tile_{axis}", (lengths,)) for axis, lengths in tiles.items()]
    knobs += [ScheduleKnob(name, (1,)) for name in ("vectorize", "unroll", "parallel")]
    nests = nests_of(matmul(), ScheduleSpace(tuple(knobs)), np.zeros((1, 6), np.int64))
    # Loops: m0 n0 m1 n1 k0 m2 n2 k1 m3 n3.
    assert nests.stride[2, 0].tolist() == [0, 6, 0, 2, 24, 0, 2, 6, 0, 1]
    assert nests.stride[0, 0].tolist() == [12, 6, 12, 2, 0, 12, 2, 0, 6, 1]


def test_a_window_reads_its_neighbors_by_one() -> None:
    access = window().inputs[0]
    assert (access.coefficient("o"), access.coefficient("w"), access.coefficient("f")) == (1, 1, 0)
    assert matmul().inputs[1].strides == (6, 1) and matmul().flops == 2 * 4 * 6 * 8


# --- features -------------------------------------------------------------------------------------


def test_knobs_as_numbers() -> None:
    """A name is its place, a cut its lengths, a missing value -1."""
    space = ScheduleSpace(
        (
            ScheduleKnob("name", ("x", "y")),
            ScheduleKnob("cut", ((1, 8), (2, 2, 2), None)),
            ScheduleKnob("size", (4, 0.5)),
        )
    )
    rows = knob_features(space, np.array([[0, 0, 0], [1, 1, 1], [1, 2, 0]]))
    assert rows.tolist() == [[0, 1, 8, -1, 4], [1, 2, 2, 2, 0.5], [1, -1, -1, -1, 4]]


def test_curves_compare_tasks_that_knobs_do_not() -> None:
    """A product and a convolution: their curves have the same columns, their knobs other names."""
    sketches = derive((SketchStage("c", 24, 8, reuses=True),), cores=1)
    one, other = (
        TuningTask(nest.operator, nest.operator, sketch_space(nest, sketches), nest=nest)
        for nest in (matmul(), window())
    )
    assert comparable("curve", one, other) and not comparable("knob", one, other)
    digits = [task.space.random_digits(5, np.random.default_rng(0)) for task in (one, other)]
    curves = [features("curve", task, rows) for task, rows in zip((one, other), digits, strict=True)]
    assert curves[0].shape == curves[1].shape == (5, 3 * 20)
    assert features("itervar", one, digits[0]).shape[0] == 5


def test_a_curve_only_rises() -> None:
    """At a larger reuse at least as many elements may be touched."""
    sketches = derive((SketchStage("c", 24, 8, reuses=True),), cores=1)
    task = TuningTask("m", "matmul", sketch_space(matmul(), sketches), nest=matmul())
    rows = features("curve", task, task.space.random_digits(20, np.random.default_rng(0)))
    assert (np.diff(rows.reshape(20, 3, 20), axis=2) >= 0).all()
