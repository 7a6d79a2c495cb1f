"""Unity (Unger et al., OSDI'22): substitutions of parallel operators and placement of branches, searched
together.

Followed: section 3 and 4 (the parallel computation graph: Partition, Combine, Replicate, Reduce, see
``parallel_ops``), section 5 (sequence splits at operators that all paths cross, best-first search within,
placement of branches in turn or side by side, see ``joint_search`` and ``placement``), with the released
alpha and size of a piece.

Left open by the paper or different here: only substitutions of parallel operators are made; the algebraic
rewrites of the released rule collection belong to the compilation family. Substitutions are those of the rule
around one operator (one more, one less, one moved), not generated and verified ones; an operator is divided
along two loops at most. Pipeline and Batch, the third pair of parallel operators, are not searched. Costs are
those of ``planning.operators.operator_costs``: what parallel operators do between two operators is costed as
one transfer. A branch concurrent with another pays for all that it reads. Plans that divide by more than
samples are simulated one layer after another. Where the best graph does not fit a device, every byte gets a
price, the lowest at which one fits (the released search weighs time against memory likewise). Where
``judge`` says ``simulator``, not the costs, the search is done with all of t_S and with none, and of what it
finds and data parallelism the fastest simulated step is taken (``planning.operators.pricing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.budget import Budget
from experiments.core.integers import prime_factors
from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate
from experiments.parallel.planning.judges import COSTS, JUDGES, SIMULATOR, choose_best
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.planning.operators.placed_plan import placed_plan
from experiments.parallel.planning.operators.pricing import (
    DATA_PARALLEL,
    EXPOSED,
    Pricing,
)
from experiments.parallel.planning.operators.task_graph import OperatorPlacement
from experiments.parallel.policies.unity.joint_search import (
    JointSearchLimits,
    JointSearchResult,
    JointSearchSpace,
    joint_search,
)
from experiments.parallel.policies.unity.parallel_ops import entering, leaving, simplified, substitutions
from experiments.workloads.layers import LayerGraph
from experiments.workloads.step import Floats

#: Loops of an operator that may be divided at once.
MOST_AXES = 2


@dataclass(frozen=True)
class Unity(ParallelPolicy):
    """Parallel operators by best-first substitution, with branches in turn or side by side."""

    name: ClassVar[str] = "unity"
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

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        costs = OperatorCosts(estimate, batch, partial_sums=True, most=MOST_AXES)
        pricing = Pricing(costs)
        budget = Budget(self.evaluations, estimate.progress, "graphs")
        shares = EXPOSED if self.judge == SIMULATOR else EXPOSED[:1]
        far = {edge: costs.transfer_from_afar(*edge) for edge in costs.report_each(pricing.tables.edges)}
        space = _space(costs, pricing.tables, far)
        found = {
            f"{share:.0%} of t_S": self._search(costs, pricing, share, space, budget) for share in shares
        }
        if replicated := costs.data_parallel():
            seconds = pricing.tables.total(replicated)
            found[DATA_PARALLEL] = JointSearchResult(seconds, replicated, [0] * len(replicated))
        placements = {name: _placements(costs, graph) for name, graph in found.items()}
        plans = {name: placed_plan(costs, placed, {}) for name, placed in placements.items()}
        sums = {name: graph.seconds for name, graph in found.items()}
        best, simulated = choose_best(self.judge, estimate, plans, sums)
        notes = _notes(costs, pricing.tables, found[best], placements[best])
        told = {"taken": best, "simulated_steps": simulated}
        return replace(
            plans[best], notes={**plans[best].notes, **notes, **told, **budget.caveat("evaluations")}
        )

    def _search(
        self, costs: OperatorCosts, pricing: Pricing, exposed: float, space: JointSearchSpace, budget: Budget
    ) -> JointSearchResult:
        """The best graph that was found, among what fits if anything does."""
        limits = JointSearchLimits(self.alpha, self.budget, self.threshold, self.layouts)
        return pricing.solve_within_memory(
            lambda tables: joint_search(replace(space, tables=tables), limits, budget),
            lambda graph: pricing.peak_bytes([p.degrees for p in _placements(costs, graph)], graph.firsts),
            exposed,
            lambda: budget.take(0),
        )


def _placements(costs: OperatorCosts, graph: JointSearchResult) -> list[OperatorPlacement]:
    rows = zip(costs.choices, graph.choices, graph.firsts, strict=True)
    return [OperatorPlacement(choices[choice], first) for choices, choice, first in rows]


def _space(
    costs: OperatorCosts, tables: CostTables, far: Mapping[tuple[int, int], Floats]
) -> JointSearchSpace:
    """The search begins with data parallelism where samples divide, else with one device."""
    factors = tuple(sorted(set(prime_factors(costs.devices))))
    rewrites = []
    for choices in costs.report_each(costs.choices):
        index = {choice: number for number, choice in enumerate(choices)}
        options = (
            dict.fromkeys(index[c] for c in substitutions(choice, factors) if c in index)
            for choice in choices
        )
        rewrites.append([tuple(found) for found in options])
    start = costs.data_parallel() or [0] * len(costs.operators)
    return JointSearchSpace(tables, far, rewrites, start, costs.devices)


def _notes(
    costs: OperatorCosts, tables: CostTables, found: JointSearchResult, placements: list[OperatorPlacement]
) -> dict[str, Any]:
    """Predicted seconds a step, the parallel operators of the graph, and what the search looked at."""
    return {
        "predicted_step_time": found.seconds,
        **costs.reference_times(tables),
        "parallel_operators": dict(_parallel_operators(costs, placements)),
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
