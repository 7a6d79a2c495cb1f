"""Unity (Unger et al., OSDI'22): algebraic substitutions, those of parallel operators, and placement of
branches, searched together.

Followed: section 3 and 4 (the parallel computation graph: Partition, Combine, Replicate, Reduce, see
``parallel_ops``; algebraic substitutions, see ``algebra``), section 5 (sequence splits at operators that all
paths cross, best-first search within over both sorts of substitutions, placement of branches in turn or side
by side, see ``joint_search``, ``graph_piece``, ``placement``), with the released alpha and size of a piece.

Left open by the paper or different here: of the algebraic rules those are made that join parameters and
compute nothing from them (products that read one tensor, and a relu in a product's kernel); others of the
released collection reorder what real layers do not have, or would train other parameters, and its parallel
rules are those of one operator (one more, one less, one moved), not generated and verified ones. What was
found together is compared with what either sort finds alone, so that it never costs more. An operator is
divided along two loops at most. Pipeline and Batch, the third pair of parallel operators, are not searched.
Costs are those of ``planning.operators.operator_costs``: what parallel operators do between two operators is
costed as one transfer; what substitutions make takes the times of what it replaces by the ratio of predicted
kernels (``rewritten_times``). A model's first and last operators are cuts, which no algebraic substitution
takes out; models whose layers are known by their shapes (``work``) keep their operators. A branch concurrent
with another pays for all that it reads. Plans that divide by more than samples are simulated one layer after
another. Where the best graph does not fit a device, every byte gets a price, the lowest at
which one fits (the released search weighs time against memory likewise). Where ``judge`` says ``simulator``,
not the costs, the search is done with all of t_S and with none, and of what it finds and data parallelism the
fastest simulated step is taken (``planning.operators.pricing``).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.budget import Budget
from experiments.core.integers import prime_factors
from experiments.core.knobs import knob
from experiments.core.units import DTYPE_BYTES
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    RewrittenLayer,
    rewritten_model,
)
from experiments.parallel.planning.judges import COSTS, JUDGES, SIMULATOR, choose_best
from experiments.parallel.planning.operators.divisions import Configuration
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.planning.operators.operators import operators_of
from experiments.parallel.planning.operators.placed_plan import placed_plan
from experiments.parallel.planning.operators.pricing import (
    DATA_PARALLEL,
    EXPOSED,
    Pricing,
)
from experiments.parallel.planning.operators.task_graph import OperatorPlacement
from experiments.parallel.policies.unity.algebra import Alternatives, alternatives
from experiments.parallel.policies.unity.joint_search import joint_search
from experiments.parallel.policies.unity.parallel_ops import entering, leaving, simplified, substitutions
from experiments.parallel.policies.unity.rewritten_layers import rewritten_layers
from experiments.parallel.policies.unity.rewritten_times import RewrittenTimes
from experiments.parallel.policies.unity.search_space import (
    JointSearchLimits,
    JointSearchResult,
    JointSearchSpace,
    in_turn_seconds,
)
from experiments.workloads.einsum import Operator
from experiments.workloads.layers import LayerGraph

#: Loops of an operator that may be divided at once.
MOST_AXES = 2
#: Both sorts of substitutions in one search, as in the paper, or those of parallel operators alone.
SUBSTITUTIONS = JOINT, PARALLEL = "joint", "parallel"
#: What plans are called that one sort of substitutions found.
PARALLEL_ALONE, ALGEBRA_ALONE = "parallel substitutions alone", "algebraic substitutions alone"


@dataclass(frozen=True)
class Unity(ParallelPolicy):
    """Parallel operators by best-first substitution, with branches in turn or side by side."""

    name: ClassVar[str] = "unity"
    mechanism: ClassVar[str] = "searched layouts"
    quick: ClassVar[Mapping[str, Any]] = {"budget": 5, "layouts": 2}

    alpha: float = knob(
        1.2, "graphs that cost more than alpha times the best are left out", low=1.0, high=100.0
    )
    budget: int = knob(
        20, "graphs taken from the queue, for each piece and layouts of its ends", low=1, high=10**6
    )
    threshold: int = knob(10, "operators of a piece that is searched at once", low=1, high=1000)
    evaluations: int = knob(
        2_000_000, "graphs that are looked at before the best so far is taken", low=1, high=10**12
    )
    layouts: int = knob(3, "candidate layouts of an operator at a cut", low=1, high=1000)

    judge: str = knob(COSTS, "what says which plan is best: a simulated step, or costs", choices=JUDGES)

    substitutions: str = knob(
        JOINT, "algebraic and parallel substitutions, or parallel ones alone", choices=SUBSTITUTIONS
    )

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        graph = _alternatives(model, estimate, self.substitutions)
        costs = OperatorCosts(estimate, batch, partial_sums=True, most=MOST_AXES, operators=graph.operators)
        pricing = Pricing(costs)
        budget = Budget(self.evaluations, estimate.progress, "graphs")
        space = _space(costs, pricing.tables, graph)
        found = self._search_all(pricing, space, budget)
        if replicated := costs.data_parallel():
            found[DATA_PARALLEL] = _own_graph(space, replicated[: space.own])
        drafts = {name: Draft(graph, costs, one) for name, one in found.items()}
        plans = {name: draft.plan() for name, draft in drafts.items()}
        sums = {name: one.seconds for name, one in found.items()}
        best, simulated = choose_best(self.judge, estimate, plans, sums)
        notes = _notes(space, found[best], drafts[best])
        taken = {"taken": best, "simulated_steps": simulated, "predicted_steps": sums}
        return replace(
            plans[best], notes={**plans[best].notes, **notes, **taken, **budget.caveat("evaluations")}
        )

    def _search_all(
        self, pricing: Pricing, space: JointSearchSpace, budget: Budget
    ) -> dict[str, JointSearchResult]:
        """What is found with both sorts of substitutions, and with either alone.

        The joint search begins with data parallelism and with what parallel substitutions found.
        """
        found = {}
        for share in EXPOSED if self.judge == SIMULATOR else EXPOSED[:1]:
            name = f"{share:.0%} of t_S"
            apart = self._search(pricing, share, replace(space, algebraic=()), budget)
            if space.algebraic:
                found[name] = self._search(pricing, share, replace(space, seed=apart.choices), budget)
            found[f"{name}, {PARALLEL_ALONE}" if space.algebraic else name] = apart
        if space.algebraic:
            whole = replace(space, rewrites=[[()] * len(one) for one in space.rewrites])
            found[ALGEBRA_ALONE] = self._search(pricing, 1.0, whole, budget, layouts=1)
        return found

    def _search(
        self,
        pricing: Pricing,
        exposed: float,
        space: JointSearchSpace,
        budget: Budget,
        layouts: int | None = None,
    ) -> JointSearchResult:
        """The best graph that was found, among what fits if anything does; its seconds without a price."""
        limits = JointSearchLimits(self.alpha, self.budget, self.threshold, layouts or self.layouts)
        found = pricing.solve_within_memory(
            lambda tables: joint_search(replace(space, tables=tables), limits, budget),
            lambda graph: pricing.peak_bytes(
                [space.tables.choices[n][c] for n, c in zip(graph.numbers, graph.choices, strict=True)],
                graph.firsts,
                graph.numbers,
            ),
            exposed,
            lambda: budget.take(0),
        )
        seconds = in_turn_seconds(pricing.cost_tables(exposed, 0.0), found.numbers, found.choices)
        priced = not found.side_by_side and not math.isclose(seconds, found.seconds)
        return replace(found, seconds=seconds) if priced else found


def _alternatives(model: LayerGraph, estimate: PlanningEstimate, substitutions: str) -> Alternatives:
    """The model's operators, and what algebraic substitutions put in their place.

    None where its layers are known by their shapes, whose times follow from more than their operators.
    """
    own = operators_of(model)
    if substitutions == PARALLEL or model.work:
        return Alternatives.none(own)
    return alternatives(own, RewrittenTimes(estimate), DTYPE_BYTES[estimate.dtype])


@dataclass(frozen=True)
class Draft:
    """A graph that was found, as the model, the costs and the placements of a plan.

    ``costs`` are those of ``graph``: of the model's operators and of all that may stand in their place.
    """

    graph: Alternatives
    costs: OperatorCosts
    found: JointSearchResult

    @functools.cached_property
    def placements(self) -> list[OperatorPlacement]:
        """Of the operators that are computed, in the order of ``own_costs``."""
        rows = zip(self.found.numbers, self.found.choices, self.found.firsts, strict=True)
        placed = {
            number: OperatorPlacement(self.costs.choices[number][c], first) for number, c, first in rows
        }
        return [placed[number] for number in self.graph.graph(self.found.numbers)[1]]

    @functools.cached_property
    def rewritten(self) -> tuple[tuple[RewrittenLayer, ...], tuple[Operator, ...]]:
        return rewritten_layers(self.costs.model, self.graph, self.found.numbers)

    @functools.cached_property
    def own_costs(self) -> OperatorCosts:
        """The costs of what is computed and nothing else, on the model as it is rewritten."""
        layers, operators = self.rewritten
        own = self.costs.estimate
        estimate = replace(own, model=rewritten_model(own.model, layers))
        return OperatorCosts(
            estimate, self.costs.batch, partial_sums=True, most=MOST_AXES, operators=operators
        )

    def plan(self) -> ParallelPlan:
        return replace(placed_plan(self.own_costs, self.placements, {}), rewritten=self.rewritten[0])


def _space(costs: OperatorCosts, tables: CostTables, graph: Alternatives) -> JointSearchSpace:
    """The search begins with data parallelism where samples divide, else with one device."""
    factors = tuple(sorted(set(prime_factors(costs.devices))))
    options: dict[tuple[Configuration, ...], list[tuple[int, ...]]] = {}
    for choices in costs.report_each(costs.choices):
        options[choices] = options.get(choices) or _options(choices, factors)
    rewrites = [options[choices] for choices in costs.choices]
    start = costs.data_parallel() or [0] * len(costs.operators)
    far = {edge: costs.transfer_from_afar(*edge) for edge in costs.report_each(tables.edges)}
    pairs = {pair for one in graph.rewritings for pair in zip(one.heirs, one.made, strict=True)}
    inherited = {(i, j): _first_choices(costs, i, j, start[j]) for i, j in costs.report_each(pairs)}
    return JointSearchSpace(
        tables, far, rewrites, start, costs.devices, graph.own, graph.rewritings, inherited
    )


def _options(choices: tuple[Configuration, ...], factors: tuple[int, ...]) -> list[tuple[int, ...]]:
    """For each choice those that one parallel substitution makes of it."""
    index = {choice: number for number, choice in enumerate(choices)}
    return [
        tuple(dict.fromkeys(index[c] for c in substitutions(choice, factors) if c in index))
        for choice in choices
    ]


def _first_choices(costs: OperatorCosts, heir: int, made: int, start: int) -> list[int]:
    """With which choice what is put in begins, for each choice of what it replaces.

    The degrees of the loops that both have; where that is no choice, the one that the search begins with.
    """
    names, index = costs.axes[made].names, {c: number for number, c in enumerate(costs.choices[made])}
    found = []
    for choice in costs.choices[heir]:
        degrees = dict(zip(costs.axes[heir].names, choice, strict=True))
        found.append(index.get(tuple(degrees.get(name, 1) for name in names), start))
    return found


def _own_graph(space: JointSearchSpace, chosen: list[int]) -> JointSearchResult:
    """The model's own graph with these choices, in turn on all devices."""
    numbers = list(range(space.own))
    seconds = in_turn_seconds(space.tables, numbers, chosen)
    return JointSearchResult(seconds, chosen, [0] * space.own, numbers)


