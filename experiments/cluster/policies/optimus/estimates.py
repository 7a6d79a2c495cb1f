"""What is left of each job and how long its steps take: known, known with an error, or fitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.cluster.interface import ClusterView
from experiments.cluster.planning.performance import GoodputSpeed, TableSpeed
from experiments.cluster.planning.performance.goodput import bounded, split
from experiments.cluster.policies.optimus.convergence import FEWEST, fit_losses
from experiments.cluster.policies.optimus.gains import Levels
from experiments.cluster.policies.optimus.speeds import fit_speeds
from experiments.core.errors import BadInput


class KnownWork:
    """Work left and seconds of a unit of it as the performance model has them, at the present epoch."""

    def left(self, job: int, view: ClusterView) -> float:
        return view.performance.work(job) - view.done(job)

    def levels(self, job: int, most: int, view: ClusterView) -> Levels:
        model = view.performance
        if isinstance(model, TableSpeed):
            return [(gpus, 1 / speed) for gpus, speed in model.levels(job) if gpus <= most]
        model = _goodput(view)
        application, most = model.application(job), min(most, model.largest(job))
        epoch = min(application.curves.epoch(view.done(job)), application.curves.epochs - 1)
        paces = (application.pace(model.consolidated(gpus), model.batch(job)) for gpus in range(1, most + 1))
        return [(gpus, 1 / pace.speeds[epoch]) for gpus, pace in enumerate(paces, 1)]


class StepsOfRelease(KnownWork):
    """Steps left and seconds of a step as in Pollux' simulator.

    Steps are those of the validated curves from this epoch to the last, one where it is in its last; one
    device alone always accumulates, and nodes are taken to have four devices.
    """

    NODE = 4

    def __init__(self) -> None:
        self._known: dict[tuple[str, float, int], Levels] = {}

    def left(self, job: int, view: ClusterView) -> float:
        model = _goodput(view)
        curves = model.application(job).curves
        epoch, last = curves.epoch(view.done(job)), curves.epochs - 1
        if epoch >= last:
            return 1.0
        steps = curves.steps(model.batch(job))
        return float(steps[last] - steps[epoch])

    def levels(self, job: int, most: int, view: ClusterView) -> Levels:
        model = _goodput(view)
        key = (view.jobs.model[job], model.batch(job), most)
        if key not in self._known:
            counts = range(1, min(most, model.largest(job)) + 1)
            self._known[key] = [(gpus, self._seconds(job, gpus, model)) for gpus in counts]
        return self._known[key]

    def _seconds(self, job: int, gpus: int, model: GoodputSpeed) -> float:
        limits, batch = model.limits(job), model.batch(job)
        parts = split(batch, gpus, limits)
        if gpus == 1 and not parts.accumulations:
            parts = bounded(int(batch), gpus, 1, limits)
        whole, rest = divmod(gpus, self.NODE)
        placement = (*[self.NODE] * whole, *([rest] if rest else []))
        step, sync = model.application(job).steps.time(placement, parts.each)
        return step + (step - sync) * parts.accumulations


class NoisyWork:
    """Another's estimates, what is left of each job times a log-normal error drawn when it is first seen."""

    def __init__(self, known: KnownWork, sigma: float) -> None:
        self.known, self.sigma = known, sigma
        self._errors: dict[int, float] = {}

    def left(self, job: int, view: ClusterView) -> float:
        if job not in self._errors:
            self._errors[job] = float(np.exp(self.sigma * view.rng.standard_normal()))
        return self.known.left(job, view) * self._errors[job]

    def levels(self, job: int, most: int, view: ClusterView) -> Levels:
        return self.known.levels(job, most, view)


class FittedWork:
    """What the paper's scheduler knows: losses so far, and trials on 1, 2, 4, ... devices.

    A job whose losses tell no curve yet has as much left as those known have in the middle, times ``YOUNG``.
    """

    YOUNG = 0.95

    def __init__(self, known: KnownWork, threshold: float) -> None:
        self.known, self.threshold = known, threshold
        self._speeds: dict[tuple[int, int], Levels] = {}
        self._left: dict[int, float] = {}

    def left(self, job: int, view: ClusterView) -> float:
        found = self._fit(job, view)
        if found is not None:
            self._left[job] = found
            return found
        return self.YOUNG * float(np.median([*self._left.values()] or [1.0]))

    def _fit(self, job: int, view: ClusterView) -> float | None:
        """Work until convergence by the job's own curve."""
        steps, losses = self._history(job, view)
        curve = fit_losses(steps, losses) if len(steps) >= FEWEST else None
        if curve is None:
            return None
        epoch, done = float(steps[-1]) / len(steps), float(steps[-1])
        total = curve.steps_until(self.threshold * float(np.ptp(losses)), epoch)
        return max(total - done, epoch) / done * view.done(job)

    def _history(self, job: int, view: ClusterView) -> tuple[Sequence[float], Sequence[float]]:
        """Steps and losses so far; a metric that rises is taken with the other sign."""
        model = view.performance
        if view.jobs.has("losses"):
            pairs = [pair for pair in view.jobs.column("losses")[job] if 0 < pair[0] <= view.done(job)]
            return [step for step, _ in pairs], [loss for _, loss in pairs]
        if not isinstance(model, GoodputSpeed):
            raise BadInput(
                "tells no losses, which prediction fitted asks for", "the trace", "oracle or noisy"
            )
        curves = model.application(job).curves
        steps, metric = curves.history(model.batch(job), curves.epoch(view.done(job)))
        falls = len(metric) > 0 and metric[-1] < metric[0]
        return steps.tolist(), (metric if falls else -metric).tolist()

    def levels(self, job: int, most: int, view: ClusterView) -> Levels:
        known = self.known.levels(job, most, view)
        if known and (job, most) not in self._speeds:
            trials = [level for level in known if level[0] & (level[0] - 1) == 0] or known
            model = view.performance
            batch = model.batch(job) if isinstance(model, GoodputSpeed) else 1.0
            curve = fit_speeds([(gpus, gpus, 1 / seconds) for gpus, seconds in trials], batch)
            self._speeds[job, most] = [(gpus, 1 / curve.speed(gpus, gpus)) for gpus, _ in known]
        return self._speeds.get((job, most), known)


Estimates = KnownWork | NoisyWork | FittedWork


def _goodput(view: ClusterView) -> GoodputSpeed:
    model = view.performance
    if not isinstance(model, GoodputSpeed):
        raise BadInput(f"{model.name} speeds are not by GPUs", "the trace", "table or goodput speeds")
    return model
