"""One tuning run: ask, measure, tell, until the budget is spent or nothing is left to try.

And what came of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.interface import refuse
from experiments.compilation.interface.tuning import (
    Floats,
    ScheduleTuner,
    TuningProposal,
    TuningTask,
    TuningTrial,
    violations,
)
from experiments.core.progress import Progress

#: Trials one by one, in the order proposed, so that each can be shown and a search stopped between two.
Measure = Callable[[Sequence[TuningProposal]], Iterable[TuningTrial]]
#: Shares of the best throughput that a search is timed by.
SHARES = {"90": 0.90, "95": 0.95, "99": 0.99, "best": 1.0}


@dataclass(frozen=True)
class History:
    """Every trial in the order measured.

    ``thinking`` is what the tuner itself took, ``seconds`` the whole run.
    """

    tasks: tuple[TuningTask, ...]
    trials: tuple[TuningTrial, ...]
    thinking: float
    seconds: float

    @property
    def failures(self) -> dict[str, int]:
        """Failed trials by the class of the error."""
        return dict(sorted(Counter(trial.error for trial in self.trials if trial.error).items()))

    def best(self, task: int) -> TuningTrial | None:
        """Return the fastest trial of a task, the first of equal ones."""
        valid = [trial for trial in self.trials if trial.proposal.task == task and trial.seconds is not None]
        return min(valid, key=lambda trial: trial.seconds or np.inf, default=None)

    def curve(self) -> Floats:
        """After each trial, the weighted sum of the best times of all tasks.

        Infinite until every task has one.
        """
        best = np.full(len(self.tasks), np.inf)
        weight = np.array([task.weight for task in self.tasks])
        totals = np.empty(len(self.trials))
        for number, trial in enumerate(self.trials):
            if trial.seconds is not None:
                best[trial.proposal.task] = min(best[trial.proposal.task], trial.seconds)
            totals[number] = float(weight @ best)
        return totals


def tune(
    tuner: ScheduleTuner,
    tasks: Sequence[TuningTask],
    measure: Measure,
    trials: int,
    seconds: float,
    progress: Progress,
) -> History:
    """Ask and tell until ``trials`` are done, ``seconds`` have passed, or the tuner has nothing left.

    ``ImpossiblePlan`` for proposals that are no schedules or were made before.
    """
    done: list[TuningTrial] = []
    proposed: set[TuningProposal] = set()
    thinking, started = 0.0, time.perf_counter()
    while len(done) < trials and time.perf_counter() - started < seconds:
        asked = time.perf_counter()
        proposals = tuner.propose(trials - len(done))
        thinking += time.perf_counter() - asked
        if not proposals:
            break
        refuse(violations(proposals, tasks, trials - len(done), proposed))
        proposed.update(proposals)
        measured = []
        for trial in measure(proposals):
            measured.append(trial)
            progress(
                (len(done) + len(measured)) / trials, progress_line(trial, len(done) + len(measured), trials)
            )
            if time.perf_counter() - started >= seconds:
                break
        done += measured
        asked = time.perf_counter()
        tuner.learn(measured)
        thinking += time.perf_counter() - asked
    return History(tuple(tasks), tuple(done), thinking, time.perf_counter() - started)


def progress_line(trial: TuningTrial, number: int, trials: int) -> str:
    """One line of progress: which trial it was and what it gave."""
    result = trial.error or f"{(trial.seconds or 0.0) * 1e6:.4g} us"
    return f"trial {number} of {trials}: {result}"


def trials_to(curve: Floats, best: float, share: float) -> int | None:
    """Return the first trial after which ``share`` of the best throughput is reached; ``None`` if never."""
    reached = np.flatnonzero(curve <= best / share * (1.0 + 1e-12))
    return int(reached[0]) + 1 if len(reached) else None
