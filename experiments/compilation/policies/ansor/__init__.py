"""Ansor (Zheng et al., OSDI 2020).

Programs drawn from derived sketches, evolved on a cost model, tasks by gradient.

Sketches are derived by rule (section 4.1), filled in at random (4.2), and improved by evolution on a model
that scores every store statement and sums them up (section 5); a scheduler gives each round of trials to the
task where it lowers the model's total time most (section 6). Of a round 95 % are the best programs by the
model and 5 % random. The model is fitted again when its data has grown by a fifth.

Left open by the paper, and taken from TVM: no crossover; throughput over the task's best as label; a program
that failed has label 0. A compute location is the fusion level of the sketch; annotations are fused from the
outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from experiments.compilation.interface.tuning import (
    Digits,
    Floats,
    ScheduleTuner,
    TuningPolicy,
    TuningProposal,
    TuningTask,
    TuningTrial,
)
from experiments.compilation.planning.tuning import trees
from experiments.compilation.policies.ansor.evolution import Evolution, evolve
from experiments.compilation.policies.ansor.statements import statement_rows
from experiments.compilation.policies.ansor.task_scheduler import Standing, next_task
from experiments.core.knobs import knob

RANDOM_SHARE = 0.05
#: The model is fitted again when its data has grown by this share.
GROWN = 0.2


@dataclass(frozen=True)
class Ansor(TuningPolicy):
    """Evolves programs of derived sketches on a learned cost model and spends trials where they pay most."""

    name: ClassVar[str] = "ansor"
    mechanism: ClassVar[str] = "make kernels"
    from_sketches: ClassVar[bool] = True

    per_round: int = knob(64, "trials of one task before the scheduler chooses again", low=1, high=4096)
    population: int = knob(2048, "programs of one generation", low=16, high=65_536)
    generations: int = knob(4, "generations of one round", low=1, high=64)

    def tuner(self, tasks: Sequence[TuningTask], seed: int) -> ScheduleTuner:
        return _Search(self, tasks, seed)


@dataclass
class _Known:
    """What is known of one task."""

    task: TuningTask
    taken: set[int] = field(default_factory=set)
    points: list[int] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    model: trees.Trees | None = None
    fitted: int = 0

    @property
    def exhausted(self) -> bool:
        return len(self.taken) >= self.task.space.size

    def standing(self) -> Standing:
        return Standing(
            tuple(self.best), self.task.weight, self.task.flops, self.task.operator, self.exhausted
        )

    def best_points(self, count: int) -> list[int]:
        """Return the fastest measured, fastest first."""
        order = np.argsort(-np.array(self.throughput), kind="stable")[:count]
        return [self.points[i] for i in order.tolist() if self.throughput[i] > 0]


class _Search:
    """The state of one run."""

    def __init__(self, policy: Ansor, tasks: Sequence[TuningTask], seed: int) -> None:
        self._policy, self._seed = policy, seed
        self._rng = np.random.default_rng(seed)
        self._known = [_Known(task) for task in tasks]
        self._evolution = Evolution(policy.population, policy.generations)
        self._per_round = policy.round_of(policy.per_round, tasks)

    def propose(self, count: int) -> list[TuningProposal]:
        """Return a round of the task that the scheduler chooses; none when all spaces are exhausted."""
        chosen = next_task([known.standing() for known in self._known], self._rng)
        if chosen is None:
            return []
        known = self._known[chosen]
        round_ = self._round(known, min(count, self._per_round))
        known.taken.update(round_)
        return [TuningProposal(chosen, index) for index in round_]

    def learn(self, trials: Sequence[TuningTrial]) -> None:
        """Remember, and fit the task's model again when enough is new."""
        if not trials:
            return
        known = self._known[trials[0].proposal.task]
        for trial in trials:
            known.points.append(trial.proposal.index)
            known.throughput.append(0.0 if trial.seconds is None else 1.0 / trial.seconds)
        fastest = max(known.throughput)
        known.best.append(1.0 / fastest if fastest else np.inf)
        if fastest and len(known.points) >= known.fitted * (1.0 + GROWN):
            known.model, known.fitted = self._fit(known), len(known.points)

    def _round(self, known: _Known, count: int) -> list[int]:
        """Return the best programs by the model and a few at random, or all at random while there is no
        model.
        """
        space, model = known.task.space, known.model
        found: list[int] = []
        if model is not None:
            wanted = count - int(RANDOM_SHARE * count)
            score = _Score(known.task, model)
            measured = known.best_points(self._policy.population)
            found = evolve(space, score, wanted, known.taken, measured, self._rng, self._evolution)
        taken = known.taken.union(found)
        return found + space.fresh(count - len(found), taken, self._rng)

    def _fit(self, known: _Known) -> trees.Trees:
        labels = np.array(known.throughput)
        labels = labels / labels.max()
        rows, program = statement_rows(
            known.task.nest, known.task.space, known.task.space.digits(known.points)
        )

        def quality(margins: Floats) -> float:
            missed = trees.sums(program, margins, len(labels)) - labels
            return -float((labels * missed**2).sum() / labels.sum())

        growth = trees.Growth(rounds=200, depth=10, rate=0.2, least_gain=0.001, patience=20)
        return trees.fit(rows, trees.weighted_square(labels, program), growth, quality)


@dataclass(frozen=True)
class _Score:
    """The model's score of programs: the sum over their statements."""

    task: TuningTask
    model: trees.Trees

    def __call__(self, digits: Digits) -> Floats:
        rows, program = statement_rows(self.task.nest, self.task.space, digits)
        return trees.sums(program, self.model.predict(rows), len(digits))
