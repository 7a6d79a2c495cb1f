"""OptCNN (Jia et al., ICML'18): a configuration for every operator, over samples, channels, height and width.

Followed: section 4 (the cost of a step is the sum of t_C, t_S and t_X over operators and edges, nothing
overlaps) and section 5 (node and edge elimination, enumeration of what is left, undoing), so that the result
is the optimum of that cost. Devices are taken in order: part ``p`` of every operator is on device ``p``; an
operator may use fewer devices than there are. Sequences and hidden dimensions of other models are divided as
height and channels are.

Left open by the paper: graphs that do not reduce (here enumerated neighbor by neighbor, see ``elimination``);
how t_C is measured (here a part takes an equal share of its operator's time, and more where its products have
small tiles: ``part_loss``); how a gradient is reduced (here a ring). Not reproduced: degrees that do not
divide a dimension. An operator whose dimensions the model does not tell is divided by samples only; the notes
count such operators.

Different here where ``judge`` says ``simulator``, not the sum: in the plan as carried out gradients overlap
with the backward pass, which no sum of costs can know. So the optimum is sought twice, with all of t_S and
with none, and of the two and data parallelism the plan is taken whose simulated step is shortest. Where the
optimum does not fit a device, every byte gets a price (``planning.operators.pricing``). ``evaluations``
bounds all of it; each enumeration has an equal share, and where that cannot hold all choices the most
promising ones are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from experiments.core.budget import Budget
from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate, whole_share
from experiments.parallel.planning.judges import COSTS, JUDGES, SIMULATOR, choose_best
from experiments.parallel.planning.operators.divisions import BATCH, Configuration
from experiments.parallel.planning.operators.operator_costs import CostTables, OperatorCosts
from experiments.parallel.planning.operators.pricing import (
    DATA_PARALLEL,
    EXPOSED,
    SEARCHES,
    Pricing,
)
from experiments.parallel.planning.operators.sharded_plan import CARRIED, sharded_plan
from experiments.parallel.planning.settings import parts_that_may_fit
from experiments.parallel.policies.optcnn.elimination import Elimination, eliminate
from experiments.workloads.layers import LayerGraph

#: Axes by the knob's name; ``None`` for all.
DIMENSIONS = {
    "all": None,
    "sample": (BATCH,),
    "sample_channel": (BATCH, "channel", "hidden", "heads", "feedforward"),
}


#: Enumerations of what does not reduce that all searches together may take: about four rounds each.
ENUMERATIONS = 4 * SEARCHES


@dataclass(frozen=True)
class OptCnn(ParallelPolicy):
    """The cheapest configurations of all operators, found by eliminating nodes and edges."""

    name: ClassVar[str] = "optcnn"
    mechanism: ClassVar[str] = "searched layouts"

    dimensions: str = knob("all", "dimensions over which operators may be divided", choices=tuple(DIMENSIONS))
    judge: str = knob(COSTS, "what says which plan is best: a simulated step, or the sum", choices=JUDGES)
    evaluations: int = knob(
        10_000_000_000, "sums of costs that are compared before the best so far is taken", low=1, high=10**15
    )

    micro_batches: int | None = open_knob("parts of the batch, one after another", low=1, high=65536)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """As few parts as fit."""
        return parts_that_may_fit(self, batch, estimate)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        parts = self.micro_batches or 1
        samples = whole_share(batch, parts, "samples", "knobs.micro_batches")
        costs = OperatorCosts(estimate, samples, DIMENSIONS[self.dimensions], micro_batches=parts)
        pricing = Pricing(costs)
        budget = Budget(self.evaluations, estimate.progress, "sums")
        found = {
            f"{exposed:.0%} of t_S": _optimum(costs, pricing, exposed, budget)
            for exposed in (EXPOSED if self.judge == SIMULATOR else EXPOSED[:1])
        }
        chosen = {name: optimum.choices for name, optimum in found.items()}
        if replicated := costs.data_parallel():
            chosen[DATA_PARALLEL] = tuple(replicated)
        sums = {name: parts * pricing.tables.total(choices) for name, choices in chosen.items()}
        plans = {name: _plan(costs, choices) for name, choices in chosen.items()}
        best, simulated = choose_best(self.judge, estimate, plans, sums)
        notes = _notes(costs, pricing.tables, found.get(best, next(iter(found.values()))))
        told = {"predicted_step_time": sums[best], "taken": best, "simulated_steps": simulated}
        return replace(plans[best], notes={**told, **notes, **budget.caveat("evaluations")})


def _optimum(costs: OperatorCosts, pricing: Pricing, exposed: float, budget: Budget) -> Elimination:
    """The least sum with so much of t_S, among what fits if anything does."""
    return pricing.solve_within_memory(
        lambda tables: eliminate(tables.nodes, tables.edges, budget, budget.most / ENUMERATIONS),
        lambda found: pricing.peak_bytes(_configurations(costs, found.choices)),
        exposed,
        lambda: budget.take(0),
    )


def _configurations(costs: OperatorCosts, choices: Sequence[int]) -> list[Configuration]:
    return [options[index] for options, index in zip(costs.choices, choices, strict=True)]


def _plan(costs: OperatorCosts, choices: Sequence[int]) -> ParallelPlan:
    return sharded_plan(costs, _configurations(costs, choices), {})


def _notes(costs: OperatorCosts, tables: CostTables, found: Elimination) -> dict[str, Any]:
    """What to compare with, and what the search did."""
    return {
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
