"""AutoTVM (Chen et al., NeurIPS 2018).

A ranking model of schedules, searched by annealing, retrained as trials come in.

Tasks are tuned one after another, each with its share of the trials. The first batch of a task is random.
After every ``plan_size`` trials boosted trees are fitted to rank the task's schedules by throughput (section
3.2; failures have throughput 0), 128 annealing walkers look for the schedules that the model likes best
(section 3.3), and those never tried are measured in order; the last 5 % of each plan are random.
``diversity`` plans that many times more and picks greedily by score and new knob values. ``transfer`` starts
a task from a model of earlier tasks' trials, whose say falls by half every 64 trials (section 4).

Left open by the paper: what trials with a failure alone teach (nothing: no model is fitted); the noise of a
trial (the median of its repeats). The paper's tree-based neural network (TreeGRU) is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from experiments.compilation.planning.tuning import features, trees
from experiments.compilation.planning.tuning.annealing import Annealing, anneal, diverse
from experiments.compilation.planning.tuning.random_search import RandomTuner
from experiments.core.knobs import knob

#: Records of earlier tasks below which there is no model of them, and the say below which that model is
#: dropped.
LEAST_TO_TRANSFER, LEAST_SAY = 500, 0.05
#: Of the random schedules at the end of each plan.
RANDOM_SHARE = 0.05
#: Relative throughput of a batch that says nothing: all failed.
NOTHING = 1e-6


@dataclass(frozen=True)
class AutoTvm(TuningPolicy):
    """Ranks schedules with boosted trees and measures those that annealing on the model likes best."""

    name: ClassVar[str] = "autotvm"
    mechanism: ClassVar[str] = "make kernels"

    plan_size: int = knob(64, "trials between two fits of the model", low=1, high=4096)
    features: str = knob("itervar", "what the model sees of a schedule", choices=("knob", "itervar", "curve"))
    search: str = knob(
        "model", "the model, or the baseline that draws at random", choices=("model", "random")
    )
    diversity: float = knob(
        1.0, "candidates for each place of a plan, picked for new knob values", low=1, high=16
    )
    transfer: bool = knob(False, "start from a model of earlier tasks' trials")
    walkers: int = knob(128, "annealing points", low=1, high=4096)
    steps: int = knob(500, "annealing steps", low=1, high=10_000)

    def tuner(self, tasks: Sequence[TuningTask], seed: int) -> ScheduleTuner:
        size = self.round_of(self.plan_size, tasks)
        if self.search == "random":
            return RandomTuner(tasks, seed, size)
        return _Search(replace(self, plan_size=size), tasks, seed)


@dataclass
class _Progress:
    """What is known of one task: points taken, features and throughputs measured, and the current plan."""

    task: TuningTask
    quota: int
    taken: set[int] = field(default_factory=set)
    rows: list[Digits] = field(default_factory=list)
    throughput: list[float] = field(default_factory=list)
    plan: list[int] = field(default_factory=list)
    walkers: Digits | None = None
    fits: int = 0

    @property
    def labels(self) -> Floats:
        """Throughput over the best so far; 0 for failures."""
        found = np.array(self.throughput)
        return found / max(float(found.max(initial=0.0)), np.finfo(float).tiny)


class _Search:
    """The state of one run. A task is done when its share of the trials is used up or its space is."""

    def __init__(self, policy: AutoTvm, tasks: Sequence[TuningTask], seed: int) -> None:
        self._policy, self._rng = policy, np.random.default_rng(seed)
        self._seed = seed
        self._tasks = [_Progress(task, 0) for task in tasks]
        self._current = -1
        self._told = 0
        self._base: trees.Trees | None = None

    def propose(self, count: int) -> list[TuningProposal]:
        """Return the rest of the current task's plan, or a new plan of it.

        The next task when this one is done.
        """
        while self._current < 0 or not self._trials_left(self._tasks[self._current]):
            if self._current + 1 == len(self._tasks):
                return []
            self._begin(self._current + 1, count)
        now = self._tasks[self._current]
        most = min(count, self._policy.plan_size, self._trials_left(now))
        chosen = self._next_planned(now, most)
        now.taken.update(chosen)
        return [TuningProposal(self._current, index) for index in chosen]

    def learn(self, trials: Sequence[TuningTrial]) -> None:
        """Remember; after every ``plan_size`` trials of a task its model is fitted and a plan made."""
        for trial in trials:
            now = self._tasks[trial.proposal.task]
            now.rows.append(now.task.space.digits([trial.proposal.index])[0])
            now.throughput.append(0.0 if trial.seconds is None else 1.0 / trial.seconds)
        now = self._tasks[self._current]
        if len(now.throughput) >= self._policy.plan_size * (now.fits + 1) and max(now.throughput) > NOTHING:
            self._replan(now)

    def _trials_left(self, now: _Progress) -> int:
        return min(now.quota - len(now.throughput), now.task.space.size - len(now.taken))

    def _begin(self, place: int, budget: int) -> None:
        """The next task, with an equal share of what is left, and a model of the earlier ones where asked
        for.
        """
        self._current = place
        now = self._tasks[place]
        now.quota = -(-budget // (len(self._tasks) - place))
        self._base = self._base_model(place) if self._policy.transfer else None
        if self._base is not None:
            self._anneal(now)

    def _next_planned(self, now: _Progress, most: int) -> list[int]:
        """From the plan in its order; its last 5 %, and all where there is no plan, at random."""
        random = min(int(RANDOM_SHARE * most), most) if now.plan else most
        now.plan = [point for point in now.plan if point not in now.taken]
        chosen = now.plan[: most - random]
        now.plan = now.plan[most - random :]
        taken = now.taken.union(chosen)
        return chosen + now.task.space.fresh(most - len(chosen), taken, self._rng)

    def _replan(self, now: _Progress) -> None:
        now.fits = len(now.throughput) // self._policy.plan_size
        self._anneal(now)

    def _anneal(self, now: _Progress) -> None:
        """The plan: what the model likes best of what was never tried."""
        policy = self._policy
        model = self._fit(now)
        wanted = int(policy.plan_size * policy.diversity)
        annealing = Annealing(policy.walkers, policy.steps)
        found, now.walkers = anneal(
            now.task.space, model, wanted, now.taken, self._rng, annealing, now.walkers
        )
        if policy.diversity > 1 and found:
            digits = now.task.space.digits(found)
            found = [found[row] for row in diverse(model(digits), digits, policy.plan_size)]
        now.plan = found

    def _fit(self, now: _Progress) -> _Model:
        say = discount(len(now.throughput)) if self._base is not None else 0.0
        base = self._base if say else None
        if not now.throughput:
            return _Model(self._policy.features, now.task, None, base, say)
        rows = features.features(self._policy.features, now.task, np.array(now.rows))
        labels = now.labels
        margins = say * base.predict(rows) if base is not None else None
        fitted = trees.fit(
            rows,
            trees.pairwise(labels, self._seed),
            trees.Growth(),
            lambda margin: trees.average_recall(margin, labels, self._policy.plan_size),
            margins,
        )
        return _Model(self._policy.features, now.task, fitted, base, say)

    def _base_model(self, place: int) -> trees.Trees | None:
        """Trees over all trials of earlier tasks whose features are columns of the same meaning."""
        kind, now = self._policy.features, self._tasks[place].task
        alike = [
            known
            for known in self._tasks[:place]
            if known.rows and features.comparable(kind, known.task, now) and max(known.throughput) > 0
        ]
        if sum(len(known.rows) for known in alike) < LEAST_TO_TRANSFER:
            return None
        rows = np.concatenate([features.features(kind, known.task, np.array(known.rows)) for known in alike])
        labels = np.concatenate([known.labels for known in alike])
        quality = lambda margin: trees.average_recall(margin, labels, self._policy.plan_size)  # noqa: E731
        return trees.fit(rows, trees.pairwise(labels, self._seed), trees.Growth(), quality)


@dataclass(frozen=True)
class _Model:
    """Margins of rows of digits: the task's own trees and the discounted ones of earlier tasks."""

    kind: str
    task: TuningTask
    own: trees.Trees | None
    base: trees.Trees | None
    say: float

    def __call__(self, digits: Digits) -> Floats:
        rows = features.features(self.kind, self.task, digits)
        margins = self.own.predict(rows) if self.own is not None else np.zeros(len(rows))
        return margins + self.say * self.base.predict(rows) if self.base is not None else margins


def discount(trials: int) -> float:
    """Return how much the model of earlier tasks still counts.

    Half as much every 64 trials, nothing below 0.05.
    """
    say: float = 2.0 ** (-trials / 64)
    return say if say >= LEAST_SAY else 0.0
