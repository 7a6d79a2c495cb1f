"""Layouts and convolutions asked for single elements: all of them together are what numpy and torch make."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.policies.pet.expressions import (
    HEIGHT,
    PRIME,
    WIDTH,
    Convolution,
    Expression,
    Fold,
    Gather,
    Image,
    Scatter,
    Swap,
    Unfold,
    WindowAxes,
    noise,
    split_at,
    starts,
)

pytestmark = pytest.mark.torch
Array = npt.NDArray[np.int64]


def everything(expression: Expression, seed: int = 0) -> Array:
    """All elements of an expression."""
    where = np.array(list(np.ndindex(*expression.shape)))
    return expression.at(where, seed).reshape(expression.shape)


def picture(*shape: int) -> tuple[Image, Array]:
    image = Image((shape[0], shape[1], shape[2], shape[3]))
    return image, everything(image)


# --- values ---------------------------------------------------------------------------------------


def test_values_are_below_the_prime_and_change_with_seed_and_place() -> None:
    values = noise(np.arange(5000), 0)
    assert values.min() >= 0 and values.max() < PRIME
    # 5,000 draws of 65,521 values: about 190 pairs meet by chance, never most of them.
    assert len(set(values.tolist())) > 4700
    assert (noise(np.arange(5000), 1) != values).mean() > 0.99


def test_the_field_is_of_a_prime() -> None:
    assert all(PRIME % divisor for divisor in range(2, 256)) and PRIME < 2**16


def test_outside_of_an_image_is_nothing() -> None:
    """All around a picture of 2 x 3, and in a channel and an image that there are not."""
    image, _ = picture(1, 1, 2, 3)
    outside = [(0, 0, -1, 0), (0, 0, 2, 0), (0, 0, 0, -1), (0, 0, 0, 3), (0, 1, 0, 0), (1, 0, 0, 0)]
    assert image.at(np.array(outside), 0).tolist() == [0] * 6
    assert image.at(np.array([(0, 0, 1, 2)]), 0)[0] == noise(np.array([5]), 0)[0]


# --- layouts --------------------------------------------------------------------------------------


def test_images_side_by_side() -> None:
    """Four images of 2 x 3 become two of 2 x 6: the second half of the first is image 1."""
    image, x = picture(4, 1, 2, 3)
    folded = everything(Fold(image, WIDTH, 2))
    assert folded.shape == (2, 1, 2, 6)
    assert (folded[0, :, :, :3] == x[0]).all() and (folded[0, :, :, 3:] == x[1]).all()
    assert (folded[1, :, :, 3:] == x[3]).all()


LAYOUTS: dict[str, tuple[Callable[[Image], Expression], Callable[[Array], Array]]] = {
    "width and height": (Swap, lambda x: x.transpose(0, 1, 3, 2)),
    "two along height": (
        lambda i: Fold(i, HEIGHT, 2),
        lambda x: np.stack([np.concatenate(x[n : n + 2], axis=1) for n in range(0, len(x), 2)]),
    ),
    "all along width": (lambda i: Fold(i, WIDTH, 4), lambda x: np.concatenate(x, axis=2)[None]),
    "apart along width": (
        lambda i: Unfold(i, WIDTH, 3),
        lambda x: np.stack([part for image in x for part in np.split(image, 3, axis=2)]),
    ),
    "apart along height": (
        lambda i: Unfold(i, HEIGHT, 2),
        lambda x: np.stack([part for image in x for part in np.split(image, 2, axis=1)]),
    ),
    "every second apart": (
        lambda i: Scatter(i, 2),
        lambda x: np.stack([image[:, r::2, c::2] for image in x for r in (0, 1) for c in (0, 1)]),
    ),
    "cut": (lambda i: WindowAxes(i, HEIGHT, 1, 2), lambda x: x[:, :, 1:3]),
    "zeros before and behind": (
        lambda i: WindowAxes(i, WIDTH, -2, 11),
        lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (2, 3))),
    ),
    "images and their halves": (lambda i: WindowAxes(i, 0, 1, 2), lambda x: x[1:3]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_those_of_numpy(name: str) -> None:
    """Four images of two channels of 4 x 6."""
    image, x = picture(4, 2, 4, 6)
    build, expected = LAYOUTS[name]
    found, truth = everything(build(image)), expected(x)
    assert found.shape == truth.shape and (found == truth).all()


@given(
    st.sampled_from([(Fold, Unfold, 2), (Fold, Unfold, 4), (Scatter, Gather, 1), (Scatter, Gather, 2)]),
    st.booleans(),
)
def test_every_layout_has_its_reverse(pair: tuple[type, type, int], along_height: bool) -> None:
    there, back, count = pair
    image, x = picture(4, 1, 4, 8)
    if there is Fold:
        axis = HEIGHT if along_height else WIDTH
        restored = back(there(image, axis, count), axis, count)
    else:
        restored = back(there(image, count), count)
    assert restored.shape == image.shape and (everything(restored) == x).all()


# --- convolutions ---------------------------------------------------------------------------------


def by_torch(of: Convolution, x: Array, seed: int = 0) -> Array:
    weight = noise(np.arange(np.prod(of.weight)), 2 * seed + 1).reshape(of.weight)
    if of.transposed:
        weight = weight.transpose(0, 1, 3, 2)
    tensors = (torch.tensor(np.ascontiguousarray(values), dtype=torch.float64) for values in (x, weight))
    result = torch.conv2d(*tensors, None, of.stride, of.padding, of.dilation)
    return result.numpy().astype(np.int64) % PRIME


pairs = st.tuples(st.integers(1, 2), st.integers(1, 2))


@settings(max_examples=30)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pairs,
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    pairs,
    st.booleans(),
)
def test_every_element_of_a_convolution_is_torchs(
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    transposed: bool,
) -> None:
    image, x = picture(2, 2, 6, 7)
    of = Convolution(image, (3, 2, *kernel), stride, padding, dilation, transposed)
    expected = by_torch(of, x)
    assert of.shape == expected.shape
    assert (everything(of) == expected).all()


def test_a_transposed_convolution_of_a_turned_picture_is_the_turned_convolution() -> None:
    image, _ = picture(1, 2, 4, 6)
    plain = Convolution(image, (2, 2, 1, 3), (2, 1), (0, 2), (1, 2))
    turned = Convolution(Swap(image), (2, 2, 1, 3), (1, 2), (2, 0), (2, 1), transposed=True)
    assert (everything(Swap(turned)) == everything(plain)).all()


def test_a_kernel_that_does_not_fit_makes_nothing() -> None:
    image, _ = picture(1, 1, 2, 2)
    assert Convolution(image, (1, 1, 3, 3)).shape == (1, 1, 0, 0)


# --- cuts -----------------------------------------------------------------------------------------


def test_an_axis_is_cut_where_a_point_lies_inside() -> None:
    assert split_at(5, {0, 2, 5, 9, -1}) == (range(0, 2), range(2, 5))
    assert split_at(3, set()) == (range(3),)
    assert starts((range(0, 2), range(2, 5))) == {0, 2}
    assert starts((range(0, 6, 2), range(1, 6, 2))) == {0, 1, 2, 3, 4, 5}


def test_a_padded_convolution_has_a_border_of_its_own() -> None:
    """5 rows, kernel 3, padding 1: the first and the last row read a zero."""
    image, _ = picture(1, 1, 5, 9)
    assert Convolution(image, (1, 1, 3, 3), padding=(1, 1)).cuts(HEIGHT) == (
        range(0, 1),
        range(1, 4),
        range(4, 5),
    )
    assert Convolution(image, (1, 1, 3, 3)).cuts(HEIGHT) == (range(0, 3),)
    dilated = Convolution(image, (1, 1, 1, 3), padding=(0, 2), dilation=(1, 2))
    assert dilated.cuts(WIDTH) == (range(0, 2), range(2, 7), range(7, 9))


def test_images_side_by_side_are_cut_at_their_seams() -> None:
    image, _ = picture(4, 1, 2, 3)
    assert Fold(image, WIDTH, 4).cuts(WIDTH) == (range(0, 3), range(3, 6), range(6, 9), range(9, 12))
    assert Fold(image, WIDTH, 2).cuts(0) == (range(0, 1), range(1, 2))
    assert Gather(Image((4, 1, 2, 3)), 2).cuts(WIDTH) == (range(0, 6, 2), range(1, 7, 2))


EXPRESSIONS: list[Callable[[Image], Expression]] = [
    Swap,
    lambda i: WindowAxes(i, WIDTH, -1, 9),
    lambda i: Fold(i, HEIGHT, 2),
    lambda i: Unfold(Fold(i, WIDTH, 2), WIDTH, 2),
    lambda i: Gather(Scatter(i, 2), 2),
    lambda i: Convolution(Fold(i, WIDTH, 2), (1, 1, 3, 3), padding=(1, 1)),
    lambda i: Unfold(Convolution(Fold(i, WIDTH, 2), (1, 1, 3, 3), padding=(1, 1)), WIDTH, 2),
    lambda i: Gather(Convolution(Scatter(i, 2), (1, 1, 3, 3), padding=(1, 1)), 2),
    lambda i: WindowAxes(Convolution(i, (1, 1, 2, 2), (2, 2)), HEIGHT, 1, 2),
]


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)))
def test_cuts_hold_every_position_once(number: int) -> None:
    expression = EXPRESSIONS[number](Image((4, 1, 6, 6)))
    for axis, size in enumerate(expression.shape):
        cuts = expression.cuts(axis)
        assert sorted(itertools.chain(*cuts)) == list(range(size)), axis
