"""``goodput``: what training is worth by placement, batch and epoch, as Pollux' folder of measurements has.

Work is in steps of the initial batch. A gang does ``gain / (step + accumulations x (step - sync))`` of it in
a second: ``step_times`` has the steps of its placement, ``curves`` what each is worth in the present epoch,
``batches`` how its batch is divided. A gang without a batch of its own has the one submitted with its job.
The ring of a gang goes round its nodes by falling number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.cluster.interface import Gang, Machines, Rate
from experiments.cluster.interface.measurements import Measurement
from experiments.cluster.planning.performance.goodput.batches import BatchLimits, Split, bounded, split
from experiments.cluster.planning.performance.goodput.curves import TrainingCurves, gain
from experiments.cluster.planning.performance.goodput.step_times import MeasuredSteps, Placement
from experiments.core.errors import BadInput
from experiments.workloads.jobs import JobTrace
from experiments.workloads.profiles.training_runs import TrainingRun, TrainingRuns

__all__ = ["BatchLimits", "GoodputSpeed", "Split", "bounded", "gain", "split"]


class Application:
    """One application: its steps, its epochs and the limits of its batch."""

    def __init__(self, run: TrainingRun, limits: BatchLimits | None = None) -> None:
        self.run = run
        self.steps, self.curves = MeasuredSteps(run), TrainingCurves(run)
        least_each, most_each = self.steps.batches
        batches = self.curves.batches
        self.limits = limits or BatchLimits(batches[0], batches[-1], least_each, most_each)
        self._paces: dict[tuple[Placement, float], Pace] = {}

    def pace(self, placement: Placement, batch: float) -> Pace:
        """How fast it trains at a batch on a placement."""
        key = (placement, batch)
        if key not in self._paces:
            self._paces[key] = self._find_pace(placement, batch)
        return self._paces[key]

    def _find_pace(self, placement: Placement, batch: float) -> Pace:
        gpus = sum(placement)
        parts = split(batch, gpus, self.limits)
        step, sync = self.steps.time(placement, parts.each)
        total = step + (step - sync) * parts.accumulations
        whole = gpus * parts.each * (parts.accumulations + 1)
        speeds: list[float] = (self.curves.gains(whole) / total).tolist()
        return Pace(parts, step, sync, total, whole, speeds)


@dataclass(frozen=True)
class Pace:
    """A batch of ``whole`` samples on a placement.

    ``parts``   how it is divided.
    ``step``    seconds of the last, exchanging part of a step, ``sync`` of it for gradients.
    ``total``   seconds of a step with its accumulations.
    ``speeds``  work per second by epoch.
    """

    parts: Split
    step: float
    sync: float
    total: float
    whole: int
    speeds: list[float]

    @property
    def busy(self) -> float:
        """The share of a step in which devices compute."""
        return (self.step - self.sync) * (self.parts.accumulations + 1) / self.total


class GoodputSpeed:
    """Work in steps of the initial batch. ``BadInput`` names the first job whose model is not measured."""

    name = "goodput"
    unit = "steps"

    def __init__(self, trace: JobTrace, machines: Machines, runs: TrainingRuns) -> None:
        self.runs, self.machines = runs, machines
        self._job, self._model = trace.job, trace.model
        self._gpus: list[int] = trace.gpus.tolist()
        self.applications: dict[str, Application] = {}
        for job, model in enumerate(trace.model):
            if model not in runs.applications:
                raise self._lacks(job)
            if model not in self.applications:
                self.applications[model] = Application(runs.applications[model])
        told = trace.traits["batch"].tolist() if "batch" in trace.traits else [0] * len(trace)
        self._batch = [batch or self.limits(job).initial for job, batch in enumerate(told)]
        self._untold = sum(not batch for batch in told)
        self._placements: dict[tuple[int, ...], Placement] = {}

    def _lacks(self, job: int) -> BadInput:
        model = self._model[job]
        what = f"{self.name} has no measurements of {model!r:.60}" if model else "names no application"
        where = f"job {self._job[job]:.60}"
        return BadInput(what, where, f"one of {', '.join(self.runs.applications)[:200]} ({self.runs.name})")

    def limited(self, limits: Mapping[str, Mapping[str, int]]) -> GoodputSpeed:
        """Return the same model with other limits of some applications, as ``BatchLimits`` names them."""
        made = object.__new__(GoodputSpeed)
        made.__dict__.update(self.__dict__)
        made.applications = {
            name: _limited(application, limits.get(name, {}))
            for name, application in self.applications.items()
        }
        return made

    def application(self, job: int) -> Application:
        """What ``job`` trains."""
        return self.applications[self._model[job]]

    def limits(self, job: int) -> BatchLimits:
        """Between which batches ``job`` may train."""
        return self.application(job).limits

    def batch(self, job: int) -> float:
        """Samples of a step that ``job`` was submitted with."""
        return self._batch[job]

    def work(self, job: int) -> float:
        return self.application(job).curves.marks[-1]

    def largest(self, job: int) -> int:
        """The most devices that still have as many samples as were ever measured on one."""
        limits = self.limits(job)
        return max(1, min(int(self._batch[job]) // limits.least_each, limits.most_gpus))

    def rate(self, job: int, gang: Gang, neighbors: Sequence[Gang] = (), done: float = 0.0) -> Rate:
        pace, curves = self._pace(job, gang), self.application(job).curves
        epoch = min(curves.epoch(done), curves.epochs - 1)
        return Rate(pace.speeds[epoch] * gang.share, curves.marks[epoch], pace.busy)

    def measure(self, job: int, gang: Gang, done: float) -> Measurement:
        """Return what the agent of ``job`` measures of its own steps while it runs on ``gang``."""
        pace, curves = self._pace(job, gang), self.application(job).curves
        epoch = min(curves.epoch(done), curves.epochs - 1)
        square, variance = curves.gradients(pace.whole)
        return Measurement(
            nodes=len(self.placement(gang)),
            gpus=gang.size,
            each=pace.parts.each,
            accumulations=pace.parts.accumulations,
            step=pace.step,
            sync=pace.sync,
            square=float(square[epoch]),
            variance=float(variance[epoch]),
        )

    def seconds(self, job: int) -> float:
        """Return how long ``job`` takes on the GPUs that it asked for, on as few nodes as hold them."""
        pace = self.application(job).pace(self.consolidated(self._gpus[job]), self._batch[job])
        marks = self.application(job).curves.marks
        before = (0.0, *marks)
        return sum(
            (mark - start) / speed for start, mark, speed in zip(before, marks, pace.speeds, strict=False)
        )

    def consolidated(self, gpus: int) -> Placement:
        """So many devices on as few nodes as possible, were the cluster empty; the last node has the rest."""
        placement: list[int] = []
        for size in sorted(self.machines.sizes, reverse=True):
            if gpus <= 0:
                break
            placement.append(min(size, gpus))
            gpus -= size
        return tuple(placement) if gpus <= 0 else (*placement, gpus)

    def placement(self, gang: Gang) -> Placement:
        """The devices of a gang on each of its nodes, falling."""
        found = self._placements.get(gang.devices)
        if found is None:
            counts = (count for _, count in self.machines.by_node(gang.devices))
            found = self._placements[gang.devices] = tuple(sorted(counts, reverse=True))
        return found

    def _pace(self, job: int, gang: Gang) -> Pace:
        return self.application(job).pace(self.placement(gang), gang.batch or self._batch[job])

    def describe(self) -> Mapping[str, Any]:
        untold = [f"the initial batch for {self._untold} jobs that tell none"] if self._untold else []
        return {
            "profiles": self.runs.name,
            "assumed": [
                "devices as those measured, whatever their type",
                "work in steps of each application's initial batch; jobs on one node do not slow each other",
                "placements that were not measured are interpolated by nodes, GPUs and batch on each",
                *untold,
            ],
        }


def _limited(application: Application, change: Mapping[str, int]) -> Application:
    if not change:
        return application
    limits = {**vars(application.limits), **change}
    return Application(application.run, BatchLimits(**limits))
