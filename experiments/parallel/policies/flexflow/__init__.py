"""FlexFlow (Jia et al., SysML'19): degrees and devices of every operator by a Markov chain over simulated
task graphs.

Followed: section 4 (SOAP: samples, attributes and parameters of an operator's output, and which devices),
section 5 (task graph, full and delta simulation), section 6 (proposals, acceptance, two starts, the end of a
chain), with the acceptance and the resets of the released ``model.cc`` (see ``annealing``). The budget is a
number of proposals, never seconds, and draws follow the run's seed; the bound on simulated tasks is ours, and
ends chains over graphs of hundreds of thousands of tasks.

Left open by the paper: contention (a link runs one transfer at a time), how gradients are reduced (a ring
among the parts that replicate them, on a lane next to transfers), and which devices an operator may have
(here blocks of neighbors that its parts fill; the order of parts is fixed). Not reproduced: measured times of
tiles (a part takes an equal share of its operator's time, and more where its products have small tiles:
``part_loss``) and degrees that do not divide a dimension. Plans that divide by more than samples are
simulated one layer after another, so their simulated step may take longer than predicted where the search
runs layers at once; the notes say which case it is, and where ``judge`` says ``simulator``, not the task
graph, the plan of data parallelism is taken where its simulated step is shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from experiments.core.budget import ENDED_AT, caveat
from experiments.core.knobs import knob
from experiments.core.policy import MINUTES
from experiments.core.progress import part
from experiments.core.time_limit import say_ended
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, ParallelPolicy, PlanningEstimate
from experiments.parallel.planning.judges import COSTS, JUDGES, choose_best
from experiments.parallel.planning.operators.divisions import BATCH
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.placed_plan import placed_plan
from experiments.parallel.planning.operators.pricing import DATA_PARALLEL
from experiments.parallel.planning.operators.task_graph import OperatorPlacement, Tasks, placements_of
from experiments.parallel.policies.flexflow.annealing import AnnealingChain, AnnealingRules, anneal
from experiments.parallel.policies.flexflow.task_times import simulate_tasks
from experiments.workloads.layers import LayerGraph

#: Improvements of a search curve that are kept in the notes.
MOST_POINTS = 500


@dataclass(frozen=True)
class FlexFlow(ParallelPolicy):
    """Degrees and devices of every operator by a Markov chain over simulated task graphs."""

    name: ClassVar[str] = "flexflow"
    mechanism: ClassVar[str] = "searched layouts"
    keeps_whole: ClassVar[str] = "its chains look for the fastest plan, not for one that fits"
    effort: ClassVar[str] = MINUTES
    quick: ClassVar[Mapping[str, Any]] = {"budget": 40}

    budget: int = knob(400, "proposals of each chain", low=1, high=1_000_000)
    alpha: float = knob(1.2, "acceptance: exp(-alpha x worse)", low=0.0, high=1e9, unit="1/ms")
    starts: str = knob("both", "where chains begin", choices=("data_parallel", "random", "both"))
    tasks: int = knob(20_000_000, "tasks whose times are computed, by all chains", low=1, high=10**15)
    copies: bool = knob(False, "a proposal may copy a configuration along edges (released option)")
    dimensions: str = knob(
        "soap", "what may be divided: all four, or samples and devices", choices=("soap", "so")
    )

    judge: str = knob(COSTS, "what says which plan is best: a step, or the task graph", choices=JUDGES)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        costs = OperatorCosts(estimate, batch, (BATCH,) if self.dimensions == "so" else None)
        rng = np.random.default_rng(estimate.seed)
        starts = self._starts(costs, rng)
        rules = AnnealingRules(self.budget, self.alpha, self.copies, tasks=self.tasks // len(starts))
        shares = [(i / len(starts), (i + 1) / len(starts)) for i in range(len(starts))]
        chains = [
            anneal(costs, start, replace(rules, time_share=end), rng, part(estimate.progress, begin, end))
            for start, (begin, end) in zip(starts, shares, strict=True)
        ]
        best = min(chains, key=lambda chain: chain.seconds)
        placements = {"the best of the chains": best.best}
        if replicated := _data_parallel(costs):
            placements[DATA_PARALLEL] = replicated
        plans = {name: placed_plan(costs, placed, {}) for name, placed in placements.items()}
        spans = {name: simulate_tasks(Tasks(costs, placed)).span for name, placed in placements.items()}
        found, steps = choose_best(self.judge, estimate, plans, spans)
        notes = _notes(costs, chains, placements[found], spans)
        ended = caveat(self.tasks, "tasks", "tasks") if any(chain.truncated for chain in chains) else {}
        if any(chain.truncated and chain.tasks < rules.tasks for chain in chains):
            ended = {ENDED_AT: say_ended(f"{sum(chain.proposals for chain in chains)} proposals")}
        told = {"taken": found, "simulated_steps": steps, "predicted_step_time": spans[found]}
        return replace(plans[found], notes={**plans[found].notes, **notes, **told, **ended})

    def _starts(self, costs: OperatorCosts, rng: np.random.Generator) -> list[list[OperatorPlacement]]:
        """Data parallelism (one device where samples do not divide) and a random placement."""
        found = []
        if self.starts != "random":
            found.append(_data_parallel(costs) or _serial(costs))
        if self.starts != "data_parallel":
            numbers = costs.report_each(range(len(costs.operators)))
            options = (placements_of(costs, number) for number in numbers)
            found.append([choices[int(rng.integers(len(choices)))] for choices in options])
        return found


def _data_parallel(costs: OperatorCosts) -> list[OperatorPlacement] | None:
    chosen = costs.data_parallel()
    if chosen is None:
        return None
    return [OperatorPlacement(choices[index]) for choices, index in zip(costs.choices, chosen, strict=True)]


def _serial(costs: OperatorCosts) -> list[OperatorPlacement]:
    return [OperatorPlacement(choices[0]) for choices in costs.choices]


def _notes(
    costs: OperatorCosts,
    chains: list[AnnealingChain],
    placed: list[OperatorPlacement],
    spans: Mapping[str, float],
) -> dict[str, Any]:
    return {
        "serial_time": simulate_tasks(Tasks(costs, _serial(costs))).span,
        "lower_bound": costs.serial_seconds / costs.devices,
        "data_parallel_time": spans.get(DATA_PARALLEL),
        "proposals": sum(chain.proposals for chain in chains),
        "accepted": sum(chain.accepted for chain in chains),
        "curves": [[list(point) for point in chain.curve[-MOST_POINTS:]] for chain in chains],
        "placements": [
            {
                "operator": operator.name,
                "division": axes.text(placement.degrees),
                "devices": list(range(placement.first, placement.first + placement.parts)),
            }
            for operator, axes, placement in zip(costs.operators, costs.axes, placed, strict=True)
            if operator.share
        ],
    }
