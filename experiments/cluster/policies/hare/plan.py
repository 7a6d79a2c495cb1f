"""Which task runs where and when: tasks in order of their mid-points, each where it ends first.

The relaxation keeps only that all devices together do no more than they can before any point (Queyranne's
inequalities). For jobs that are all there it is solved by Smith's rule: a job's tasks in a row, jobs by
weight over the time of all that is left, which also orders the tasks' mid-points. That time is taken both as
the mean over devices and as the best device's; the better of the two plans is kept.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class PlannedTask(NamedTuple):
    """A task on a device from ``start`` to ``end`` (s)."""

    start: float
    end: float
    job: int
    device: int


@dataclass(frozen=True)
class JobTasks:
    """What is left of a job.

    ``left``       tasks that have not begun, of ``per_round`` in a round; the first round may be a part.
    ``seconds``    of a task on each device, infinite where it cannot run.
    ``release``    when the first of them may begin.
    ``round_end``  when those of its round that have begun are done.
    """

    job: int
    left: int
    per_round: int
    sync: float
    seconds: Sequence[float]
    release: float = 0.0
    round_end: float = -math.inf
    weight: float = 1.0


@dataclass
class DeviceLine:
    """What a device does, in order of time; ``last`` is the job of the task before them."""

    free_from: float
    last: int | None = None
    tasks: list[PlannedTask] = field(default_factory=list)

    def earliest(self, job: int, release: float, seconds: float, switch: float) -> float:
        """When a task could begin at the soonest, in a gap or at the end; switching jobs takes ``switch``."""
        before, since = self.last, self.free_from
        for task in self.tasks:
            start = max(release, since + (switch if before not in (None, job) else 0.0))
            if start + seconds + (switch if task.job != job else 0.0) <= task.start:
                return start
            before, since = task.job, task.end
        return max(release, since + (switch if before not in (None, job) else 0.0))


def plan_tasks(
    jobs: Sequence[JobTasks], lines: Callable[[], list[DeviceLine]], switch: float
) -> list[PlannedTask]:
    """Return the tasks of all jobs, in order of time; the better plan of the two orders."""
    plans = [_place(sorted(jobs, key=key), lines(), switch) for key in (_by_mean, _by_best)]
    weights = {job.job: job.weight for job in jobs}
    return min(plans, key=lambda plan: weighted_completion(plan, weights))


def weighted_completion(plan: Sequence[PlannedTask], weights: dict[int, float]) -> float:
    """The sum of weight times completion over jobs."""
    ends: dict[int, float] = {}
    for task in plan:
        ends[task.job] = max(ends.get(task.job, 0.0), task.end)
    return sum(weights[job] * end for job, end in ends.items())


def _by_mean(job: JobTasks) -> tuple[float, int]:
    runs = [each for each in job.seconds if each < math.inf]
    return job.left * sum(runs) / len(runs) / job.weight, job.job


def _by_best(job: JobTasks) -> tuple[float, int]:
    return job.left * min(job.seconds) / job.weight, job.job


def _place(ordered: Sequence[JobTasks], lines: list[DeviceLine], switch: float) -> list[PlannedTask]:
    plan: list[PlannedTask] = []
    for job in ordered:
        release, round_end, left = job.release, job.round_end, job.left
        while left:
            for _ in range((left - 1) % job.per_round + 1):
                task = _where_it_ends_first(job, release, lines, switch)
                insort(lines[task.device].tasks, task)
                plan.append(task)
                round_end = max(round_end, task.end)
                left -= 1
            release, round_end = round_end + job.sync, -math.inf
    return sorted(plan)


def _where_it_ends_first(
    job: JobTasks, release: float, lines: Sequence[DeviceLine], switch: float
) -> PlannedTask:
    found = []
    for device, line in enumerate(lines):
        seconds = job.seconds[device]
        if seconds < math.inf:
            start = line.earliest(job.job, release, seconds, switch)
            found.append(PlannedTask(start, start + seconds, job.job, device))
    return min(found, key=lambda task: (task.end, task.device))
