"""Programs of several operators: what the boxes say against all elements, and the corrections by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from experiments.compilation.interface import CONSTANT, INPUT, OP, OUTPUT, Graph, GraphNode, Ref
from experiments.compilation.policies.pet import Pet
from experiments.compilation.policies.pet.assembly import ProgramLowering
from experiments.compilation.policies.pet.generator import inputs_of, programs
from experiments.compilation.policies.pet.multilinear import (
    Convolved,
    Input,
    Multilinear,
    Product,
    Sum,
    all_positions,
)
from experiments.compilation.policies.pet.rearranged import (
    Composed,
    Joined,
    MergedRows,
    SplitRows,
    transpose,
)
from experiments.compilation.policies.pet.regions import compare_programs, merge_regions, regions_of
from experiments.compilation.policies.pet.subprograms import subprograms
from tests.experiments.compilation.graphs import ByHand, kind
from tests.experiments.compilation.pet.test_corrections import AtOnce, whole_numbers

pytestmark = pytest.mark.torch


def matrix(number: int, *sizes: int) -> Input:
    return Input(number, sizes)


A, B, C, D = (matrix(n, 2, 2) for n in range(4))

#: What is mutated: products, batches of them, sums, chains, convolutions in a row and next to each other.
ORIGINALS: dict[str, Multilinear] = {
    "a product": Product(matrix(0, 2, 3), matrix(1, 3, 2)),
    "a square product": Product(A, B),
    "a product of one": Product(matrix(0, 2, 1), matrix(1, 1, 2)),
    "a chain": Product(Product(matrix(0, 2, 3), matrix(1, 3, 4)), matrix(2, 4, 2)),
    "two products of one input": Sum(Product(A, B), Product(A, C)),
    "two products": Sum(Product(matrix(0, 2, 3), matrix(1, 3, 2)), Product(matrix(2, 2, 1), matrix(3, 1, 2))),
    "a batch of products": Product(matrix(0, 2, 2, 3), matrix(1, 2, 3, 2)),
    "a batch with one right operand": Product(matrix(0, 3, 2, 2), matrix(1, 2, 2)),
    "two convolutions in a row": Convolved(
        Convolved(matrix(0, 1, 2, 4, 4), matrix(1, 2, 2, 3, 3), padding=(1, 1)),
        matrix(2, 2, 2, 3, 3),
        padding=(1, 1),
    ),
    "one by one and three by three": Convolved(
        Convolved(matrix(0, 1, 2, 4, 3), matrix(1, 3, 2, 1, 1)), matrix(2, 2, 3, 3, 3), (2, 2), (1, 1)
    ),
    "two convolutions of one input": Sum(
        Convolved(matrix(0, 1, 2, 3, 3), matrix(1, 2, 2, 3, 3), padding=(1, 1)),
        Convolved(matrix(0, 1, 2, 3, 3), matrix(2, 2, 2, 3, 3), padding=(1, 1)),
    ),
}


def computed(program: Multilinear, inputs: list[Any]) -> Any:
    return ProgramLowering(AtOnce(), inputs).lower(program)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ORIGINALS)
def test_boxes_say_of_every_mutant_what_all_its_elements_say(name: str) -> None:
    """The small exhaustive truth: all programs of up to three operators, compared at every position.

    Wrong boxes hold every wrong element, and no box is wrong without one.
    """
    original = ORIGINALS[name]
    everywhere = all_positions(original.shape)
    truth = [original.at(everywhere, seed) for seed in range(4)]
    found = list(programs(original, 2 if "one input" in name else 3))
    for mutant in found:
        verdict = compare_programs(original, mutant)
        told = np.zeros(original.shape, dtype=bool)
        for region in verdict.wrong:
            box = tuple(slice(*span) for span in region)
            assert not told[box].any(), "wrong regions are disjoint"
            told[box] = True
        differs = np.zeros(len(everywhere), dtype=bool)
        for seed, right in enumerate(truth):
            differs |= mutant.at(everywhere, seed) != right
        differs = differs.reshape(original.shape)
        assert (differs <= told).all(), f"{mutant} is wrong where its verdict says right"
        assert verdict.right_share == pytest.approx(1 - told.mean())
        assert bool(verdict.wrong) == bool(differs.any()), str(mutant)


@pytest.mark.parametrize("name", ORIGINALS)
def test_mutants_are_exact_by_torch_once_corrected(name: str) -> None:
    """Whole numbers in double precision: every element of every corrected mutant is the original's."""
    original = ORIGINALS[name]
    inputs = [whole_numbers(n, *one.shape) for n, one in enumerate(inputs_of(original))]
    truth = computed(original, inputs)
    for mutant in programs(original, 2 if "conv" in name or "one input" in name else 3):
        verdict = compare_programs(original, mutant)
        lowering = ProgramLowering(AtOnce(), inputs)  # type: ignore[arg-type]
        result: Any = lowering.correct(lowering.lower(mutant), original, verdict.wrong)
        assert torch.equal(result, truth), f"{mutant}: {verdict.wrong}"


