"""Replicas that train together: gradients averaged in each step, and where the plan asks, workers that come
and go.

With an adaptation (KungFu) training begins with one worker. Every number that decides is reduced over all
ranks first, so all of them decide alike: how many take part after a window, and when averaging of weights
gives way to averaging of gradients. A newcomer gets the weights and the learner's steps by broadcast; parts
of the data set are counted over all workers.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.parallel.interface import Adaptation
from experiments.parallel.interface.adaptation import Noise, gains_enough, gradient_noise, smoothed
from experiments.parallel.live.asynchronous.learner import Learner
from experiments.parallel.live.asynchronous.problem import TrainingJob, TrainingProblem
from experiments.parallel.live.asynchronous.reports import RankReport
from experiments.parallel.live.asynchronous.sequential import gradients_of
from experiments.parallel.live.asynchronous.servers import flatten_parameters


class ReplicaTrainer:
    """One rank; it takes part while its number is below ``active``."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        assert job.plan.training is not None
        self.problem, self.rank, self.ranks = TrainingProblem(job), rank, job.ranks
        self.training = job.plan.training
        self.adaptation = self.training.adaptation
        self.flat = flatten_parameters(self.problem.built.module)
        self.learner = Learner(self.training.learning)
        self.groups = [dist.new_group(list(range(count))) for count in range(1, self.ranks + 1)]
        self.active = 1 if self.adaptation else self.ranks
        self.averages_weights = bool(self.adaptation and self.adaptation.variance is not None)
        self.noise: Noise | None = None
        self.position = 0
        self.report = RankReport(f"worker {rank}")

    def weights(self) -> dict[str, Tensor]:
        return {n: p.detach().clone() for n, p in self.problem.built.module.named_parameters()}

    def run(self) -> RankReport:
        dist.barrier()
        self.report.start()
        if self.adaptation is None:
            self._steps(0, self.training.updates)
        else:
            self._adapt(self.adaptation)
        self.report.end()
        self.report.updates = self.training.updates
        return self.report

    # --- steps ----------------------------------------------------------------------------------------------

    def _steps(self, first: int, count: int) -> None:
        """Of the workers that take part; the others only count along."""
        for update in range(first, first + count):
            if self.rank < self.active:
                self._step(update)
            self.position += self.active
            self.report.curve("learning_rate", update, self._rate(update))
            self.report.curve("workers", update, self.active)

    def _rate(self, update: int) -> float:
        """With an adaptation the rate follows the batch, so the workers."""
        rate = self.training.learning.rate_at(update)
        return rate * self.active if self.adaptation else rate

    def _step(self, update: int) -> None:
        position = self.position + self.rank
        if self.averages_weights:
            self._average(self.flat)
        loss, gradients = gradients_of(self.problem, position)
        self.report.loss(position, loss)
        own = torch.cat([gradient.reshape(-1) for gradient in gradients])
        together = self._average(own.clone())
        self._look_at(update, own, together)
        if self.adaptation is not None:
            scaled = replace(self.training.learning, rate=self._rate(update))
            self.learner.learning = scaled
        self.learner.update([self.flat], [own if self.averages_weights else together], update)

    def _average(self, tensor: Tensor) -> Tensor:
        """In place, over the workers that take part."""
        if self.active > 1:
            dist.all_reduce(tensor, group=self.groups[self.active - 1])
            tensor /= self.active
        return tensor

    # --- measurements ---------------------------------------------------------------------------------------

    def _look_at(self, update: int, own: Tensor, together: Tensor) -> None:
        """Noise and variance of gradients, the same numbers on all workers."""
        if self.adaptation is None or self.active == 1:
            return
        small = float(self._average(own.double().square().sum().reshape(1)))
        large, samples = float(together.double().square().sum()), self.problem.plan.micro_batch_samples
        found = gradient_noise(small, samples, large, samples * self.active)
        self.noise = smoothed(self.noise, found, self.adaptation.smoothing)
        variance = small - large
        self.report.curve("gradient_noise_scale", update, self.noise.scale)
        self.report.curve("gradient_variance", update, variance)
        self.report.curve("averages_weights", update, float(self.averages_weights))
        bound = self.adaptation.variance
        if self.averages_weights and bound is not None and variance < bound:
            self._average(self.flat)
            self.averages_weights = False

    def _adapt(self, adaptation: Adaptation) -> None:
        """One more worker after each window, until its throughput is not worth it."""
        before, growing = 0.0, True
        for first in range(0, self.training.updates, adaptation.window):
            count = min(adaptation.window, self.training.updates - first)
            now = self._window(first, count)
            self.report.curve("samples_per_second", first, now)
            if not growing:
                continue
            if before and not gains_enough(before, now, self.active, adaptation.gain):
                self.active, growing = self.active - 1, False
            elif self.active < self.ranks:
                before, self.active = now, self.active + 1
            else:
                growing = False
            self._welcome()

    def _window(self, first: int, count: int) -> float:
        """Samples a second in the second half of the window, by the slowest worker's clock."""
        self._steps(first, count // 2)
        began = time.perf_counter()
        self._steps(first + count // 2, count - count // 2)
        spent = torch.tensor([time.perf_counter() - began if self.rank < self.active else 0.0])
        dist.all_reduce(spent, op=dist.ReduceOp.MAX)
        samples = (count - count // 2) * self.active * self.problem.plan.micro_batch_samples
        return samples / float(spent)

    def _welcome(self) -> None:
        """Whoever takes part from now on has the first worker's weights, and knows how workers
        synchronize.
        """
        dist.broadcast(self.flat, 0)
        state = torch.tensor([float(self.averages_weights)])
        dist.broadcast(state, 0)
        self.averages_weights = bool(state)
