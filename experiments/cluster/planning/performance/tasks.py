"""``tasks``: a job is rounds of equal gradient tasks, each of which any device can do (Hare).

A gang with a ``batch`` has one task on each of its devices that is ready. One without is given its rounds
whole: tasks go one after another to the device that ends them first, and the next round begins when all are
synchronised. Nothing waits for the synchronisation of the last round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cluster.interface import Gang, Machines, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.gradient_tasks import GradientTasks, TaskTimes


class TaskSpeed:
    """Work in tasks. ``BadInput`` names the first job whose model the side file lacks."""

    name = "tasks"
    unit = "tasks"

    def __init__(self, trace: JobTrace, machines: Machines, tasks: GradientTasks) -> None:
        self.machines, self.profile = machines, tasks
        self._job, self._model = trace.job, trace.model
        self._times = [self._of(trace, job) for job in range(len(trace))]
        self._untold = 0
        self._rounds = [self._count_rounds(trace, job) for job in range(len(trace))]
        self._makespans: dict[tuple[int, tuple[float, ...]], float] = {}

    def _of(self, trace: JobTrace, job: int) -> TaskTimes:
        model = trace.model[job]
        if model not in self.profile.models:
            known = ", ".join(self.profile.models)[:200]
            what = f"{self.name} has no model {model!r:.60}" if model else "has no model"
            raise BadInput(what, f"{trace.name}, job {trace.job[job]:.60}", f"one of {known}")
        return self.profile.models[model]

    def _count_rounds(self, trace: JobTrace, job: int) -> int:
        """Rounds asked for; where they are not told, those of its time with a device for each task."""
        told = float(trace.traits["iterations"][job]) if "iterations" in trace.traits else math.nan
        if not math.isnan(told):
            return max(1, math.ceil(told))
        self._untold += 1
        times = self._times[job]
        return max(1, math.ceil(float(trace.service[job]) / (max(times.seconds.values()) + times.sync)))

    def work(self, job: int) -> float:
        return float(self._rounds[job] * self._times[job].tasks)

    def times(self, job: int) -> TaskTimes:
        """The tasks of a job's rounds."""
        return self._times[job]

    def seconds(self, job: int, device: int) -> float:
        """How long one task takes on a device; infinity where the model does not run on its type."""
        kind = self.machines.type_of(device)
        known = self._times[job].seconds
        if kind in known:
            return known[kind]
        matches = [name for name in known if kind.startswith(f"{name}-")]
        return known[max(matches, key=len)] if matches else math.inf

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        readying = len(gang.readying) / gang.size
        if readying == 1.0:
            return Rate(0.0, restarting=1.0)
        ready = (device for device in gang.devices if device not in gang.readying)
        seconds = tuple(self.seconds(job, device) for device in ready)
        if min(seconds) == math.inf:
            kinds = sorted({self.machines.type_of(device) for device in gang.devices})
            what = f"{self.profile.name} has no seconds of {self._model[job]!r} on {', '.join(kinds)}"
            expected = "hare, which knows where tasks run, or a cluster without devices of that type"
            raise BadInput(what, f"job {self._job[job]}", expected)
        if gang.batch:
            speed = gang.share * sum(1 / each for each in seconds if each < math.inf)
            return Rate(speed, restarting=readying)
        times, rounds = self._times[job], self._rounds[job]
        makespan = self._makespan(times.tasks, tuple(sorted(seconds)))
        whole = rounds * makespan + (rounds - 1) * times.sync
        computing = sum(1 / each for each in seconds if each < math.inf) * whole
        return Rate(gang.share * self.work(job) / whole, busy=min(1.0, self.work(job) / computing))

    def _makespan(self, tasks: int, seconds: tuple[float, ...]) -> float:
        """When the last of a round's tasks ends."""
        key = (tasks, seconds)
        if key not in self._makespans:
            ends = [0.0] * len(seconds)
            for _ in range(tasks):
                best = min(range(len(seconds)), key=lambda place: ends[place] + seconds[place])
                ends[best] += seconds[best]
            self._makespans[key] = max(ends)
        return self._makespans[key]

    def largest(self, job: int) -> int:
        return self._times[job].tasks

    def describe(self) -> Mapping[str, Any]:
        told = [f"{self._untold} jobs of untold rounds have those of their time"] if self._untold else []
        return {"tasks": self.profile.name, "assumed": told}
