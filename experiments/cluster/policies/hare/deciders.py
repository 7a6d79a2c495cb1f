"""What decides in one run: task by task, or whole jobs where stopping loses progress."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable

from experiments.cluster.interface import Allocation, ClusterView, Gang, Machines
from experiments.cluster.planning.performance import TaskSpeed
from experiments.cluster.policies.hare.plan import (
    DeviceLine,
    JobTasks,
    PlannedTask,
    SwitchCosts,
    plan_tasks,
)
from experiments.core.errors import BadInput

#: Times this close to each other are one: sums of seconds are not exact.
SLACK = 1e-9


def tasks_of(view: ClusterView) -> TaskSpeed:
    """The gradient tasks of a run's jobs."""
    if not isinstance(view.performance, TaskSpeed):
        what = f"tells {view.performance.name} speeds, not gradient tasks"
        raise BadInput(what, "options.extra", "a side file of gradient tasks")
    return view.performance


def latest(now: float) -> float:
    """The last time that is ``now``, but for rounding."""
    return now + SLACK * max(1.0, abs(now))


def _start(task: PlannedTask) -> float:
    return task.start


class WholeJobs:
    """The shortest job first; each keeps the GPUs that it was given."""

    def allocate(self, view: ClusterView) -> Allocation:
        model, pool, started = tasks_of(view), view.pool, []
        free = {device for node in range(len(pool.free)) for device in pool.free_devices(node)}

        def rank(job: int) -> tuple[float, int]:
            return model.work(job) * min(model.times(job).seconds.values()), job

        for job in sorted(view.waiting, key=rank):
            ranked = sorted(free, key=lambda device: (model.seconds(job, device), device))
            suited = [device for device in ranked if model.seconds(job, device) < math.inf]
            chosen = suited[: model.times(job).tasks]
            if chosen:
                free.difference_update(chosen)
                started.append(Gang(job, tuple(sorted(chosen))))
        return Allocation(tuple(started))


