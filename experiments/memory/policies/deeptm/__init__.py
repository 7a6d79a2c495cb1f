"""DeepTM (TPDS 2024): a learned policy moves tensors between fast and slow memory, one decision for each use.

Tabular Q-learning. State: where the tensor is (not yet made, here, elsewhere), its heat, free fast memory
until the next use, free slow memory, the latter three in five bins. Action: stay, to fast memory, to slow
memory. Reward: minus the exposed seconds of the decision relative to the ideal step, minus one (an ideal
step) where it would overflow, which is refused, and for all decisions of an episode how much faster its plan
is in the simulator than the average plan so far. Exploration falls from 0.2 to 0.01. The fastest plan of all
episodes and of the greedy one at the end is kept; budget and the curve of step times are in the notes, the
seed is the run's. Heat is the mean of accesses, 1 / reuse distance, size and lifetime.

Left open by the abstract: the network (a table here), the learning rate and how the weights of heat adapt
(they are equal). Not reproduced: pages ordered by reuse distance, and neighbors that migrate as one
transaction; a plan has no pages. The integer program that the paper compares with is ``autotm``. Without
memory that ops can use in place, slow memory is the host, and what is there returns before its use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.policies.deeptm.placement_game import Board, bin_of
from experiments.workloads.step import Step

UNMADE, HERE, ELSEWHERE = range(3)
STAY, TO_FAST, TO_SLOW = range(3)
BINS = 5
#: Shares of free memory, and of tensors by heat, at which a bin ends.
EDGES = (0.2, 0.4, 0.6, 0.8)
LEARNING, DISCOUNT = 0.1, 0.9


State = tuple[int, ...]


@dataclass
class QLearner:
    """``table[location, heat, free fast, free slow][action]`` is the return expected of an action.

    It is read twice for every decision, and ``costs`` are the same in every episode: plain lists and numbers.
    """

    board: Board
    random: np.random.Generator
    table: dict[State, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0] * 3))
    costs: dict[tuple[int, bool, bool], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = [self.board.resident_ops(turn) for turn in self.board.turns]
        heat = self.board.heat()
        edges = np.quantile(heat[self.board.tensors], EDGES).tolist() if self.board.tensors else EDGES
        self.heat = [bin_of(value, edges) for value in heat.tolist()]
        self.ideal = self.board.step.seconds

    def episode(self, exploration: float) -> tuple[list[bool], list[tuple[State, int]]]:
        """Decisions for every turn, learning from each; and the (state, action) pairs that were visited."""
        board = self.board
        load, room = board.least_load.copy(), board.machine.capacity
        slow = board.machine.tier_bytes(board.tier)
        left, previous = float(slow), dict[int, tuple[State, int, float]]()
        stays: list[bool] = []
        visited: list[tuple[State, int]] = []
        where: dict[int, int] = {}
        explored = (self.random.random(len(board.turns)) < exploration).tolist()
        strays = self.random.integers(3, size=len(board.turns)).tolist()
        for index, turn in enumerate(board.turns):
            held, size = self.held[index], board.sizes[turn.tensor]
            free = room - max(int(load[ops].max(initial=0)) for ops in held)
            location = where.get(turn.tensor, HERE if turn.after >= 0 and not turn.wraps else UNMADE)
            state = (
                location,
                self.heat[turn.tensor],
                bin_of(free / room, EDGES),
                bin_of(left / slow if slow else 0.0, EDGES),
            )
            returns = self.table[state]
            action = strays[index] if explored[index] else returns.index(max(returns))
            wanted = location != ELSEWHERE if action == STAY else action == TO_FAST
            here = wanted and free >= size
            cost = self._cost(index, location == HERE, here)
            reward = -cost / self.ideal - float(wanted and not here)
            self._learn(previous.get(turn.tensor), state)
            previous[turn.tensor] = (state, action, reward)
            visited.append((state, action))
            for ops in held if here else ():
                load[ops] += size
            left -= size * (float(location != ELSEWHERE and not here) - float(location == ELSEWHERE and here))
            where[turn.tensor] = HERE if here or not board.in_place else ELSEWHERE
            stays.append(here)
        for last in previous.values():
            self._learn(last, None)
        return stays, visited

    def _cost(self, index: int, here: bool, stays: bool) -> float:
        key = index, here, stays
        if key not in self.costs:
            self.costs[key] = self.board.cost(self.board.turns[index], here, stays)
        return self.costs[key]

    def _learn(self, last: tuple[State, int, float] | None, state: State | None) -> None:
        """The tensor's last decision led to ``state`` (none: the end)."""
        if last is None:
            return
        before, action, reward = last
        future = 0.0 if state is None else DISCOUNT * max(self.table[state])
        returns = self.table[before]
        returns[action] += LEARNING * (reward + future - returns[action])

    def reward_all(self, visited: Sequence[tuple[State, int]], reward: float) -> None:
        """What the whole episode was worth, once for every pair of state and action in it."""
        for state, action in sorted(set(visited)):
            self.table[state][action] += LEARNING * reward


@dataclass(frozen=True)
class DeepTM(MemoryPolicy):
    """A policy learned in the simulator says at each use of a tensor where it is until the next one."""

    name: ClassVar[str] = "deeptm"
    mechanism: ClassVar[str] = "offload"
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"episodes": 5}

    episodes: int = knob(60, "steps simulated for training", low=1, high=100_000)
    exploration: float = knob(0.2, "share of random actions at the beginning", low=0.0, high=1.0)
    least_exploration: float = knob(0.01, "share of random actions at the end", low=0.0, high=1.0)
    least_bytes: int = knob(2**16, "smaller tensors stay in fast memory", low=1, high=2**40, unit="bytes")

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        board = Board(step, device.machine, self.least_bytes)
        learner = QLearner(board, device.random)
        times: list[float] = []
        best, fastest = MemoryPlan(board.moves([False] * len(board.turns))), float("inf")
        schedule = np.linspace(self.exploration, self.least_exploration, self.episodes).tolist()
        for exploration in (*schedule, 0.0):
            stays, visited = learner.episode(exploration)
            plan = MemoryPlan(board.moves(stays))
            trial = device.estimate(plan)
            if trial.fits:
                times.append(trial.step_time)
                learner.reward_all(visited, (float(np.mean(times)) - trial.step_time) / learner.ideal)
            if trial.step_time < fastest:
                best, fastest = plan, trial.step_time
        notes = {"episodes": self.episodes, "decisions": len(board.turns), "step_times": times}
        return MemoryPlan(best.moves, notes=notes)
