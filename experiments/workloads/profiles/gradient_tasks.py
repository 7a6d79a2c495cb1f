"""Rounds of gradient tasks: how many a round of a model has, and how long one takes on which device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class TaskTimes:
    """One model's rounds.

    ``tasks``    independent gradient tasks of a round.
    ``sync``     seconds from the last of them until the next round can begin.
    ``seconds``  of one task, by device type.
    """

    tasks: int
    sync: float
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class GradientTasks:
    """The task times of each model of a side file."""

    speeds: ClassVar[str] = "tasks"

    name: str
    models: Mapping[str, TaskTimes]