class TaskByTask:
    """Follows a plan of tasks.

    ``plan`` is in order of time. ``begun`` counts each job's tasks that have begun, ``round_end`` is when
    those of its last round end. ``last`` is the job of each device's last task; ``visited`` are the nodes of
    each job's rounds before its last one, ``entered`` those of that one.
    """

    def __init__(self, costs_on: Callable[[Machines], SwitchCosts]) -> None:
        self.costs_on = costs_on
        self.plan: list[PlannedTask] = []
        self.running: list[PlannedTask] = []
        self.begun: dict[int, int] = {}
        self.round_end: dict[int, float] = {}
        self.last: dict[int, int] = {}
        self.visited: dict[int, frozenset[int]] = {}
        self.entered: dict[int, frozenset[int]] = {}

    def allocate(self, view: ClusterView) -> Allocation:
        now = latest(view.now)
        self.begun |= dict.fromkeys(view.arrived, 0)
        for job in view.ended:
            del self.begun[job]
        self.running = [task for task in self.running if task.end > now and task.job in self.begun]
        if view.arrived or view.ended:
            self.plan = self._plan(view)
        self._begin_tasks(now, view)
        return self._allocation(view, now)

    def _plan(self, view: ClusterView) -> list[PlannedTask]:
        """All tasks that have not begun, planned anew."""
        jobs = [self._left_of(job, view) for job in self.begun]
        costs = self.costs_on(view.pool.machines)
        return plan_tasks([job for job in jobs if job.left], lambda: self._lines(view, costs.switch), costs)

    def _left_of(self, job: int, view: ClusterView) -> JobTasks:
        model, begun = tasks_of(view), self.begun[job]
        times, devices = model.times(job), range(view.pool.machines.devices)
        visited, entered = self.visited.get(job, frozenset()), self.entered.get(job, frozenset())
        within = begun % times.tasks > 0
        round_end = self.round_end.get(job, -math.inf)
        return JobTasks(
            job=job,
            left=int(model.work(job)) - begun,
            per_round=times.tasks,
            sync=times.sync,
            seconds=[model.seconds(job, device) for device in devices],
            release=view.now if within else max(view.now, round_end + times.sync),
            round_end=round_end if within else -math.inf,
            visited=visited if within else visited | entered,
            entered=entered if within else frozenset(),
        )

    def _lines(self, view: ClusterView, switch: float) -> list[DeviceLine]:
        """What each device still does, or is made ready for."""
        now = latest(view.now)
        ends = {task.device: task.end for task in self.running}
        following = self._next_tasks()
        lines = []
        for device in range(view.pool.machines.devices):
            after = following.get(device)
            if device in ends or after is None:
                lines.append(DeviceLine(ends.get(device, view.now), self.last.get(device), switch=switch))
            else:
                ready = after.ready if after.ready > now else -math.inf
                lines.append(DeviceLine(view.now, after.job, ready, switch))
        return lines

    def _next_tasks(self) -> dict[int, PlannedTask]:
        """The next task of each device that has one."""
        following: dict[int, PlannedTask] = {}
        for task in self.plan:
            following.setdefault(task.device, task)
        return following

    def _begin_tasks(self, now: float, view: ClusterView) -> None:
        """Begin the tasks whose time has come, on devices that are free."""
        busy = self._busy(view)
        due = self.plan[: bisect_right(self.plan, now, key=_start)]
        for task in [task for task in due if task.device not in busy]:
            self.plan.remove(task)
            self.running.append(task)
            self._count(task, view)
            busy.add(task.device)

    def _busy(self, view: ClusterView) -> set[int]:
        """Devices on which a task runs."""
        lingering = (device for job in self._lingering(view) for device in view.running[job].devices)
        return {*(task.device for task in self.running), *lingering}

    def _count(self, task: PlannedTask, view: ClusterView) -> None:
        job, node = task.job, view.pool.machines.node_of[task.device]
        if self.begun[job] % tasks_of(view).times(job).tasks == 0:
            self.round_end[job] = -math.inf
            self.visited[job] = self.visited.get(job, frozenset()) | self.entered.get(job, frozenset())
            self.entered[job] = frozenset()
        self.round_end[job] = max(self.round_end[job], task.end)
        self.entered[job] |= {node}
        self.last[task.device] = job
        self.begun[job] += 1

    def _lingering(self, view: ClusterView) -> list[int]:
        """Jobs that have done all by the plan, and end with the next rounding error."""
        active = {task.job for task in self.running}
        model = tasks_of(view)
        return [job for job in view.running if job not in active and self.begun[job] >= model.work(job)]

    def _allocation(self, view: ClusterView, now: float) -> Allocation:
        devices: dict[int, list[int]] = {}
        for task in self.running:
            devices.setdefault(task.job, []).append(task.device)
        readying = self._readying(view, now)
        gangs = [
            Gang(
                job,
                tuple(sorted((*devices.get(job, ()), *readying.get(job, ())))),
                batch=len(devices.get(job, ())),
                readying=tuple(sorted(readying.get(job, ()))),
            )
            for job in sorted(devices.keys() | readying.keys())
        ]
        held = {gang.job for gang in gangs}.union(self._lingering(view))
        times = [task.end for task in self.running] + [task.ready for task in self._next_tasks().values()]
        following = bisect_right(self.plan, now, key=_start)
        times += [task.start for task in self.plan[following : following + 1]]
        return Allocation(
            start=tuple(gang for gang in gangs if view.running.get(gang.job) != gang),
            preempt=tuple(job for job in view.running if job not in held),
            wake_at=min((time for time in times if time > now), default=None),
        )

    def _readying(self, view: ClusterView, now: float) -> dict[int, list[int]]:
        """The free devices that are made ready for their next task, by its job."""
        busy, found = self._busy(view), dict[int, list[int]]()
        for device, task in self._next_tasks().items():
            if device not in busy and task.ready > now:
                found.setdefault(task.job, []).append(device)
        return found
