"""TuningLog: what a kernel tuner measured and wrote down: for every task, configurations with their time or
error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: TVM's error numbers in words; 0 is no error.
TUNING_ERRORS = (
    *("", "instantiation", "host compiler", "device compiler", "device"),
    *("wrong answer", "compile time-out", "run time-out", "unknown"),
)
#: What a knob can stand for: a split's lengths, a number, a name; ``None`` where a sketch has no such knob.
Value = int | float | str | None | tuple[int | str, ...]


@dataclass(frozen=True)
class LoggedKnob:
    """One decision of the recorded schedules.

    ``values`` are those that occur, in order of first appearance.
    """

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class LoggedTask:
    """One operator on one shape with its records in file order.

    ``digits`` (records, knobs) are positions in the knobs' values; ``seconds`` (records) the mean of the
    repeats, NaN where the trial failed; ``error`` TVM's error numbers (0: none); ``spent`` what the whole
    trial took in seconds; ``line`` where the record stands in the file. ``flops`` of one call, where the
    operator's arguments tell.
    """

    name: str
    operator: str
    target: str
    knobs: tuple[LoggedKnob, ...]
    digits: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    error: npt.NDArray[np.int64]
    spent: npt.NDArray[np.float64]
    line: npt.NDArray[np.int64]
    flops: float | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def valid(self) -> int:
        """Records with a time."""
        return int(np.isfinite(self.seconds).sum())


@dataclass(frozen=True)
class TuningLog:
    """All tasks of a log in order of first appearance.

    ``tuner`` is who wrote it (``autotvm`` or ``ansor``).
    """

    name: str
    tuner: str
    tasks: tuple[LoggedTask, ...]

    def __len__(self) -> int:
        return sum(len(task) for task in self.tasks)

    @property
    def valid(self) -> int:
        return sum(task.valid for task in self.tasks)


def best_so_far(seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The least time up to each trial; NaN before the first valid one."""
    least = np.minimum.accumulate(np.where(np.isnan(seconds), np.inf, seconds))
    return np.where(np.isinf(least), np.nan, least)