def names(original: Multilinear, operators: int = 3) -> dict[str, float]:
    """The right share of every mutant, by its name."""
    return {str(m): compare_programs(original, m).right_share for m in programs(original, operators)}


def test_a_sum_of_products_of_one_input_is_one_product_of_a_sum() -> None:
    found = names(Sum(Product(A, B), Product(A, C)), 2)
    assert found["a (b + c)"] == 1.0
    assert found["(a + b) c"] == 0.0


def test_a_chain_may_be_multiplied_from_the_right() -> None:
    assert names(ORIGINALS["a chain"], 2)["a (b c)"] == 1.0


def test_two_products_are_one_of_joined_operands() -> None:
    assert names(ORIGINALS["two products"])["[a, c] [b, d]"] == 1.0


def test_a_product_turned_around_is_the_product_of_the_turned_operands() -> None:
    """``(B' A')'`` has four operators: of a square product three of them do not do."""
    assert names(Product(A, B), 4)["(b' a')'"] == 1.0
    assert all(share == 0.0 for share in names(Product(A, B), 2).values())


def test_a_batch_with_one_right_operand_is_one_product_of_all_rows() -> None:
    assert names(ORIGINALS["a batch with one right operand"])["matrices(rows(a) b)"] == 1.0


def test_two_padded_convolutions_as_one_are_wrong_at_the_border() -> None:
    """4 x 4, both 3 x 3 with padding: as one of 5 x 5 the ring of 12 positions is wrong, the inner 4 right.

    The zeros around the image between the two are not the first one's results there.
    """
    original = ORIGINALS["two convolutions in a row"]
    assert isinstance(original, Convolved) and isinstance(original.source, Convolved)
    composed = Composed(original.source.weight, original.weight)
    assert composed.shape == (2, 2, 5, 5)
    verdict = compare_programs(original, Convolved(original.source.source, composed, padding=(2, 2)))
    assert verdict.right_share == 0.25
    ring = np.zeros((4, 4), dtype=bool)
    for _, filters, rows, columns in verdict.wrong:
        assert filters == (0, 2)
        ring[slice(*rows), slice(*columns)] = True
    assert ring.sum() == 12 and not ring[1:3, 1:3].any()


def test_one_by_one_and_three_by_three_are_one_convolution_everywhere() -> None:
    """A first filter of one position gives zeros where zeros were: nothing is cut off between."""
    found = names(ORIGINALS["one by one and three by three"], 2)
    assert found["conv(a, compose(b, c))"] == 1.0


def test_regions_of_a_box_with_gaps_and_their_union() -> None:
    assert list(regions_of([(0, 1, 4), (2,)])) == [((0, 2), (2, 3)), ((4, 5), (2, 3))]
    assert merge_regions([((0, 1), (0, 1)), ((0, 1), (1, 2)), ((1, 2), (0, 2))]) == (((0, 2), (0, 2)),)


def test_values_are_those_of_numpy() -> None:
    """All elements of joined, merged and split matrices, and of a batch of products."""
    a, b = matrix(0, 2, 3, 2), matrix(1, 2, 2, 4)
    x, y = (one.at(all_positions(one.shape), 0).reshape(one.shape) for one in (a, b))
    cases = {
        Product(a, b): x @ y % 65521,
        MergedRows(a): x.reshape(6, 2),
        SplitRows(MergedRows(a), 3): x.reshape(3, 2, 2),
        Joined(a, transpose(b), 1): np.concatenate([x, y.transpose(0, 2, 1)], axis=1),
    }
    for program, truth in cases.items():
        found = program.at(all_positions(program.shape), 0).reshape(program.shape)
        assert (found == truth).all(), str(program)


