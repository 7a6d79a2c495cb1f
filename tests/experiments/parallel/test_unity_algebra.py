"""Unity's algebraic substitutions: equal in value, searched with the parallel ones, carried by the plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.budget import Budget
from experiments.hardware import Hardware, Link
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, violations
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.policies.unity import PARALLEL, Draft, Unity, _space, siblings
from experiments.parallel.policies.unity.algebra import Alternatives, Rewriting, alternatives
from experiments.parallel.policies.unity.graph_piece import GraphPiece
from experiments.parallel.policies.unity.joint_search import joint_search
from experiments.parallel.policies.unity.piece_forms import PieceState
from experiments.parallel.policies.unity.rewritten_times import RewrittenTimes
from experiments.parallel.policies.unity.search_space import JointSearchLimits, JointSearchSpace
from experiments.parallel.simulator import simulate
from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.layers import LayerGraph
from tests.experiments.parallel.builders import cluster, estimate
from tests.experiments.parallel.unity_graphs import (
    ROWS,
    WIDTH,
    found_in,
    graphs,
    network,
    pointwise,
    product,
    siblings_of_three,
)

Values = dict[int, npt.NDArray[np.int64]]
WITHOUT_LIMIT = JointSearchLimits(alpha=1e9, budget=10**6, threshold=10, layouts=1000)
SLOW = Link("slow", 1e3, 1e-4, True, "test")


def computed(found: Alternatives, live: frozenset[int], inputs: npt.NDArray[np.int64]) -> Values:
    """The value of every operator of a graph, in integers, by the name of the value."""
    values: Values = {}
    order = found.graph(sorted(live))[1]
    for number in order:
        operator = found.operators[number]
        sources = dict.fromkeys(found.values[o.source] for o in operator.operands if o.source >= 0)
        tensors = [values[source] for source in sources]
        values[found.values[number]] = _one(found, number, operator, tensors, inputs)
    return values


def _one(
    found: Alternatives,
    number: int,
    operator: Operator,
    tensors: Sequence[npt.NDArray[np.int64]],
    inputs: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    if operator.kind == "split":
        joined = next(one.made for one in found.rewritings if number in one.made)
        place = joined.index(number) - 1
        widths = [found.operators[part].size["out"] for part in joined[1:]]
        return tensors[0][:, sum(widths[:place]) : sum(widths[: place + 1])]
    if operator.kind == "einsum":
        weight, bias = _parameters(found, number)
        result = tensors[0] @ weight + bias
        return np.maximum(result, 0) if operator.function == "relu" else result
    if operator.function == "relu":
        return np.maximum(tensors[0], 0)
    return np.sum(tensors, axis=0) if tensors else inputs


def _parameters(found: Alternatives, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The weight and bias of a product; of a joined one those of its members side by side."""
    members = found.members.get(number)
    if members:
        pairs = [_parameters(found, member) for member in members]
        return np.concatenate([p[0] for p in pairs], axis=1), np.concatenate([p[1] for p in pairs])
    operator = found.operators[number]
    seed = next(operand.parameter for operand in operator.parameters)
    rng = np.random.default_rng(seed)
    columns = operator.size["out"]
    weight = rng.integers(-9, 10, (operator.size["in"], columns))
    bias = rng.integers(-9, 10, columns) * (len(operator.parameters) - 1)
    return weight, bias