def _notes(space: JointSearchSpace, found: JointSearchResult, draft: Draft) -> dict[str, Any]:
    """Predicted seconds a step, the operators of the graph, and what the search looked at."""
    replicated = draft.costs.data_parallel()
    reference = draft.costs.reference_times(space.tables)
    if replicated:
        reference["data_parallel_time"] = _own_graph(space, replicated[: space.own]).seconds
    return {
        "predicted_step_time": found.seconds,
        **reference,
        "parallel_operators": dict(_parallel_operators(draft.own_costs, draft.placements)),
        "rewritten_operators": [
            draft.graph.operators[number].name for number in found.numbers if number >= space.own
        ],
        "algebraic_substitutions": len(space.algebraic),
        "pieces": found.pieces,
        "graphs_expanded": found.popped,
        "graphs_seen": found.seen,
        "operators_side_by_side": found.side_by_side,
    }


def _parallel_operators(costs: OperatorCosts, placements: list[OperatorPlacement]) -> Counter[str]:
    """How many of each kind stand between operators and before parameters."""
    counts: Counter[str] = Counter()
    for number, operator in enumerate(costs.operators):
        for operand in operator.operands:
            ops = entering(operand, costs.axes[number], placements[number].degrees)
            if operand.source >= 0:
                source = operand.source
                ops = leaving(costs.operators[source], costs.axes[source], placements[source].degrees) + ops
            counts.update(op.kind for op in simplified(ops))
    return counts