# --- parts of graphs ------------------------------------------------------------------------------


def graph_of(*ops: GraphNode, **sizes: tuple[int, ...]) -> Graph:
    """Inputs (``w...``: constants) of these sizes, then ops; the last is given out."""
    kinds = {"w": CONSTANT}
    held = [GraphNode(n, kinds.get(n[0], INPUT), n, outputs=(kind(*shape),)) for n, shape in sizes.items()]
    return Graph((*held, *ops, GraphNode("output", OUTPUT, "output", ((Ref(ops[-1].name),),))))


def op(name: str, target: str, shape: tuple[int, ...], *arguments: Any) -> GraphNode:
    given = tuple(Ref(a) if isinstance(a, str) else a for a in arguments)
    return GraphNode(name, OP, target, given, outputs=(kind(*shape),))


MM, ADD, LINEAR = "aten.mm.default", "aten.add.Tensor", "aten.linear.default"


def test_a_gate_of_a_cell_is_one_part() -> None:
    """``x w1 + h w2``; its sigmoid is not linear and stays outside."""
    gate = graph_of(
        op("p", MM, (2, 4), "x", "w1"),
        op("q", MM, (2, 4), "h", "w2"),
        op("s", ADD, (2, 4), "p", "q"),
        op("g", "aten.sigmoid.default", (2, 4), "s"),
        x=(2, 3), h=(2, 4), w1=(3, 4), w2=(4, 4),
    )  # fmt: skip
    (found,) = subprograms(gate, 3)
    assert (found.root, sorted(found.members)) == ("s", ["p", "q", "s"])
    assert str(found.program) == "a b + c d"
    assert found.constants == {1, 3}


def test_what_somebody_else_reads_too_is_an_input() -> None:
    """The first product is read twice, so it is a part of its own."""
    shared = graph_of(
        op("p", MM, (2, 2), "x", "w1"),
        op("q", MM, (2, 2), "p", "w2"),
        op("s", ADD, (2, 2), "q", "p"),
        x=(2, 2), w1=(2, 2), w2=(2, 2),
    )  # fmt: skip
    assert [(one.root, str(one.program)) for one in subprograms(shared, 3)] == [
        ("s", "a b + a"),
        ("p", "a b"),
    ]


def test_a_bias_is_kept_for_the_end_and_never_multiplied() -> None:
    """Of ``(x w1' + b) w2'`` with a bias inside only the outer product is a part."""
    biased = graph_of(
        op("p", LINEAR, (2, 3), "x", "w1", "wb"),
        op("q", LINEAR, (2, 4), "p", "w2", "wc"),
        x=(2, 2), w1=(3, 2), w2=(4, 3), wb=(3,), wc=(4,),
    )  # fmt: skip
    assert [(one.root, one.biases) for one in subprograms(biased, 3)] == [
        ("q", [Ref("wc")]),
        ("p", [Ref("wb")]),
    ]


class Shaped(ByHand):
    """Shapes by torch; an op costs a second, what is computed once nothing."""

    def types(self, target: str, arguments: tuple[Any, ...], keywords: Any) -> Any:
        from experiments.compilation.live.types import Inference

        return Inference()(target, arguments, keywords)


def test_two_products_of_constants_in_a_row_are_one_by_a_constant_computed_once() -> None:
    """Two ops become one; each costs a second and the constant nothing."""
    chain = graph_of(
        op("p", MM, (2, 3), "x", "w1"), op("q", MM, (2, 4), "p", "w2"), x=(2, 2), w1=(2, 3), w2=(3, 4)
    )
    done = Pet().rewrite(chain, Shaped())
    assert [step.rule for step in done.applied] == ["(a b) c = a (b c); equivalent"]
    assert [node.target for node in done.graph.ops if not node.once] == ["aten.matmul.default"]
    assert done.search["parts"] == 1
    single = Pet(parts=1).rewrite(chain, Shaped())
    assert single.applied == (), "one product alone is not cheaper otherwise"