class TestSubstitutions:
    @pytest.mark.parametrize(("relu", "bias"), list(itertools.product((False, True), repeat=2)))
    def test_every_graph_computes_the_same(self, relu: bool, bias: bool) -> None:
        """Three products alone, in two pairings and whole; with a relu each may have it inside."""
        found = found_in(siblings_of_three(relu=relu, bias=bias))
        inputs = np.random.default_rng(0).integers(-9, 10, (ROWS, WIDTH))
        everything = graphs(found)
        own = computed(found, frozenset(range(found.own)), inputs)
        last = max(own)
        assert len(everything) == (5 if not relu else 5 + 5 + 12)
        for live in everything:
            assert (computed(found, live, inputs)[last] == own[last]).all()

    def test_a_product_that_two_read_keeps_its_relu_apart(self) -> None:
        first = pointwise(0, [], WIDTH, "identity")
        model = network(
            first, product(1, 0, WIDTH), pointwise(2, [1], WIDTH, "relu"), pointwise(3, [1, 2], WIDTH, "sum")
        )
        assert found_in(model).rewritings == ()

    def test_shared_weights_stay_apart(self) -> None:
        first, last = pointwise(0, [], WIDTH, "identity"), pointwise(3, [1, 2], WIDTH, "sum")
        one, other = product(1, 0, WIDTH), product(2, 0, WIDTH)
        assert len(found_in(network(first, one, other, last)).rewritings) == 1
        tied = replace(other, operands=one.operands)
        assert found_in(network(first, one, tied, last)).rewritings == ()

    def test_products_of_two_inputs_stay_apart(self) -> None:
        first, second = pointwise(0, [], WIDTH, "identity"), pointwise(1, [0], WIDTH, "identity")
        model = network(
            first, second, product(2, 0, WIDTH), product(3, 1, WIDTH), pointwise(4, [2, 3], WIDTH, "sum")
        )
        assert found_in(model).rewritings == ()

    def test_only_windows_of_one_element_that_read_all_are_joined(self) -> None:
        """1x1 over 4x4 pictures; 3x3, and a stride of two, are not told apart from others by a capture."""
        whole = self.convolutions(elements=1, side=4)
        assert len(found_in(whole).rewritings) == 1
        assert found_in(self.convolutions(elements=9, side=4)).rewritings == ()
        assert found_in(self.convolutions(elements=1, side=8)).rewritings == ()

    @staticmethod
    def convolutions(elements: int, side: int) -> LayerGraph:
        """Two of 2 channels on 2 channels of ``side`` x ``side``, each result 4 x 4."""
        dims = ("batch", "in", "height", "width")
        first = replace(
            pointwise(0, [], WIDTH, "identity"),
            output=dims,
            sizes=tuple(zip(dims, (ROWS, 2, 4, 4), strict=True)),
        )
        found = [first]
        for number in (1, 2):
            weight = Operand(("out", "in"), 4.0 * 2 * 2 * elements, parameter=number)
            found.append(
                Operator(
                    name=f"convolution{number}",
                    kind="convolution",
                    layer=number,
                    sizes=(("batch", ROWS), ("out", 2), ("height", 4), ("width", 4), ("in", 2)),
                    output=("batch", "out", "height", "width"),
                    operands=(Operand(dims, 4.0 * ROWS * 2 * side * side, 0), weight),
                    output_bytes=4.0 * ROWS * 2 * 16,
                )
            )
        last = replace(
            found[1],
            name="sum",
            kind="elementwise",
            layer=3,
            operands=tuple(Operand(("batch", "out", "height", "width"), 1.0, n) for n in (1, 2)),
        )
        return network(*found, last)

    def test_a_rule_that_fails_its_exact_test_is_not_applied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert siblings.is_usable("einsum", False, False)
        monkeypatch.setitem(siblings.PRODUCTS, "einsum", ("matmul(a, {})", "concat[axis=-1](c, b)", -1))
        siblings.sibling_rule.cache_clear()
        siblings.is_usable.cache_clear()
        try:
            assert found_in(siblings_of_three()).rewritings == ()
        finally:
            monkeypatch.undo()
            siblings.sibling_rule.cache_clear()
            siblings.is_usable.cache_clear()


