"""Unity (Unger et al., OSDI'22): substitutions of parallel operators and placement of branches, searched together.

Followed: section 3 and 4 (the parallel computation graph: Partition, Combine, Replicate, Reduce, see ``planning.operators.parallel_ops``),
section 5 (sequence splits at operators that all paths cross, best-first search within, placement of branches in turn or side by
side, see ``planning.operators.joint_search`` and ``planning.operators.placement``), with the released alpha and size of a piece.

Left open by the paper or different here: only substitutions of parallel operators are made; the algebraic rewrites of the
released rule collection belong to the compilation family. Substitutions are those of the rule around one operator (one more,
one less, one moved), not generated and verified ones; an operator is divided along two loops at most. Pipeline and Batch, the
third pair of parallel operators, are not searched. Costs are those of ``planning.operators.operator_costs``: what parallel operators do
between two operators is costed as one transfer. A branch beside another pays for all that it reads. Not reproduced: the
memory-aware search. Plans that divide by more than samples are simulated one layer after another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import Estimate, ParallelPlan, ParallelPolicy
from experiments.parallel.planning.operators.joint_search import Found, Limits, Space, joint_search
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.planning.operators.parallel_ops import entering, leaving, simplified, substitutions
from experiments.parallel.planning.operators.placed_plan import placed_plan
from experiments.parallel.planning.operators.recursive_partition import prime_factors
from experiments.parallel.planning.operators.task_graph import Placement
from experiments.workloads.layers import LayerGraph

#: Loops of an operator that may be divided at once.
MOST_AXES = 2


@dataclass(frozen=True)
class Unity(ParallelPolicy):
    """Parallel operators around every operator by best-first substitution, branches in turn or side by side."""

    name: ClassVar[str] = "unity"

    alpha: float = knob(
        1.2, "graphs that cost more than alpha times the best are left out", low=1.0, high=100.0
    )
    budget: int = knob(
        20, "graphs taken from the queue, for each piece and layouts of its ends", low=1, high=10**6
    )
    threshold: int = knob(10, "operators of a piece that is searched at once", low=1, high=1000)
    layouts: int = knob(3, "candidate layouts of an operator at a cut", low=1, high=1000)

    def place(self, model: LayerGraph, cluster: Hardware, batch: int, estimate: Estimate) -> ParallelPlan:
        costs = OperatorCosts(estimate, batch, partial_sums=True, most=MOST_AXES)
        tables = costs.tables()
        limits = Limits(self.alpha, self.budget, self.threshold, self.layouts)
        found = joint_search(
            _space(costs, tables), limits, lambda share: estimate.progress(share, "pieces searched")
        )
        placements = [
            Placement(choices[choice], first)
            for choices, choice, first in zip(costs.choices, found.choices, found.firsts, strict=True)
        ]
        return placed_plan(costs, placements, _notes(costs, tables, found, placements))


def _space(costs: OperatorCosts, tables: CostTables) -> Space:
    """The search begins with data parallelism where samples divide, else with one device."""
    factors = tuple(sorted(set(prime_factors(costs.devices))))
    rewrites = []
    for choices in costs.choices:
        index = {choice: number for number, choice in enumerate(choices)}
        options = (
            dict.fromkeys(index[c] for c in substitutions(choice, factors) if c in index)
            for choice in choices
        )
        rewrites.append([tuple(found) for found in options])
    start = costs.data_parallel() or [0] * len(costs.operators)
    far = {edge: costs.transfer_from_afar(*edge) for edge in tables.edges}
    return Space(tables, far, rewrites, start, costs.devices)


def _notes(
    costs: OperatorCosts, tables: CostTables, found: Found, placements: list[Placement]
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


def _parallel_operators(costs: OperatorCosts, placements: list[Placement]) -> Counter[str]:
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
