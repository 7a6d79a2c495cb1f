"""A Markov chain over the placements of operators: FlexFlow's search with the acceptance and the resets of
its release.

Source: Jia et al. (FlexFlow), SysML'19, section 6, and the released ``model.cc``: a worse proposal is
accepted with probability exp(-alpha x difference), the difference in milliseconds and not relative to the
cost; every min(1000, max(1, budget / 100)) proposals the chain goes back to the best placement so far; the
last operator is not touched; a plan costs a millisecond more for each megabyte that a device lacks. Here the
random number that decides is drawn before a proposal is simulated, so that the simulation can stop where the
proposal is sure to be refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.core.progress import Progress
from experiments.core.time_limit import time_is_up
from experiments.parallel.planning.operators.footprint import Footprint
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.task_graph import Change, OperatorPlacement, Tasks, placements_of
from experiments.parallel.policies.flexflow.task_times import (
    SimulatedTimes,
    complete,
    simulate_change,
    simulate_tasks,
)
from experiments.workloads.step import Floats

#: Chance that a proposal copies a neighbor's configuration, and that it goes on along the next edge
#: (released code).
COPY, GO_ON = 0.25, 0.75
MILLISECONDS = 1e3
SECONDS_PER_MISSING_BYTE = 1e-9


@dataclass(frozen=True)
class AnnealingRules:
    """Bounds and choices of a chain.

    - ``budget``: proposals.
    - ``alpha``: per millisecond.
    - ``copies``: neighbors may copy a configuration.
    - ``tasks``: whose times may be computed at most.
    - ``time_share``: by when the chain ends, of the run's limit of time.
    """

    budget: int
    alpha: float
    copies: bool
    delta: bool = True
    tasks: int = sys.maxsize
    time_share: float = 1.0


@dataclass
class AnnealingChain:
    """The best placement of a chain and its seconds, and what was accepted.

    With (proposal, best seconds) wherever it got better.

    ``tasks`` had their times computed; ``truncated`` where their bound ended the chain.
    """

    best: list[OperatorPlacement]
    seconds: float
    proposals: int = 0
    accepted: int = 0
    tasks: int = 0
    truncated: bool = False
    curve: list[tuple[int, float]] = field(default_factory=list)


def anneal(
    costs: OperatorCosts,
    start: Sequence[OperatorPlacement],
    rules: AnnealingRules,
    rng: np.random.Generator,
    progress: Progress,
) -> AnnealingChain:
    """Return a chain from ``start``.

    It stops at the budget, when half of it brought nothing better, or at the bound of tasks.
    """
    numbers = costs.report_each(range(len(costs.operators)))
    options = [placements_of(costs, number) for number in numbers]
    movable = [number for number, found in enumerate(options[:-1]) if len(found) > 1]
    walk = _Walk(costs, start, rules.delta)
    chain = AnnealingChain(list(start), walk.cost, tasks=walk.timed, curve=[(0, walk.cost)])
    span = min(1000, max(1, rules.budget // 100))
    for proposal in range(1, rules.budget + 1):
        if not movable or proposal - chain.curve[-1][0] > max(rules.budget // 2, 1):
            break
        if chain.tasks >= rules.tasks or time_is_up(rules.time_share):
            chain.truncated = True
            break
        if proposal % span == 0:
            walk.step(dict(enumerate(chain.best)), math.inf)
        moves = _proposal(costs, walk.placements, movable, options, rules, rng)
        chain.accepted += walk.step(moves, walk.cost + _patience(rules.alpha, rng))
        chain.proposals, chain.tasks = proposal, walk.timed
        if walk.cost < chain.seconds:
            chain.best, chain.seconds = walk.placements, walk.cost
            chain.curve.append((proposal, walk.cost))
        progress(proposal / rules.budget, f"best of {proposal} plans: {chain.seconds:.4g} s")
    return chain


def _patience(alpha: float, rng: np.random.Generator) -> float:
    """How many seconds worse a proposal may be: more than w with probability exp(-alpha w)."""
    drawn = -math.log(1.0 - rng.random())
    return drawn / (alpha * MILLISECONDS) if alpha else math.inf


class _Walk:
    """Where a chain is: a placement of all operators, when their tasks run, and the bytes on each device."""

    def __init__(self, costs: OperatorCosts, start: Sequence[OperatorPlacement], delta: bool) -> None:
        self._delta, self._footprint = delta, Footprint(costs)
        self._tasks = Tasks(costs, list(start))
        self._times = simulate_tasks(self._tasks)
        self._bytes = self._footprint.by_device(start)
        self.cost = self._times.span + self._penalty(self._bytes)

    @property
    def timed(self) -> int:
        """Tasks whose times were computed so far."""
        return self._tasks.timed

    @property
    def placements(self) -> list[OperatorPlacement]:
        return list(self._tasks.placements)

    def step(self, moves: Mapping[int, OperatorPlacement], limit: float) -> bool:
        """Moves operators unless that costs more than ``limit`` seconds; whether it did."""
        now = self._tasks.placements
        real = {number: placement for number, placement in moves.items() if now[number] != placement}
        if not real:
            return True
        held = self._moved_bytes(real)
        time_limit = limit - self._penalty(held)
        change = self._tasks.move(real)
        times = self._simulate(change, time_limit)
        if times is None:
            self._tasks.undo(change)
            return False
        self._tasks.keep(change)
        self._times, self._bytes = times, held
        self.cost = times.span + self._penalty(held)
        return True

    def _simulate(self, change: Change, limit: float) -> SimulatedTimes | None:
        """Nothing where the tasks end after ``limit``."""
        if not self._delta:
            times = simulate_tasks(self._tasks)
            return times if times.span <= limit else None
        trial = simulate_change(self._tasks, self._times, change, limit)
        return complete(self._tasks, self._times, change, trial) if trial.span <= limit else None

    def _moved_bytes(self, moves: Mapping[int, OperatorPlacement]) -> Floats:
        found = self._bytes.copy()
        for number, new in moves.items():
            old = self._tasks.placements[number]
            found[old.first : old.first + old.parts] -= self._footprint.bytes_of(number, old.degrees)
            found[new.first : new.first + new.parts] += self._footprint.bytes_of(number, new.degrees)
        return found

    def _penalty(self, held: Floats) -> float:
        """Seconds for what does not fit."""
        return float(np.maximum(held - self._footprint.capacity, 0).sum()) * SECONDS_PER_MISSING_BYTE


def _proposal(
    costs: OperatorCosts,
    now: Sequence[OperatorPlacement],
    movable: Sequence[int],
    options: Sequence[Sequence[OperatorPlacement]],
    rules: AnnealingRules,
    rng: np.random.Generator,
) -> dict[int, OperatorPlacement]:
    """One operator with another placement, or neighbors with a copy of an operator's."""
    number = movable[int(rng.integers(len(movable)))]
    if not rules.copies or rng.random() >= COPY:
        return {number: options[number][int(rng.integers(len(options[number])))]}
    moves: dict[int, OperatorPlacement] = {}
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
