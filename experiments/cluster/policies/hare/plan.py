"""Which task runs where and when: tasks in order of their mid-points, each where it ends first.

The relaxation keeps only that all devices together do no more than they can before any point (Queyranne's
inequalities). For jobs that are all there it is solved by Smith's rule: a job's tasks in a row, jobs by
weight over the time of all that is left, which also orders the tasks' mid-points. That time is taken both as
the mean over devices and as the best device's; the better of the two plans is kept.

A device that turns to another job is made ready for it as soon as it is free, also while the job's round
before is still running elsewhere. Where that costs something, plans that keep each job to one device are
tried as well.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple


class PlannedTask(NamedTuple):
    """A task on a device from ``start`` to ``end`` (s).

    ``setup``  seconds that the device needs before it, unless the task before is of the same job.
    ``ready``  when the device has had them.
    """

    start: float
    end: float
    job: int
    device: int
    setup: float = 0.0
    ready: float = 0.0


@dataclass(frozen=True)
class SwitchCosts:
    """Seconds before a task on a device whose last task was not of the same job.

    ``switch``     where the last was another job's; 0 on a device that ran none.
    ``start``      more for tasks of a job's first round, ``restart`` for later ones, and ``migration`` for
                   those on a node that has had no task of the job's earlier rounds.
    ``transfer``   of a job's state to each device, for tasks of later rounds.
    ``node_of``    each device.
    """

    switch: float = 0.0
    start: float = 0.0
    restart: float = 0.0
    migration: float = 0.0
    transfer: Sequence[float] = ()
    node_of: Sequence[int] = ()

    @property
    def any(self) -> bool:
        """Whether a turn of a device costs anything."""
        return any((self.switch, self.start, self.restart, self.migration, *self.transfer))

    def setup(self, device: int, visited: AbstractSet[int]) -> float:
        """What a task of a job costs whose earlier rounds ran on the nodes ``visited``."""
        if not visited:
            return self.start
        stays = self.node_of[device] in visited
        return (self.restart if stays else self.migration) + self.transfer[device]


@dataclass(frozen=True)
class JobTasks:
    """What is left of a job.

    ``left``       tasks that have not begun, of ``per_round`` in a round; the first round may be a part.
    ``seconds``    of a task on each device, infinite where it cannot run.
    ``release``    when the first of them may begin.
    ``round_end``  when those of its round that have begun are done.
    ``visited``    nodes that had tasks of its earlier rounds.
    ``entered``    nodes that have those of its round that have begun.
    """

    job: int
    left: int
    per_round: int
    sync: float
    seconds: Sequence[float]
    release: float = 0.0
    round_end: float = -math.inf
    weight: float = 1.0
    visited: frozenset[int] = frozenset()
    entered: frozenset[int] = frozenset()


@dataclass
class DeviceLine:
    """What a device does, in order of time.

    ``last`` is the job of the task before them, or the one that the device is made ``ready`` for.
    """

    free_from: float
    last: int | None = None
    ready: float = -math.inf
    switch: float = 0.0
    tasks: list[PlannedTask] = field(default_factory=list)

    def earliest(self, job: int, release: float, seconds: float, setup: float) -> float:
        """When a task could begin at the soonest, in a gap or at the end."""
        first = bisect_left(self.tasks, (release + seconds,))  # no gap before it reaches so far
        before = self.tasks[first - 1] if first else None
        for task in islice(self.tasks, first, None):
            start = max(release, self.ready_after(before, job, setup))
            after = 0.0 if task.job == job else task.setup + self.switch
            if start + seconds + after <= task.start:
                return start
            before = task
        return max(release, self.ready_after(before, job, setup))

    def settle(self) -> list[PlannedTask]:
        """Return its tasks with the times at which it is ready for them."""
        befores = [None, *self.tasks[:-1]]
        return [
            task._replace(ready=self.ready_after(before, task.job, task.setup))
            for before, task in zip(befores, self.tasks, strict=False)
        ]

    def ready_after(self, before: PlannedTask | None, job: int, setup: float) -> float:
        """When it is ready for a task of ``job`` after ``before``, or after all that it did up to now."""
        last, since = (before.job, before.end) if before else (self.last, self.free_from)
        if last == job:
            return since if before else max(since, self.ready)
        return since + setup + (0.0 if last is None else self.switch)


#: A job with the devices on which a plan may place it.
Suit = Callable[[JobTasks, Sequence[DeviceLine], SwitchCosts], JobTasks]


def plan_tasks(
    jobs: Sequence[JobTasks], lines: Callable[[], list[DeviceLine]], costs: SwitchCosts
) -> list[PlannedTask]:
    """Return the tasks of all jobs, in order of time; the best plan of those tried."""
    orders = [sorted(jobs, key=key) for key in (_by_mean, _by_best)]
    plans = [_place(ordered, lines(), costs, _anywhere) for ordered in orders]
    if costs.any:
        plans += [_place(ordered, lines(), costs, _on_one_device) for ordered in orders]
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


def _anywhere(job: JobTasks, lines: Sequence[DeviceLine], costs: SwitchCosts) -> JobTasks:
    return job


def _on_one_device(job: JobTasks, lines: Sequence[DeviceLine], costs: SwitchCosts) -> JobTasks:
    """The job as if it ran only where all that is left of it would end first, after what is planned there."""

    def end(device: int) -> float:
        line = lines[device]
        ready = line.ready_after(
            line.tasks[-1] if line.tasks else None, job.job, costs.setup(device, job.visited)
        )
        return ready + job.left * job.seconds[device]

    best = min(range(len(lines)), key=end)
    return replace(
        job, seconds=[each if device == best else math.inf for device, each in enumerate(job.seconds)]
    )


def _place(
    ordered: Sequence[JobTasks], lines: list[DeviceLine], costs: SwitchCosts, suit: Suit
) -> list[PlannedTask]:
    for job in ordered:
        _place_job(suit(job, lines, costs), lines, costs)
    return sorted(task for line in lines for task in line.settle())


def _place_job(job: JobTasks, lines: list[DeviceLine], costs: SwitchCosts) -> None:
    release, round_end, left = job.release, job.round_end, job.left
    visited, entered = job.visited, set(job.entered)
    while left:
        setups = [costs.setup(device, visited) for device in range(len(lines))]
        for _ in range((left - 1) % job.per_round + 1):
            task = _where_it_ends_first(job, release, lines, setups)
            insort(lines[task.device].tasks, task)
            entered.add(costs.node_of[task.device])
            round_end = max(round_end, task.end)
            left -= 1
        release, round_end, visited = round_end + job.sync, -math.inf, visited | entered


def _where_it_ends_first(
    job: JobTasks, release: float, lines: Sequence[DeviceLine], setups: Sequence[float]
) -> PlannedTask:
    found = []
    for device, line in enumerate(lines):
        seconds = job.seconds[device]
        if seconds < math.inf:
            start = line.earliest(job.job, release, seconds, setups[device])
            found.append(PlannedTask(start, start + seconds, job.job, device, setups[device]))
    return min(found, key=lambda task: (task.end, task.device))
