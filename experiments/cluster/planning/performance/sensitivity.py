"""``sensitivity``: steps per second by processors and host memory for each GPU (Synergy).

A gang does what its worst node allows: the speed of the largest measurement that is no more than what it has
there. One that was given no processors and no memory has its GPUs' part of the node's. The number of GPUs is
the one asked for; on more or fewer a job is as much faster or slower. Devices are alike, wherever they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.cluster.interface import ClusterView, Gang, Machines, Rate
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.resource_speeds import ResourceSpeeds, SpeedGrid


class ResourceSpeed:
    """Work in steps. ``BadInput`` names the first job whose model the side file lacks."""

    name = "sensitivity"
    unit = "steps"

    def __init__(self, trace: JobTrace, machines: Machines, speeds: ResourceSpeeds) -> None:
        self.machines, self.speeds = machines, speeds
        self._gpus: list[int] = trace.gpus.tolist()
        self._grids = [self._of(trace, job) for job in range(len(trace))]
        self._untold = 0
        self._work = [self._steps(trace, job) for job in range(len(trace))]
        self._capped = sorted({model for model in trace.model if speeds.models[model].capped})

    def _of(self, trace: JobTrace, job: int) -> SpeedGrid:
        model = trace.model[job]
        if model not in self.speeds.models:
            known = ", ".join(self.speeds.models)[:200]
            what = f"{self.name} has no model {model!r:.60}" if model else "has no model"
            raise BadInput(
                what, f"{trace.name}, job {trace.job[job]:.60}", f"one of {known} ({self.speeds.name})"
            )
        return self.speeds.models[model]

    def _steps(self, trace: JobTrace, job: int) -> float:
        """Steps asked for; where they are not told, those of its time on its GPUs' part of a node."""
        told = float(trace.traits["iterations"][job]) if "iterations" in trace.traits else math.nan
        if not math.isnan(told):
            return told
        if math.isnan(trace.service[job]):
            where = f"{trace.name}, job {trace.job[job]:.60}"
            raise BadInput("has neither steps nor a duration", where, "one of both")
        self._untold += 1
        return float(trace.service[job]) * self.speed(job, *self.equal_part)

    @property
    def equal_part(self) -> tuple[float, float]:
        """Processors and bytes of memory for each GPU, on the node that has least of both for its GPUs."""
        nodes = [node for node in self.machines if node.gpus]
        cpus = min((node.cpus / node.gpus for node in nodes), default=math.inf)
        return cpus, min((node.memory / node.gpus for node in nodes), default=math.inf)

    def work(self, job: int) -> float:
        return self._work[job]

    def grid(self, job: int) -> SpeedGrid:
        """What was measured of a job's model."""
        return self._grids[job]

    def speed(self, job: int, cpus: float, memory: float) -> float:
        """Steps per second with so much for each GPU."""
        return self._grids[job].at(cpus, memory)

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        told = {host.node: host for host in gang.hosts}
        slowest = math.inf
        for node, count in self.machines.by_node(gang.devices):
            if node in told:
                cpus, memory = told[node].cpus / count, told[node].memory / count
            else:
                machine = self.machines[node]
                cpus, memory = machine.cpus / machine.gpus, machine.memory / machine.gpus
            slowest = min(slowest, self.speed(job, cpus, memory))
        best = float(self._grids[job].speed[-1, -1])
        return Rate(slowest * gang.size / self._gpus[job] * gang.share, busy=min(1.0, slowest / best))

    def largest(self, job: int) -> int:
        return self._gpus[job]

    def describe(self) -> Mapping[str, Any]:
        assumed = [
            "the same on every type of device and wherever they are",
            "the same for any number of GPUs",
        ]
        if self._untold:
            assumed.append(f"{self._untold} jobs of untold steps have those of their time on an equal part")
        warnings = [f"not monotone: {model} is taken for what less gave" for model in self._capped]
        return {"speeds": self.speeds.name, "assumed": assumed, "warnings": warnings}


def sensitivity_of(view: ClusterView) -> ResourceSpeed:
    """The speeds by processors and memory of a run, for a policy that sees ``throughput``."""
    if not isinstance(view.performance, ResourceSpeed):
        what = f"tells {view.performance.name} speeds, not those by processors and memory"
        raise BadInput(what, "options.extra", "a table of speeds by processors and memory")
    return view.performance
