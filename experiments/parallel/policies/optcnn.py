"""OptCNN (Jia et al., ICML'18): a configuration for every layer over sample, channel, height and width.

Followed: section 4 (the cost of a step is the sum of t_C, t_S and t_X over layers and edges, nothing overlaps) and section 5
(node and edge elimination, enumeration of what is left, undoing), so that the result is the optimum of that cost. Devices
are taken in order: part ``p`` of every layer is on device ``p``, and a layer may use fewer devices than there are.

Left open by the paper: graphs that do not reduce (here enumerated neighbour by neighbour, see ``planning.elimination``);
how t_C is measured (here a layer's time divides by its parts); how a gradient is reduced (here a ring). Not reproduced:
degrees that do not divide a dimension; weights divided by input channels. A layer whose dimensions the model does not tell
is divided by samples only; the notes count such layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import Estimate, ParallelPlan, ParallelPolicy
from experiments.parallel.planning.configurations import AXES
from experiments.parallel.planning.elimination import Elimination, eliminate
from experiments.parallel.planning.layer_costs import CostTables, LayerCosts
from experiments.parallel.planning.sharded_plan import CARRIED, sharded_plan
from experiments.workloads.layers import LayerGraph

#: Dimensions by the knob's name.
DIMENSIONS = {"all": AXES, "sample_channel": AXES[:2], "sample": AXES[:1]}


@dataclass(frozen=True)
class OptCnn(ParallelPolicy):
    """The layer-wise configurations with the least summed cost, found by eliminating nodes and edges."""

    name: ClassVar[str] = "optcnn"

    dimensions: str = knob("all", "dimensions over which a layer may be divided", choices=tuple(DIMENSIONS))

    def place(self, model: LayerGraph, cluster: Hardware, batch: int, estimate: Estimate) -> ParallelPlan:
        costs = LayerCosts(estimate, batch, DIMENSIONS[self.dimensions])
        tables = costs.tables()
        found = eliminate(tables.nodes, tables.edges)
        chosen = [choices[index] for choices, index in zip(tables.choices, found.choices, strict=True)]
        return sharded_plan(costs, chosen, _notes(costs, tables, found))


def _notes(costs: LayerCosts, tables: CostTables, found: Elimination) -> dict[str, Any]:
    """Predicted seconds a step, and what the search did."""
    return {
        "predicted_step_time": found.cost,
        **costs.reference_times(tables),
        "exact": found.exact,
        "configurations": sum(map(len, tables.choices)),
        "nodes_eliminated": found.nodes_eliminated,
        "edges_eliminated": found.edges_eliminated,
        "leaves_folded": found.leaves_folded,
        "enumerated": found.enumerated,
        "layers_by_samples_only": sum(not dims.known for dims in costs.dims),
        "simulation": CARRIED,
    }