class TestSearch:
    def test_neither_order_of_two_searches_finds_what_one_search_finds(self) -> None:
        """Two products between cuts, undivided, by samples (a) or by columns (b).

        Apart 4 s each, 3 by samples, 2 by columns: divided first, 4 s in all. Joined 9 s: nothing to rewrite
        first. By columns the split fetches for 3 s. Joined and by samples: 3.5 s.
        """
        tables, rewriting = self.two_products()
        space = self.space(tables, rewriting)
        apart = joint_search(replace(space, algebraic=()), WITHOUT_LIMIT)
        undivided = joint_search(replace(space, rewrites=[[()] * 3] * 7), replace(WITHOUT_LIMIT, layouts=1))
        together = joint_search(space, WITHOUT_LIMIT)
        assert (apart.seconds, apart.choices[1:3]) == (4, [2, 2])
        assert (undivided.seconds, undivided.numbers) == (8, [0, 1, 2, 3])
        joined_by_columns = tables.nodes[4][2] + 2 * tables.edges[4, 5][2, 1]
        assert joined_by_columns > 4
        assert (together.seconds, together.numbers, together.choices[1]) == (3.5, [0, 4, 5, 6, 3], 1)

    @staticmethod
    def two_products() -> tuple[CostTables, Rewriting]:
        choices = ((1, 1), (2, 1), (1, 2))
        free, own = np.zeros(3), np.array([4.0, 3, 2])
        nodes = (free, own, own, free, np.array([9, 3.5, 3.5]), free, free)
        edges = {pair: np.zeros((3, 3)) for pair in ((0, 1), (0, 2), (0, 4), (1, 3), (2, 3), (5, 3), (6, 3))}
        fetched = np.array([[0.0] * 3, [0.0] * 3, [1.5] * 3])
        edges |= {(4, 5): fetched, (4, 6): fetched}
        rewriting = Rewriting("join", frozenset((1, 2)), (4, 5, 6), (1, 1, 2), frozenset((1, 2)))
        return CostTables((choices,) * 7, nodes, edges), rewriting

    @staticmethod
    def space(tables: CostTables, rewriting: Rewriting) -> JointSearchSpace:
        moves = [(1, 2), (0, 2), (0, 1)]
        inherited = {pair: [0, 1, 2] for pair in ((1, 4), (1, 5), (2, 6))}
        far = {pair: np.zeros(3) for pair in tables.edges}
        return JointSearchSpace(tables, far, [moves] * 7, [0] * 7, 1, 4, (rewriting,), inherited)

    @settings(max_examples=8, deadline=None)
    @given(
        st.booleans(),
        st.sampled_from([1e2, 1e3, 1e5]),
        st.sampled_from([2, 4]),
        st.sampled_from([0.1, 1.0]),
    )
    def test_without_limits_it_equals_exhaustive_search(
        self, relu: bool, bandwidth: float, columns: int, seconds: float
    ) -> None:
        """Two products with or without relus: every graph with every choice of its operators."""
        first = pointwise(0, [], WIDTH, "identity")
        relus = [pointwise(3, [1], columns, "relu"), pointwise(4, [2], columns, "relu")] if relu else []
        last = pointwise(3 + len(relus), [3, 4] if relu else [1, 2], columns, "sum")
        model = network(first, product(1, 0, columns), product(2, 0, columns), *relus, last, seconds=seconds)
        hardware = cluster(1, 2, link=Link("node", bandwidth, 1e-3, True, "test"))
        space, found = in_turn(estimate(model, hardware, optimizer="sgd"), model)
        best = min(
            total(space.tables, sorted(live), choices)
            for live in graphs(found)
            for choices in itertools.product(*(range(len(space.tables.choices[n])) for n in sorted(live)))
        )
        together = joint_search(space, WITHOUT_LIMIT)
        assert together.seconds == pytest.approx(best)
        assert total(space.tables, together.numbers, together.choices) == pytest.approx(best)

    def test_a_change_of_one_branch_costs_what_the_whole_graph_says(self) -> None:
        """Products with relus one after another: each queued graph against the sum over all of it."""
        first = pointwise(0, [], WIDTH, "identity")
        layers = [product(1, 0, 2), pointwise(2, [1], 2, "relu"), product(3, 2, 4, inner=2)]
        model = network(first, *layers, pointwise(4, [3], 4, "relu"), pointwise(5, [4], 4, "identity"))
        space, _ = in_turn(estimate(model, cluster(1, 2, link=SLOW), optimizer="sgd"), model)
        piece = GraphPiece(space, 0, 5, Budget(10**6))
        fixed = dict(enumerate(space.start[:6]))
        branches = piece._branches_of(fixed, piece.shares(fixed))
        numbers = tuple(piece.inside)
        state = PieceState(0.0, tuple(fixed[n] for n in numbers), numbers, numbers, branches)
        rewritten = [found for found in piece.following(state, fixed, set()) if found.run != state.run]
        assert (len(branches), len(rewritten)) == (1, 2)
        ends = sum(float(space.tables.nodes[number][fixed[number]]) for number in (0, 5))
        for found in rewritten:
            live, choices = [0, *found.run, 5], [fixed[0], *found.graph, fixed[5]]
            assert found.seconds + ends == pytest.approx(total(space.tables, live, choices))

    @settings(max_examples=12, deadline=None)
    @given(
        st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=3),
        st.booleans(),
        st.sampled_from([1e2, 1e3, 1e6]),
    )
    def test_it_is_never_worse_than_either_sort_alone(
        self, widths: list[int], relu: bool, bandwidth: float
    ) -> None:
        """Blocks of siblings one after another, within the limits of a policy."""
        model = blocks(widths, relu)
        hardware = cluster(1, 2, link=Link("node", bandwidth, 1e-3, True, "test"))
        notes = planned(model, hardware, budget=3, layouts=2).notes
        apart = planned(model, hardware, budget=3, layouts=2, substitutions=PARALLEL).notes
        assert notes["predicted_step_time"] <= apart["predicted_step_time"]
        assert all(notes["predicted_step_time"] <= other for other in notes["predicted_steps"].values())


