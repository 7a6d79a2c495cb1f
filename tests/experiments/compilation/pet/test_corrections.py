"""Wrong positions as rectangles, and mutants with their corrections carried out by torch at every
position."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.extra import numpy as arrays

from experiments.compilation.interface import INPUT, OP, OUTPUT, Graph, GraphNode, Ref
from experiments.compilation.policies.pet import Pet, convolution_of, judge_mutants
from experiments.compilation.policies.pet.boxes import MutantVerdict, Rectangle, compare, refine
from experiments.compilation.policies.pet.expressions import HEIGHT, WIDTH, Convolution, Image
from experiments.compilation.policies.pet.lowering import MutantLowering
from experiments.compilation.policies.pet.mutants import Apart, Side, Swapped, mutants
from tests.experiments.compilation.graphs import ByHand, kind

pytestmark = pytest.mark.torch


# --- rectangles -----------------------------------------------------------------------------------


def marks(*rows: str) -> MutantVerdict:
    """One image; ``x`` is wrong."""
    return MutantVerdict(0, np.array([[[letter == "x" for letter in row] for row in rows]]))


def test_a_seam_is_one_rectangle_in_both_images() -> None:
    """The last column of every image: one patch for the two of them."""
    wrong = np.zeros((2, 3, 4), bool)
    wrong[:, :, 3] = True
    assert MutantVerdict(1, wrong).rectangles() == [Rectangle((0, 2), (0, 3), (3, 4))]
    assert MutantVerdict(1, wrong).right_share == 0.75


def test_images_that_do_not_follow_each_other_have_patches_of_their_own() -> None:
    wrong = np.zeros((3, 2, 2), bool)
    wrong[[0, 2], 0] = True
    assert MutantVerdict(1, wrong).rectangles() == [
        Rectangle((0, 1), (0, 1), (0, 2)),
        Rectangle((2, 3), (0, 1), (0, 2)),
    ]


def test_a_cross_is_its_column_and_what_is_left_of_its_row() -> None:
    found = marks(".x.", "xxx", ".x.").rectangles()
    assert [(r.rows, r.columns) for r in found] == [((0, 3), (1, 2)), ((1, 2), (0, 1)), ((1, 2), (2, 3))]
    assert [r.positions for r in found] == [3, 1, 1]


@given(arrays.arrays(np.bool_, (2, 4, 5)))
def test_rectangles_hold_every_wrong_position_once_and_no_right_one(wrong: np.ndarray[Any, Any]) -> None:
    count = np.zeros(wrong.shape, int)
    for r in MutantVerdict(0, wrong).rectangles():
        count[slice(*r.images), slice(*r.rows), slice(*r.columns)] += 1
    assert (count == wrong).all()


def test_boxes_of_two_programs_lie_in_a_range_of_both() -> None:
    assert refine((range(0, 3), range(3, 6)), (range(0, 6),)) == [(0, 1, 2), (3, 4, 5)]
    assert refine((range(0, 6),), (range(0, 6, 2), range(1, 6, 2))) == [(0, 2, 4), (1, 3, 5)]
    assert refine((range(0, 1), range(1, 6)), (range(0, 6, 2), range(1, 6, 2))) == [(0,), (2, 4), (1, 3, 5)]


# --- by torch -------------------------------------------------------------------------------------


class AtOnce:
    """A draft that computes: a reference is the tensor itself."""

    def op(self, target: str, *arguments: Any, once: bool = False) -> torch.Tensor:
        _, name, overload = target.split(".")
        return getattr(getattr(torch.ops.aten, name), overload)(*arguments)

    def type(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float64))


CONVOLUTIONS = [
    Convolution(Image((batch, 1, height, width)), (2, 1, *kernel), (stride,) * 2, padding, (dilation,) * 2)
    for batch, (height, width), kernel, stride, padding, dilation in itertools.product(
        (2, 3), ((5, 6),), ((1, 3), (3, 3), (2, 1)), (1, 2), ((0, 0), (1, 1), (0, 2)), (1, 2)
    )
]


@pytest.mark.parametrize("batch", [2, 3])
def test_every_mutant_of_every_small_convolution_is_exact_once_corrected(batch: int) -> None:
    """Whole numbers in double precision, so every element is compared exactly; some mutants are wrong
    before.
    """
    right = corrected = 0
    for of in CONVOLUTIONS:
        if of.source.shape[0] != batch or min(of.shape) < 1:
            continue
        x, weight, bias = (
            whole_numbers(0, *of.source.shape),
            whole_numbers(1, *of.weight),
            whole_numbers(2, 2),
        )
        truth = torch.conv2d(x, weight, bias, of.stride, of.padding, of.dilation)
        for mutant in mutants(of, 1):
            verdict = compare(of, mutant.program)
            lowering = MutantLowering(AtOnce(), x, weight, bias)  # type: ignore[arg-type]
            result: Any = lowering.lower(mutant.program)
            differs = (result != truth).any(dim=1).numpy()
            assert (differs <= verdict.wrong).all(), f"{of}: {mutant} is wrong where its verdict says right"
            result = lowering.correct(result, of, verdict.rectangles())
            assert torch.equal(result, truth), f"{of}: {mutant}"
            right, corrected = right + (not verdict.wrong.any()), corrected + bool(verdict.wrong.any())
    assert right > 10 and corrected > 10


def test_a_window_reaches_over_both_ends() -> None:
    lowering = MutantLowering(AtOnce(), None, None, None)  # type: ignore[arg-type]
    x: Any = torch.arange(4.0).reshape(1, 1, 1, 4)
    assert lowering.window(x, WIDTH, 0, 4) is x
    for (first, stop), expected in {
        (1, 3): [1, 2],
        (-2, 1): [0, 0, 0],
        (-1, 6): [0, 0, 1, 2, 3, 0, 0],
        (3, 5): [3, 0],
    }.items():
        found: Any = lowering.window(x, WIDTH, first, stop)
        assert found.flatten().tolist() == expected, (first, stop)


# --- mutants --------------------------------------------------------------------------------------


def conv(batch: int = 2, size: int = 8, kernel: int = 3, padding: int = 1, dilation: int = 1) -> Convolution:
    image = Image((batch, 1, size, size))
    return Convolution(image, (1, 1, kernel, kernel), padding=(padding,) * 2, dilation=(dilation,) * 2)


def names(of: Convolution, depth: int = 1) -> set[str]:
    return {str(mutant) for mutant in mutants(of, depth)}


def test_the_mutants_of_a_square_convolution_of_two_images() -> None:
    assert names(conv()) == {
        "2 images along width",
        "2 images along width with gaps of 1",
        "2 images along height",
        "2 images along height with gaps of 1",
    }


def test_one_image_alone_is_joined_to_nothing() -> None:
    assert names(conv(batch=1)) == set()
    assert names(conv(batch=1, padding=2, dilation=2)) == {"every 2. row and column apart"}


def test_a_square_is_not_turned_and_a_rectangle_is() -> None:
    assert Swapped() not in {change for mutant in mutants(conv(), 1) for change in mutant.changes}
    wide = Convolution(Image((1, 1, 4, 8)), (1, 1, 3, 3), padding=(1, 1))
    assert names(wide) == {"height and width exchanged"}


def test_chains_join_along_both_axes_but_never_turn_twice() -> None:
    """Four images joined two by two along both axes make one; turning twice would be nothing."""
    changes = {mutant.changes for mutant in mutants(conv(batch=4), 2)}
    assert (Side(WIDTH, 2), Side(HEIGHT, 2)) in changes
    wide = Convolution(Image((2, 1, 4, 8)), (1, 1, 3, 3), padding=(2, 2), dilation=(2, 2))
    chains = [mutant.changes for mutant in mutants(wide, 3)]
    assert not any(a == b == Swapped() for chain in chains for a, b in itertools.pairwise(chain))
    assert any(Apart(2) in chain and Swapped() in chain for chain in chains)


def test_the_best_mutants_come_first() -> None:
    """A gap of the padding is exact; without one a column in eight of each image is wrong, 14 of 16 are
    right.
    """
    shares = [verdict.right_share for _, verdict in judge_mutants(conv(), 1)]
    assert shares == [1.0, 1.0, 0.875, 0.875]


# --- the policy -----------------------------------------------------------------------------------


def graph_of(shape: tuple[int, ...], weight: tuple[int, ...], *options: Any) -> Graph:
    """An input, a weight and their convolution with the options after the bias."""
    x, w = (
        GraphNode("x", INPUT, "x", outputs=(kind(*shape),)),
        GraphNode("w", INPUT, "w", outputs=(kind(*weight),)),
    )
    op = GraphNode(
        "conv", OP, "aten.conv2d.default", (Ref("x"), Ref("w"), None, *options), outputs=(kind(1),)
    )
    return Graph((x, w, op, GraphNode("output", OUTPUT, "output", ((Ref("conv"),),))))


def read(*options: Any, shape: tuple[int, ...] = (2, 4, 6, 6)) -> Convolution | str:
    of = graph_of(shape, (4, 4, 3, 3), *options)
    return convolution_of(of.by_name["conv"], of)


def test_a_call_is_read_with_the_defaults_of_what_it_leaves_out() -> None:
    plain = read()
    assert isinstance(plain, Convolution)
    assert (plain.stride, plain.padding, plain.dilation) == ((1, 1), (0, 0), (1, 1))
    single = read((2,), (1,))
    assert isinstance(single, Convolution)
    assert (single.stride, single.padding) == ((2, 2), (1, 1)), "one number is for both axes"


@pytest.mark.parametrize(
    ("options", "shape", "reason"),
    [
        (((1, 1), (0, 0), (1, 1), 2), (2, 8, 6, 6), "convolves groups of channels apart"),
        ((), (4, 6, 6), "has no batch"),
        (((1, 1), "same"), (2, 4, 6, 6), "names its padding"),
    ],
)
def test_what_is_not_read_says_why(options: tuple[Any, ...], shape: tuple[int, ...], reason: str) -> None:
    assert read(*options, shape=shape) == reason


def test_a_mutant_that_costs_more_ops_is_not_taken() -> None:
    """Where every op costs a second nothing is faster than one convolution; a share of 1 leaves
    equivalents.
    """
    of = graph_of((2, 4, 6, 6), (4, 4, 3, 3), (1, 1), (1, 1))

    class Shaped(ByHand):
        """Shapes by torch on tensors of zeros, so that mutants can be put into the graph."""

        def types(self, target: str, arguments: tuple[Any, ...], keywords: Any) -> Any:
            from experiments.compilation.live.types import Inference

            return Inference()(target, arguments, keywords)

    done = Pet(share=0.5).rewrite(of, Shaped())
    assert done.refused == {"conv": "no mutant is faster with its corrections"} and done.graph is of
    assert done.search["convolutions"] == 1 and done.search["equivalent"] < done.search["mutants"]
    assert done.search["priced"] == 5, "no more than the beam are priced"
    strict = Pet(share=1.0).rewrite(of, Shaped())
    assert strict.refused == {"conv": "no mutant"}, "a mutant must be right at more than its share"
    taken = Pet(always=True, depth=1).rewrite(of, Shaped())
    assert [step.rule for step in taken.applied] == ["2 images along width with gaps of 1; equivalent"]
    cut = Pet(evaluations=3).rewrite(of, Shaped())
    assert cut.search["mutants"] == 3
    assert "bound of 3 mutants (knob evaluations)" in cut.ended_at and done.ended_at == ""


# --- a seam by hand -------------------------------------------------------------------------------

#: Sums of three neighbors in two pictures of one row: 6 and 15 each by itself.
ROWS = torch.arange(1.0, 7.0).reshape(2, 1, 1, 3)
THREE = Convolution(Image((2, 1, 1, 3)), (1, 1, 1, 3))
SUM = torch.ones(1, 1, 1, 3)


def lowering(x: Any = ROWS, weight: Any = SUM, bias: Any = None) -> MutantLowering:
    return MutantLowering(AtOnce(), x, weight, bias)  # type: ignore[arg-type]


def side_by_side(gap: int = 0) -> Any:
    """The program that joins both pictures along their width."""
    return next(m.program for m in mutants(THREE, 1) if m.changes == (Side(WIDTH, 2, gap),))


def test_pictures_side_by_side_are_wrong_across_their_seam() -> None:
    """1 2 3 4 5 6 in threes are 6 9 12 15, halved 6 9 and 12 15, of which the first ones count: the second
    picture's 15 has become 12.
    """
    found: Any = lowering().lower(side_by_side())
    assert found.flatten().tolist() == [6.0, 12.0]
    verdict = compare(THREE, side_by_side())
    assert verdict.rectangles() == [Rectangle((1, 2), (0, 1), (0, 1))]
    corrected: Any = lowering().correct(found, THREE, verdict.rectangles())
    assert corrected.flatten().tolist() == [6.0, 15.0]
    assert found.flatten().tolist() == [6.0, 12.0], "what was wrong is replaced, not written over"


def test_a_bias_is_in_the_program_and_in_its_corrections_once_each() -> None:
    biased = lowering(bias=torch.tensor([100.0]))
    found: Any = biased.lower(side_by_side())
    assert found.flatten().tolist() == [106.0, 112.0]
    corrected: Any = biased.correct(found, THREE, [Rectangle((1, 2), (0, 1), (0, 1))])
    assert corrected.flatten().tolist() == [106.0, 115.0]


def test_a_patch_reads_no_more_than_its_windows() -> None:
    """Every second of 0 .. 6 summed in threes two apart, with a zero on each side: taps of the second
    result are at 1, 3 and 5. A poisoned picture shows what else was read.
    """
    of = Convolution(Image((1, 1, 1, 7)), (1, 1, 1, 3), (1, 2), (0, 1), (1, 2))
    row = torch.tensor([7.0, 1.0, 7.0, 3.0, 7.0, 5.0, torch.nan]).reshape(1, 1, 1, 7)
    whole: Any = torch.conv2d(row, SUM, None, of.stride, of.padding, of.dilation)
    assert whole.flatten().tolist() == [4.0, 9.0, 8.0]
    wrong = torch.zeros_like(whole)
    patched: Any = lowering(row).correct(wrong, of, [Rectangle((0, 1), (0, 1), (1, 2))])
    assert patched.flatten().tolist() == [0.0, 9.0, 0.0]


def test_a_patch_in_a_corner_leaves_everything_around_it() -> None:
    """A kernel of one that doubles: images, rows and columns are all parts of theirs."""
    of = Convolution(Image((2, 1, 2, 3)), (1, 1, 1, 1))
    x = torch.arange(12.0).reshape(2, 1, 2, 3)
    double = torch.full((1, 1, 1, 1), 2.0)
    found: Any = lowering(x, double).correct(-x, of, [Rectangle((1, 2), (1, 2), (1, 3))])
    assert found[0].flatten().tolist() == [0, -1, -2, -3, -4, -5]
    assert found[1].flatten().tolist() == [-6, -7, -8, -9, 20, 22]


@pytest.mark.parametrize("kernel", [(1, 3), (3, 3)])
@pytest.mark.parametrize("size", [(5, 5), (5, 7)])
def test_chains_of_two_changes_are_exact_once_corrected(
    kernel: tuple[int, int], size: tuple[int, int]
) -> None:
    """Odd sizes, so that joined pictures end between two rows that are taken apart."""
    of = Convolution(Image((2, 1, *size)), (1, 1, *kernel), padding=(2, 2), dilation=(2, 2))
    x, weight = whole_numbers(0, *of.source.shape), whole_numbers(1, *of.weight)
    truth = torch.conv2d(x, weight, None, of.stride, of.padding, of.dilation)
    chains = [mutant for mutant in mutants(of, 2) if len(mutant.changes) == 2]
    assert {tuple(map(type, mutant.changes)) for mutant in chains} >= {(Side, Apart), (Apart, Side)}
    for mutant in chains:
        verdict = compare(of, mutant.program)
        result: Any = lowering(x, weight).lower(mutant.program)
        differs = (result != truth).any(dim=1).numpy()
        assert (differs <= verdict.wrong).all(), f"{mutant} is wrong where its verdict says right"
        assert torch.equal(lowering(x, weight).correct(result, of, verdict.rectangles()), truth), mutant
