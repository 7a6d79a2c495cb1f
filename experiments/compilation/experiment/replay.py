"""Replay: a recorded log in place of a device.

A trial is looked up, so a search can be repeated as often as wanted.

A space of a replay is the table: tuners choose among what was recorded, nothing is made up for the rest. What
a log holds was chosen by the tuner that wrote it, so a random draw from it does better than one from the
whole space would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.interface.tuning import (
    ScheduleKnob,
    ScheduleSpace,
    TuningProposal,
    TuningTask,
    TuningTrial,
)
from experiments.workloads.tuning_log import TUNING_ERRORS, LoggedTask, TuningLog, Value

#: Seconds or the class of the error, and what the trial took in all.
Recorded = tuple[float | None, str, float]
#: Which mutation changes a recorded knob, by how its name begins.
KINDS = {
    "tile": "tile",
    "SP": "tile",
    "auto_unroll": "unroll",
    "PR": "unroll",
    "CA": "location",
    "AN": "parallel",
}


@dataclass(frozen=True)
class Replay:
    """A log's tasks as tuners see them, and its records by task and point."""

    tasks: tuple[TuningTask, ...]
    tables: tuple[Mapping[int, Recorded], ...]

    def measure(self, proposals: Sequence[TuningProposal]) -> Iterator[TuningTrial]:
        """What was recorded of each proposal."""
        return map(self._trial, proposals)

    @property
    def best(self) -> float:
        """The sum over tasks of the best time recorded; infinite where a task has none."""
        least = [
            min((row[0] for row in table.values() if row[0] is not None), default=math.inf)
            for table in self.tables
        ]
        return sum(task.weight * seconds for task, seconds in zip(self.tasks, least, strict=True))

    def _trial(self, proposal: TuningProposal) -> TuningTrial:
        seconds, error, spent = self.tables[proposal.task][proposal.index]
        if seconds is None:
            return TuningTrial(proposal, error=error, spent=spent)
        return TuningTrial(proposal, (seconds,), spent=spent)


def replay_of(log: TuningLog) -> Replay:
    """Return every task of ``log`` with its table."""
    pairs = [_task_and_table(task) for task in log.tasks]
    return Replay(tuple(task for task, _ in pairs), tuple(table for _, table in pairs))


def _task_and_table(task: LoggedTask) -> tuple[TuningTask, dict[int, Recorded]]:
    """Return values in ascending order, so that neighboring digits are alike.

    Every point recorded is listed once.
    """
    order = [sorted(range(len(knob.values)), key=lambda i: _rank(knob.values[i])) for knob in task.knobs]
    knobs = tuple(
        ScheduleKnob(knob.name, tuple(knob.values[i] for i in places), _kind(knob.name))
        for knob, places in zip(task.knobs, order, strict=True)
    )
    columns = [np.argsort(places)[task.digits[:, knob]] for knob, places in enumerate(order)]
    digits = np.stack(columns, axis=1) if columns else np.zeros((len(task), 0), dtype=np.int64)
    rows: dict[int, list[int]] = {}
    for row, index in enumerate(ScheduleSpace(knobs).indices(digits)):
        rows.setdefault(index, []).append(row)
    tuned = TuningTask(task.name, task.operator, ScheduleSpace(knobs, tuple(rows)), flops=task.flops)
    return tuned, {index: _mean_record(task, found) for index, found in rows.items()}


def _rank(value: Value) -> tuple[int, object]:
    if isinstance(value, tuple):
        return 2, tuple(
            (isinstance(part, str), str(part) if isinstance(part, str) else part) for part in value
        )
    return (1, value) if isinstance(value, int | float) else (0, str(value))


def _kind(name: str) -> str:
    return next((kind for start, kind in KINDS.items() if name.startswith(start)), "other")


def _mean_record(task: LoggedTask, rows: list[int]) -> Recorded:
    """Return the mean of the valid times, or the error of the last record."""
    times = task.seconds[rows]
    spent = float(task.spent[rows].mean())
    if np.isfinite(times).any():
        return float(np.nanmean(times)), "", spent
    return None, TUNING_ERRORS[int(task.error[rows[-1]])], spent