def in_turn(how: PlanningEstimate, model: LayerGraph) -> tuple[JointSearchSpace, Alternatives]:
    """The space in which branches follow each other."""
    found = alternatives(model.einsums, RewrittenTimes(how), 4)
    costs = OperatorCosts(how, ROWS, partial_sums=True, most=2, operators=found.operators)
    return replace(_space(costs, costs.tables(), found), devices=1), found


def total(tables: CostTables, live: Sequence[int], choices: Sequence[int]) -> float:
    """What a graph costs: its operators, and the edges that have both ends in it."""
    chosen: Mapping[int, int] = dict(zip(live, choices, strict=True))
    own = sum(float(tables.nodes[number][choice]) for number, choice in chosen.items())
    edges: Iterator[float] = (
        float(table[chosen[i], chosen[j]])
        for (i, j), table in tables.edges.items()
        if i in chosen and j in chosen
    )
    return own + sum(edges)


def blocks(widths: Sequence[int], relu: bool) -> LayerGraph:
    """An input, and for each width so many siblings, their relus and their sum."""
    found = [pointwise(0, [], WIDTH, "identity")]
    for width in widths:
        source = len(found) - 1
        products = [product(len(found) + n, source, WIDTH) for n in range(width)]
        found += products
        made = [operator.layer for operator in products]
        if relu:
            found += [pointwise(len(found) + n, [number], WIDTH, "relu") for n, number in enumerate(made)]
            made = [number + width for number in made]
        found.append(pointwise(len(found), made, WIDTH, "sum"))
    return network(*found)


def planned(model: LayerGraph, hardware: Hardware, **knobs: object) -> ParallelPlan:
    how = estimate(model, hardware, optimizer="sgd")
    plan = Unity(**knobs).place(model, hardware, ROWS, how)  # type: ignore[arg-type]
    assert violations(plan, model, hardware) == []
    return plan


