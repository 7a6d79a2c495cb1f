"""Mutants of convolutions: right and wrong positions by box, corrections, what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from experiments.compilation.policies.pet import Pet
from experiments.compilation.policies.pet.boxes import MutantVerdict, compare
from experiments.compilation.policies.pet.expressions import WIDTH, Convolution, Image
from experiments.compilation.policies.pet.mutants import Apart, Change, Side, mutant, mutants
from tests.experiments.compilation.graphs import rewritten

pytestmark = pytest.mark.torch


def conv(
    width: int = 16, kernel: int = 3, padding: int = 1, dilation: int = 1, stride: int = 1
) -> Convolution:
    """Two images of two channels."""
    image = Image((2, 2, 16, width))
    weight = (2, 2, kernel, kernel)
    return Convolution(image, weight, (stride, stride), (padding, padding), (dilation, dilation))


def verdict(original: Convolution, *changes: Change) -> MutantVerdict:
    program = mutant(original, changes)
    assert program is not None
    assert program.shape == original.shape
    return compare(original, program)


def wrong_columns(found: MutantVerdict) -> list[list[int]]:
    """Of each image, and every row is wrong there."""
    assert (found.wrong.all(axis=1) == found.wrong.any(axis=1)).all()
    return [np.flatnonzero(image.any(axis=0)).tolist() for image in found.wrong]


JOINED = Side(WIDTH, 2)


def test_two_images_joined_along_their_width_are_wrong_at_the_seam_alone() -> None:
    found = verdict(conv(), JOINED)
    assert wrong_columns(found) == [[15], [0]]
    assert found.right_share == 1 - 2 / 32
    # Rows {0}, {1..14}, {15}; columns of either image {0}, {1..14}, {15}; two images: 18 boxes.
    assert found.boxes == 18


def test_the_seam_is_as_wide_as_the_window_reaches() -> None:
    assert wrong_columns(verdict(conv(kernel=5, padding=2), JOINED)) == [[14, 15], [0, 1]]
    assert wrong_columns(verdict(conv(padding=2, dilation=2), JOINED)) == [[14, 15], [0, 1]]
    assert wrong_columns(verdict(conv(stride=2), JOINED)) == [[], [0]]
    assert not verdict(conv(), Side(WIDTH, 2, gap=1)).wrong.any()


def test_an_odd_width_at_stride_two_gives_another_shape() -> None:
    assert mutant(conv(width=15, stride=2), (JOINED,)) is None


def test_a_dilated_convolution_is_a_plain_one_of_rows_and_columns_apart() -> None:
    assert not verdict(conv(padding=2, dilation=2), Apart(2)).wrong.any()
    assert not verdict(conv(width=15, padding=3, dilation=2), Apart(2)).wrong.any()


def reference(x: torch.Tensor, weight: torch.Tensor, of: Convolution) -> torch.Tensor:
    return torch.conv2d(x, weight, None, of.stride, of.padding, of.dilation)


@settings(max_examples=25)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
    st.tuples(st.integers(5, 8), st.integers(5, 8)),
)
def test_boxes_say_exactly_where_a_mutant_differs(
    kernel: tuple[int, int], padding: tuple[int, int], stride: int, dilation: int, size: tuple[int, int]
) -> None:
    """Against a comparison of every element over integers modulo the prime."""
    original = Convolution(
        Image((2, 1, *size)), (1, 1, *kernel), (stride, stride), padding, (dilation, dilation)
    )
    if min(original.shape) < 1:
        return
    where = np.array(list(np.ndindex(*original.shape)))
    for found in mutants(original, 2):
        truth = np.zeros(len(where), dtype=bool)
        for seed in range(2):
            truth |= original.at(where, seed) != found.program.at(where, seed)
        shape = (original.shape[0], *original.shape[2:])
        assert (compare(original, found.program).wrong == truth.reshape(shape)).all(), str(found)


def test_points_of_an_expression_are_the_convolution() -> None:
    """All elements of a strided, padded, dilated convolution, as torch computes them."""
    from experiments.compilation.policies.pet.expressions import PRIME, noise

    of = conv(width=9, padding=1, dilation=2, stride=2)
    where = np.array(list(np.ndindex(*of.shape)))
    x = noise(np.arange(np.prod(of.source.shape)), 0).reshape(of.source.shape)
    weight = noise(np.arange(np.prod(of.weight)), 1).reshape(of.weight)
    expected = reference(torch.tensor(x, dtype=torch.float64), torch.tensor(weight, dtype=torch.float64), of)
    assert (of.at(where, 0).reshape(of.shape) == expected.numpy().astype(np.int64) % PRIME).all()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 4, 3, padding=1), (2, 3, 5, 16)),
        (nn.Conv2d(3, 4, 5, padding=2, stride=2, bias=False), (4, 3, 8, 8)),
        (nn.Conv2d(3, 4, 3, padding=2, dilation=2), (2, 3, 9, 11)),
        (nn.Conv2d(2, 2, (1, 3), padding=(0, 1)), (2, 2, 6, 7)),
    ],
)
def test_a_corrected_mutant_is_exact(layer: nn.Conv2d, shape: tuple[int, ...]) -> None:
    """Whatever mutant is the cheapest here; ``rewritten`` compares floats, and whole numbers
    place by place.
    """
    done, _, check = rewritten(nn.Sequential(layer, nn.ReLU()), Pet(always=True), torch.randn(shape))
    assert len(done.applied) == 1, done.refused
    assert check.ok, check.counterexample


def test_grouped_convolutions_are_left_alone() -> None:
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=2)
    done, _, _ = rewritten(layer, Pet(always=True), torch.randn(2, 4, 6, 6))
    assert list(done.refused.values()) == ["convolves groups of channels apart"]
