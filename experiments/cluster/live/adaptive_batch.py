"""Steps of a batch that the scheduler chooses while a job trains, and what they are worth (Pollux, OSDI'21).

Each process takes ``each`` samples at once, ``accumulations`` more times before gradients are exchanged. A
step is worth its gain over one of the initial batch, by the noise measured so far; the learning rate is
multiplied with it, as AdaScale does. The exchange carries the squared norms of all parts with the gradients.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from experiments.cluster.live.noise import GradientNoise, estimate_noise
from experiments.cluster.live.replica import Replica


class StepTimer:
    """Seconds of steps since their batch was changed, without the first of them."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.ended, self.steps, self.computing = 0.0, 0, 0.0

    def count(self, seconds: float) -> None:
        """A step has ended, of which computing the gradient of one part took so long."""
        self.ended = time.perf_counter()
        if self.since is None:
            self.since = self.ended
            return
        self.steps += 1
        self.computing += seconds

    def facts(self, accumulations: int) -> dict[str, Any]:
        """``step``: seconds of a step without its accumulations, ``sync`` of them not spent on gradients."""
        if self.since is None or not self.steps:
            return {}
        computing = self.computing / self.steps
        step = (self.ended - self.since) / self.steps - accumulations * computing
        return {"timed": self.steps, "step_seconds": step, "sync_seconds": step - computing}


class AdaptiveBatch:
    """``done`` counts steps of the initial batch, up to ``work``; ``steps`` and ``samples`` are real ones."""

    def __init__(self, replica: Replica, work: float, division: tuple[int, ...]) -> None:
        self.replica, self.work = replica, work
        self.done, self.steps, self.samples, self.loss = 0.0, 0, 0, 0.0
        self.noise = GradientNoise()
        # Rows are made once: the memory of new ones costs more than what is computed in them.
        self.part, self.before = (torch.empty(replica.size, device=replica.device) for _ in range(2))
        self.row = torch.empty(replica.size + 1, device=replica.device)
        self.square_before: float | None
        self.divide(division)

    def divide(self, division: tuple[int, ...]) -> None:
        """Train at another batch from the next step on."""
        self.division = division
        self.each, self.accumulations = division
        self.timer, self.square_before = StepTimer(), None

    @property
    def parts(self) -> int:
        """Parts of the batch, over all processes."""
        return self.replica.ranks * (self.accumulations + 1)

    def train(self) -> None:
        """One step of the whole batch."""
        began = time.perf_counter()
        self._accumulate()
        seconds = (time.perf_counter() - began) / (self.accumulations + 1)
        self.replica.add_up(self.row).div_(self.parts)
        mean, square = self.row[:-1], float(self.row[-1])
        batch = self.each * self.parts
        scale = batch / self.replica.task.batch
        self._learn_noise(mean, square, scale)
        gain = self.noise.gain(scale)
        self.replica.update(mean, gain)
        self.done, self.steps = min(self.done + gain, self.work), self.steps + 1
        self.samples += batch
        self.timer.count(seconds)

    def _accumulate(self) -> None:
        """Add up in ``row`` the gradients of this process' parts, and at its end their squared norms."""
        replica, times = self.replica, self.accumulations + 1
        drawn = replica.task.draw(self.each * self.parts)
        mine = slice(replica.rank * times, (replica.rank + 1) * times)
        losses = []
        self.row.zero_()
        for inputs, targets in zip(*(torch.split(value, self.each)[mine] for value in drawn), strict=True):
            losses.append(replica.differentiate(inputs, targets, self.each))
            gradient = replica.gradients(self.part)
            self.row[:-1] += gradient
            self.row[-1] += gradient @ gradient
        self.loss = sum(losses) / times

    def _learn_noise(self, mean: Tensor, square: float, scale: float) -> None:
        if self.parts > 1:
            self.noise.learn(*estimate_noise(self.parts, square, float(mean @ mean), scale), scale)
            return
        before, self.square_before = self.square_before, square
        if before is not None:
            of_mean = (before + 2 * float(self.before @ mean) + square) / 4
            self.noise.learn(*estimate_noise(2, (before + square) / 2, of_mean, 2 * scale), 2 * scale)
        self.before.copy_(mean)

    def facts(self) -> dict[str, Any]:
        """What is reported besides the progress."""
        division = {"each": self.each, "accumulations": self.accumulations}
        noise = {"square": self.noise.square, "variance": self.noise.variance}
        made = {"made": self.steps, "samples": self.samples}
        return {**division, **noise, **made, **self.timer.facts(self.accumulations)}

    def state(self) -> dict[str, Any]:
        made = {"done": self.done, "made": self.steps, "samples": self.samples}
        return {**made, "noise": asdict(self.noise)}

    def load(self, kept: dict[str, Any]) -> None:
        """Go on from what ``state`` returned."""
        self.done, self.steps, self.samples = kept["done"], kept["made"], kept["samples"]
        self.noise = GradientNoise(**kept["noise"])
