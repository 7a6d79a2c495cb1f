"""ONNX operators that move values (shapes, slices, indices) give what onnxruntime gives."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from experiments.core.errors import BadInput  # noqa: E402
from tests.experiments.models.one_node import agrees, by_us, different, node_model, reals, whole  # noqa: E402

pytestmark = pytest.mark.torch

# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "allowzero"), [((4, -1), 0), ((0, -1), 0), ((0, 0, 2, 2), 0), ((-1,), 0), ((1, 24, 1), 0)]
)
def test_reshape(sizes: tuple[int, ...], allowzero: int) -> None:
    """A zero keeps the size that stands there."""
    agrees("Reshape", reals(2, 3, 4), whole(*sizes), allowzero=allowzero)


def test_reshape_to_nothing() -> None:
    agrees("Reshape", np.zeros((0, 3), np.float32), whole(3, 0), allowzero=1)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten(axis: int) -> None:
    agrees("Flatten", reals(2, 3, 4), axis=axis)


def test_axes_are_added_taken_and_turned() -> None:
    x = reals(1, 3, 1, 4)
    agrees("Unsqueeze", x, whole(0, -1, 3))
    agrees("Unsqueeze", x, version=11, axes=[1, -1])
    agrees("Squeeze", x, whole(0, -2))
    agrees("Squeeze", x)
    agrees("Squeeze", x, version=11, axes=[2])
    agrees("Transpose", x)
    agrees("Transpose", x, perm=[3, 0, 2, 1])
    agrees("Expand", x, whole(2, 1, 1, 5, 1))
    agrees("Tile", x, whole(2, 1, 3, 2))
    agrees("Concat", x, x, x, axis=-2)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([1], [3], [0], [1]),
        ([-3], [-1], [-1], None),
        ([0, 1], [99, -1], [1, 0], [2, 1]),
        ([-1], [-99], [1], [-1]),  # all of it backwards
        ([3], [0], [1], [-2]),  # 3, 1
        ([99], [-5], [1], [-2]),  # from the last one; -5 is the first, which is left out
        ([2], [2], [0], None),  # nothing
        ([3], [1], [0], None),  # nothing either
        ([1, 2], [3, 4], None, None),
    ],
)
def test_slices(starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> None:
    optional = [None if value is None else whole(*value) for value in (axes, steps)]
    agrees("Slice", reals(4, 5), whole(*starts), whole(*ends), *optional)


def test_slices_of_old_versions() -> None:
    agrees("Slice", reals(4, 5), version=9, starts=[1, -2], ends=[3, 99], axes=[0, 1])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("axes", [None, (1,), (-1, 0)])
def test_pads(mode: str, axes: tuple[int, ...] | None) -> None:
    count = 2 * (2 if axes is None else len(axes))
    pads = whole(*(2, 1, 0, 2)[:count])
    value = np.array(3.5, np.float32) if mode == "constant" else None
    agrees("Pad", reals(3, 4), pads, value, None if axes is None else whole(*axes), mode=mode)


def test_pads_that_cut() -> None:
    agrees("Pad", reals(4, 5), whole(-1, 2, 1, -2))
    agrees("Pad", reals(4, 5), version=2, pads=[0, 1, 2, 0], mode="constant", value=1.5)


def test_splits() -> None:
    x = reals(7, 4)
    agrees("Split", x, whole(3, 0, 4), outputs=3, axis=-2)
    agrees("Split", x, outputs=3, num_outputs=3)  # 3, 3 and the rest: 1
    agrees("Split", x, version=11, outputs=2, axis=1, split=[1, 3])
    agrees("Split", x, version=13, outputs=2, axis=1)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_becomes_space(mode: str) -> None:
    agrees("DepthToSpace", reals(2, 12, 2, 3), blocksize=2, mode=mode)


def test_space_becomes_depth_and_triangles() -> None:
    agrees("SpaceToDepth", reals(2, 3, 4, 6), blocksize=2)
    for upper in (0, 1):
        for k in (-1, 0, 2):
            agrees("Trilu", reals(2, 3, 4), np.array(k, np.int64), upper=upper)


# --- indices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    """By a table of indices, by one, and from the end."""
    x = reals(4, 3, 5)
    agrees("Gather", x, np.array([[0, 2], [-1, 1]]), axis=axis)
    agrees("Gather", x, np.array(-2), axis=axis)
    agrees("GatherElements", x, np.random.default_rng(0).integers(-3, 3, (4, 3, 5)), axis=axis)


def test_words_are_looked_up_from_the_end_too() -> None:
    agrees("Gather", reals(6, 4), np.array([[0, 5], [2, 1]]))
    agrees("Gather", reals(6, 4), np.array([[0, -1], [2, -6]]))


@pytest.mark.parametrize(("batch_dims", "shape"), [(0, (2, 2)), (0, (3, 1)), (1, (2, 4, 1)), (2, (2, 3, 1))])
def test_gather_by_several_indices(batch_dims: int, shape: tuple[int, ...]) -> None:
    indices = np.random.default_rng(0).integers(-2, 2, shape)
    agrees("GatherND", reals(2, 3, 4), indices, batch_dims=batch_dims)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(reduction: str) -> None:
    """One row meets itself twice, but for plain writing, where the standard leaves the order open."""
    indices = np.array([[0, -1, 1]] if reduction == "none" else [[0, -1, 0]])
    agrees(
        "ScatterElements", reals(3, 4), indices, reals(1, 3, seed=1), axis=-1, reduction=reduction, version=18
    )


def test_scatter_by_several_indices() -> None:
    x, rows = reals(4, 3), np.array([[1], [-1]])
    agrees("ScatterND", x, rows, reals(2, 3, seed=1))
    agrees("ScatterND", x, np.array([[1], [1]]), reals(2, 3, seed=1), reduction="add")
    model = node_model("ScatterND", (x, rows, reals(2, 3)), 18, reduction="mul")
    with pytest.raises(BadInput, match="scattering with reduction 'mul'"):
        by_us(model, {"x0": x, "x1": rows, "x2": reals(2, 3)}, "y0")


def test_the_largest_and_the_least() -> None:
    x = different(3, 5)
    for axis, count in ((0, 2), (1, 4), (-1, 1)):
        for largest in (0, 1):
            agrees("TopK", x, whole(count), outputs=2, axis=axis, largest=largest)
    agrees("TopK", x, version=1, outputs=2, k=2, axis=1)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(exclusive: int, reverse: int) -> None:
    for axis in (0, -1):
        agrees("CumSum", reals(3, 4), np.array(axis), exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    """Of 4 places; -1 is the last, 4 is none."""
    agrees("OneHot", np.array([[0, -1, 4], [3, -4, 1]]), whole(4), np.array([-1, 5], np.float32), axis=axis)
