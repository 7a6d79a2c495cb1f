"""The agent of one job: what it measured, the goodput that it expects, and the batch that is best.

Goodput is samples per second times the statistical efficiency of the batch (section 3); only batches between
those that the user allows are looked at, fifty of them in equal ratios.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from experiments.cluster.interface import ClusterView
from experiments.cluster.interface.measurements import Measurement
from experiments.cluster.planning.agents.step_model import StepModel, fit
from experiments.cluster.planning.performance.goodput import BatchLimits, gain
from experiments.workloads.step import Floats

#: Batches that are looked at for each number of devices.
CANDIDATES = 50
#: A measurement that the model foretells so well is no news.
KNOWN_WELL = 0.01
SLACK = 1e-8


@dataclass
class Agent:
    """``profile`` by (nodes, GPUs, samples on each); ``restarts`` so far, the first start not counted."""

    limits: BatchLimits
    profile: dict[tuple[int, int, int], Measurement] = field(default_factory=dict)
    model: StepModel | None = None
    noise: tuple[float, float] = (0.0, 0.0)
    restarts: int = -1
    _best: tuple[Floats, Floats] | None = None

    def learn(self, measured: Measurement) -> None:
        """Take in what the job measured of its last steps."""
        noise = (measured.square, measured.variance)
        key = (measured.nodes, measured.gpus, measured.each)
        if noise == self.noise and key in self.profile:
            return
        self.noise, self._best = noise, None
        if key in self.profile:
            return
        news = self._is_news(measured)
        self.profile[key] = measured
        if news:
            self.model = fit(tuple(self.profile.values()))

    def _is_news(self, measured: Measurement) -> bool:
        """Whether the model says something else of a step, or knows nothing of its kind."""
        if self.model is None:
            return True
        kinds = {_kind(nodes, gpus) for nodes, gpus, _ in self.profile}
        if _kind(measured.nodes, measured.gpus) not in kinds or len({key[2] for key in self.profile}) == 1:
            return True
        gpus, each = np.array(float(measured.gpus)), np.array(float(measured.each))
        step = self.model.step(measured.nodes > 1, gpus, each, np.array(0.0))
        errors = np.log([step / measured.step, self.model.compute(each) / (measured.step - measured.sync)])
        return bool(np.abs(errors).max() > KNOWN_WELL)

    def most_gpus(self, capacity: int) -> int:
        """Twice as many devices as it was ever measured on, as far as its batch is enough for them."""
        measured = max((gpus for _, gpus, _ in self.profile), default=0)
        fits = self.limits.most // self.limits.least_each
        return max(1, min(max(2 * measured, 1), capacity, fits, self.limits.most_gpus))

    def goodputs(self, several_nodes: bool, most: int) -> Floats:
        """Of 0, 1, ... ``most`` devices on one node or on several, with the best batch of each."""
        gpus = np.arange(1, most + 1)
        return np.concatenate(([0.0], self._optimize(several_nodes, gpus)[0]))

    def best_batch(self, several_nodes: bool, gpus: int) -> int:
        """Samples of a step that are best on so many devices; 0: as they were submitted."""
        limits = self.limits
        if limits.wanted:
            return limits.wanted
        if self.model is None:
            return max(limits.initial, limits.least_each * gpus)
        return int(self._optimize(several_nodes, np.array([gpus]))[1][0])

    def _optimize(self, several_nodes: bool, gpus: np.ndarray) -> tuple[Floats, Floats]:
        """The best goodput and the batch that it is reached with, for each number of devices."""
        assert self.model is not None
        limits = self.limits
        least = np.maximum(limits.initial, limits.least_each * gpus)
        ratio = (limits.most / least)[None, :] ** (np.arange(CANDIDATES) / (CANDIDATES - 1))[:, None]
        each = least * ratio / gpus
        accumulations = np.ceil(each / limits.most_each - SLACK) - 1
        alone = (gpus == 1) & (each > limits.initial + SLACK)
        accumulations = np.where(alone, np.maximum(accumulations, 1), accumulations)
        at_once = np.ceil(each / (accumulations + 1) - SLACK)
        batch = gpus * at_once * (accumulations + 1)
        seconds = self.model.step(several_nodes, gpus, at_once, accumulations)
        square, variance = self.noise
        worth = gain(np.array(square), np.array(variance), batch / limits.initial)
        allowed = (at_once >= limits.least_each) & (at_once <= limits.most_each)
        goodput = np.where(allowed, worth / seconds, 0.0)
        best = np.argmax(goodput, axis=0)
        places = (best, np.arange(len(gpus)))
        return goodput[places], batch[places]


class Agents(dict[int, Agent]):
    """Those of the jobs that are there."""

    def follow(self, view: ClusterView) -> None:
        """Take in new jobs, what running ones measured, and forget those that ended."""
        for job in view.ended:
            self.pop(job, None)
        for job in view.arrived:
            self[job] = Agent(view.batch_limits(job))
        for job in view.running:
            measured = view.measured(job)
            if measured is not None:
                self[job].learn(measured)

    def restart_factor(self, job: int, delay: float, view: ClusterView) -> float:
        """The part of its life that a job will have made progress in, if it restarts once more.

        ``delay`` is what a restart costs in s.
        """
        age = view.now - view.jobs.submit[job]
        if age + delay <= 0:
            return 1.0
        return max(age - delay * max(self[job].restarts, 0), 0.0) / (age + delay)


def _kind(nodes: int, gpus: int) -> tuple[bool, bool]:
    """Which parameters a measurement tells of."""
    return nodes > 1, gpus > 2 if nodes > 1 else gpus > 1