class TestPlan:
    def test_the_price_of_memory_is_no_part_of_predicted_seconds(self) -> None:
        """Nothing fits: searches raise the price of a byte, and what they found keeps its seconds."""
        model = siblings_of_three(bias=True)
        tight = cluster(1, 2, memory=1)
        notes = planned(model, tight).notes
        assert max(notes["predicted_steps"].values()) <= len(model)

    def test_a_joined_product_takes_the_layers_of_what_it_replaces(self) -> None:
        """On one device: three products of 4 columns fill one tile each, joined one for all."""
        model = siblings_of_three()
        plan, apart = planned(model, cluster(1, 1)), planned(model, cluster(1, 1), substitutions=PARALLEL)
        assert plan.notes["rewritten_operators"][0] == "product1|product2|product3"
        rows = {row.layer: row for row in plan.rewritten}
        assert sorted(rows) == [1, 2, 3]
        assert rows[1].parameter_bytes == model.parameter_bytes[1:4].sum()
        assert (rows[2].parameter_bytes, rows[3].predecessors) == (0, (1,))
        assert sum(row.forward_flops for row in plan.rewritten) == model.forward_flops[1:4].sum()
        assert (apart.rewritten, apart.notes["predicted_step_time"]) == ((), 5)
        assert plan.notes["predicted_step_time"] == pytest.approx(3, rel=0.02)

    @pytest.mark.parametrize("relu", [False, True])
    def test_the_simulator_carries_the_rewritten_layers_out(self, relu: bool) -> None:
        """On one device a step takes what the search says; memory holds what the new layers keep."""
        model, hardware = siblings_of_three(relu=relu, bias=True), cluster(1, 1)
        plan, how = planned(model, hardware), estimate(model, hardware, optimizer="sgd")
        assert plan.rewritten
        assert simulate(plan, how).step_time == pytest.approx(plan.notes["predicted_step_time"])
        own = replace(plan, rewritten=())
        assert simulate(own, how).step_time == pytest.approx(len(model))
        assert ParallelPlan.from_json(plan.to_json()).rewritten == plan.rewritten

    def test_rewritten_layers_that_no_model_has_are_refused(self) -> None:
        model, hardware = siblings_of_three(), cluster(1, 1)
        plan = planned(model, hardware)
        row = plan.rewritten[1]
        wrong = [
            (replace(row, layer=9), "of 5 layers"),
            (replace(row, predecessors=(4,)), "comes after"),
            (replace(row, stash_bytes=float("nan")), "no numbers"),
            (plan.rewritten[0], "twice"),
        ]
        for layer, message in wrong:
            layers = (plan.rewritten[0], layer)
            assert message in violations(replace(plan, rewritten=layers), model, hardware)[0]

    def test_a_relu_in_its_product_saves_what_it_moves_forward(self) -> None:
        """Of a second of the relu three fifths are left, those of its backward pass."""
        first, last = pointwise(0, [], WIDTH, "identity"), pointwise(3, [2], WIDTH, "identity")
        model = network(first, product(1, 0, WIDTH), pointwise(2, [1], WIDTH, "relu"), last)
        plan = planned(model, cluster(1, 1))
        assert plan.notes["rewritten_operators"] == ["product1+relu2"]
        assert plan.notes["predicted_step_time"] == pytest.approx(3.6)
        assert [row.layer for row in plan.rewritten] == [1, 2]

    def test_what_is_found_is_what_the_rewritten_layers_cost(self) -> None:
        """Two slow devices: the costs of the rewritten model add up to what the search says."""
        model = blocks([3, 2], relu=True)
        how = estimate(model, cluster(1, 2, link=SLOW), optimizer="sgd")
        space, found = in_turn(how, model)
        together = joint_search(space, JointSearchLimits(1.2, 20, 10, 3))
        assert max(together.numbers) >= found.own
        costs = OperatorCosts(how, ROWS, partial_sums=True, most=2, operators=found.operators)
        draft = Draft(found, costs, together)
        choices = [
            own.index(placed.degrees)
            for own, placed in zip(draft.own_costs.choices, draft.placements, strict=True)
        ]
        assert draft.own_costs.tables().total(choices) == pytest.approx(together.seconds)
