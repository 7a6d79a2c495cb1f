"""A Markov chain over the placements of operators: FlexFlow's search with the acceptance and the resets of its release.

Source: Jia et al. (FlexFlow), SysML'19, section 6, and the released ``model.cc``: a worse proposal is accepted with probability
exp(-alpha x difference), the difference in milliseconds and not relative to the cost; every min(1000, max(1, budget / 100))
proposals the chain goes back to the best placement so far; the last operator is not touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.core.progress import Progress
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.task_graph import Placement, Tasks, placements_of
from experiments.parallel.planning.operators.task_times import Times, changed, simulated

#: Chance that a proposal copies a neighbour's configuration, and that it goes on along the next edge (released code).
COPY, GO_ON = 0.25, 0.75
MILLISECONDS = 1e3


@dataclass(frozen=True)
class Rules:
    """``budget`` proposals; ``alpha`` per millisecond; ``copies``: neighbours may copy a configuration."""

    budget: int
    alpha: float
    copies: bool
    delta: bool = True


@dataclass
class Chain:
    """The best placement and its seconds, what was accepted, and (proposal, best seconds) wherever it got better."""

    best: list[Placement]
    seconds: float
    proposals: int = 0
    accepted: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)


def annealed(
    costs: OperatorCosts,
    start: Sequence[Placement],
    rules: Rules,
    rng: np.random.Generator,
    progress: Progress,
) -> Chain:
    """A chain from ``start``; it stops at the budget, or when half of it brought nothing better."""
    options = [placements_of(costs, number) for number in range(len(costs.operators))]
    movable = [number for number, found in enumerate(options[:-1]) if len(found) > 1]
    tasks = Tasks(costs, list(start))
    times = simulated(tasks)
    chain = Chain(list(start), times.span, curve=[(0, times.span)])
    update: Callable[[Tasks, Times], Times] = changed if rules.delta else lambda tasks, _: simulated(tasks)
    span = min(1000, max(1, rules.budget // 100))
    for proposal in range(1, rules.budget + 1):
        if not movable or proposal - chain.curve[-1][0] > max(rules.budget // 2, 1):
            break
        if proposal % span == 0:
            times = _moved(tasks, dict(enumerate(chain.best)), times, update)
        moves = _proposal(costs, tasks.placements, movable, options, rules, rng)
        before = {number: tasks.placements[number] for number in moves}
        tried = _moved(tasks, moves, times, update)
        chain.proposals = proposal
        if _accepted(tried.span - times.span, rules.alpha, rng):
            times, chain.accepted = tried, chain.accepted + 1
        else:
            _restored(tasks, before)
        if times.span < chain.seconds:
            chain.best, chain.seconds = list(tasks.placements), times.span
            chain.curve.append((proposal, times.span))
        progress(proposal / rules.budget, f"best of {proposal} plans: {chain.seconds:.4g} s")
    return chain


def _accepted(worse: float, alpha: float, rng: np.random.Generator) -> bool:
    """A random number is drawn for a worse proposal only."""
    return worse < 0 or rng.random() < math.exp(-alpha * MILLISECONDS * worse)


def _moved(
    tasks: Tasks, moves: dict[int, Placement], times: Times, update: Callable[[Tasks, Times], Times]
) -> Times:
    for number, placement in moves.items():
        if tasks.placements[number] != placement:
            tasks.place(number, placement)
    return update(tasks, times) if tasks.changed or tasks.removed else times


def _restored(tasks: Tasks, before: dict[int, Placement]) -> None:
    """The tasks as they were; the times of then are still known."""
    for number, placement in before.items():
        if tasks.placements[number] != placement:
            tasks.place(number, placement)
    tasks.changed.clear()
    tasks.removed.clear()


def _proposal(
    costs: OperatorCosts,
    now: Sequence[Placement],
    movable: Sequence[int],
    options: Sequence[Sequence[Placement]],
    rules: Rules,
    rng: np.random.Generator,
) -> dict[int, Placement]:
    """One operator with another placement, or neighbours with a copy of an operator's."""
    number = movable[int(rng.integers(len(movable)))]
    if not rules.copies or rng.random() >= COPY:
        return {number: options[number][int(rng.integers(len(options[number])))]}
    moves: dict[int, Placement] = {}
    placement, here = now[number], number
    while True:
        around = [j if i == here else i for i, j in costs.edges if here in (i, j)]
        fitting = [other for other in sorted(set(around)) if other in movable and placement in options[other]]
        if not fitting:
            return moves
        here = fitting[int(rng.integers(len(fitting)))]
        moves[here] = placement
        if rng.random() >= GO_ON:
            return moves
