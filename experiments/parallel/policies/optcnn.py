"""OptCNN (Jia et al., ICML'18): a configuration for every operator, over samples, channels, height and width.

Followed: section 4 (the cost of a step is the sum of t_C, t_S and t_X over operators and edges, nothing overlaps) and
section 5 (node and edge elimination, enumeration of what is left, undoing), so that the result is the optimum of that
cost. Devices are taken in order: part ``p`` of every operator is on device ``p``; an operator may use fewer devices than
there are. Sequences and hidden dimensions of other models are divided as height and channels are.

Left open by the paper: graphs that do not reduce (here enumerated neighbour by neighbour, see ``planning.operators.elimination``);
how t_C is measured (here an operator's time divides by its parts); how a gradient is reduced (here a ring). Not reproduced:
degrees that do not divide a dimension. An operator whose dimensions the model does not tell is divided by samples only; the
notes count such operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import Estimate, ParallelPlan, ParallelPolicy
from experiments.parallel.planning.operators.divisions import BATCH
from experiments.parallel.planning.operators.elimination import Elimination, eliminate
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.planning.operators.sharded_plan import CARRIED, sharded_plan
from experiments.workloads.layers import LayerGraph

#: Axes by the knob's name; ``None`` for all.
DIMENSIONS = {
    "all": None,
    "sample": (BATCH,),
    "sample_channel": (BATCH, "channel", "hidden", "heads", "feedforward"),
}


@dataclass(frozen=True)
class OptCnn(ParallelPolicy):
    """The configurations of all operators with the least summed cost, found by eliminating nodes and edges."""

    name: ClassVar[str] = "optcnn"

    dimensions: str = knob("all", "dimensions over which operators may be divided", choices=tuple(DIMENSIONS))

    def place(self, model: LayerGraph, cluster: Hardware, batch: int, estimate: Estimate) -> ParallelPlan:
        costs = OperatorCosts(estimate, batch, DIMENSIONS[self.dimensions])
        tables = costs.tables()
        found = eliminate(tables.nodes, tables.edges)
        chosen = [choices[index] for choices, index in zip(tables.choices, found.choices, strict=True)]
        return sharded_plan(costs, chosen, _notes(costs, tables, found))


def _notes(costs: OperatorCosts, tables: CostTables, found: Elimination) -> dict[str, Any]:
    """Predicted seconds a step, and what the search did."""
    return {
        "predicted_step_time": found.cost,
        **costs.reference_times(tables),
        "exact": found.exact,
        "operators": len(tables.choices),
        "configurations": sum(map(len, tables.choices)),
        "nodes_eliminated": found.nodes_eliminated,
        "edges_eliminated": found.edges_eliminated,
        "leaves_folded": found.leaves_folded,
        "enumerated": found.enumerated,
        "by_samples_only": sum(set(axes.names) <= {BATCH} for axes in costs.axes),
        "simulation": CARRIED,
    }
