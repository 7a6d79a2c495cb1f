"""Schedules as numbers for a cost model.

The knobs themselves, which every space has, or what their loops touch.
"""

from __future__ import annotations

import functools

import numpy as np

from experiments.compilation.interface.tuning import Digits, Floats, ScheduleKnob, ScheduleSpace, TuningTask
from experiments.compilation.planning.tuning.loop_features import curve, itervar
from experiments.compilation.planning.tuning.nests import nests_of
from experiments.workloads.tuning_log import Value


def knob_features(space: ScheduleSpace, digits: Digits) -> Floats:
    """Raw values, one column for each number of a knob.

    A name stands as its place among the knob's values.
    """
    columns = [_table(knob)[digits[:, place]] for place, knob in enumerate(space.knobs)]
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(digits), 1))


@functools.lru_cache(maxsize=4096)
def _table(knob: ScheduleKnob) -> Floats:
    """(values, columns) of one knob; a value that is absent or shorter than others is filled with -1."""
    rows = [_numbers(value, digit) for digit, value in enumerate(knob.values)]
    width = max(map(len, rows))
    return np.array([[*row, *[-1.0] * (width - len(row))] for row in rows])


def _numbers(value: Value, digit: int) -> list[float]:
    if isinstance(value, tuple):
        parts = value if not any(isinstance(part, str) for part in value) else (digit,)
        return [float(part) for part in parts] or [-1.0]
    if isinstance(value, int | float):
        return [float(value)]
    return [-1.0] if value is None else [float(digit)]


def features(kind: str, task: TuningTask, digits: Digits) -> Floats:
    """Return rows of ``kind`` (``knob``, ``itervar`` or ``curve``).

    A recorded task has no loop nest, only its knobs.
    """
    if kind == "knob" or task.nest is None:
        return knob_features(task.space, digits)
    nests = nests_of(task.nest, task.space, digits)
    if kind == "curve":
        return curve(nests)
    return np.concatenate([itervar(nests), knob_features(task.space, digits)], axis=1)


def comparable(kind: str, one: TuningTask, other: TuningTask) -> bool:
    """Return whether columns of the two mean the same.

    curves always do, all others where the knobs have the same names.
    """
    if kind == "curve" and one.nest is not None and other.nest is not None:
        return True
    return _names(one) == _names(other) and (one.nest is None) == (other.nest is None)


def _names(task: TuningTask) -> list[tuple[str, int]]:
    return [(knob.name, _table(knob).shape[1]) for knob in task.space.knobs]
