"""Parameter servers and their workers as processes: pulls and pushes are real messages.

Ranks of workers come first, then those of servers. The parameters are one vector, of which each server has an
equal piece. A worker sends a header (what, iteration, version) and, with a push, the piece of its gradient; a
server answers a pull with the version and the piece. Headers of one worker arrive in the order sent, so a
pull meets the worker's own push. The server decides who waits: a pull for iteration c is answered when the
slowest worker has pushed c - s iterations.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.parallel.interface import FORWARD, Learning, ParallelPlan
from experiments.parallel.interface.parameter_servers import dedicated_servers, iterations
from experiments.parallel.live.asynchronous.learner import Learner
from experiments.parallel.live.asynchronous.problem import TrainingJob, TrainingProblem
from experiments.parallel.live.asynchronous.reports import RankReport
from experiments.parallel.live.asynchronous.sequential import mean

PULL, PUSH, DONE = 0, 1, 2
HEADER, PAYLOAD, ANSWER = 1, 2, 3


def pieces(plan: ParallelPlan, size: int) -> list[slice]:
    """Of the vector, by server."""
    servers = len(dedicated_servers(plan))
    borders = [size * number // servers for number in range(servers + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(borders)]


def flatten_parameters(module: torch.nn.Module) -> Tensor:
    """All parameters as one vector; each becomes a view of it."""
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in parameters])
    begin = 0
    for parameter in parameters:
        parameter.data = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    return flat


class Server:
    """One piece of the parameters. ``clocks`` count the iterations that each worker has pushed."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        assert job.plan.training is not None
        self.plan, self.sync = job.plan, job.plan.synchronization
        self.workers = len(job.plan.workers)
        self.number = rank - self.workers
        flat = flatten_parameters(TrainingProblem(job).built.module)
        self.piece = flat[pieces(job.plan, flat.numel())[self.number]].clone()
        self.learner = Learner(self.learning(job.plan))
        self.version = 0
        self.clocks = dict.fromkeys(range(self.workers), 0)
        self.asking: list[tuple[int, int]] = []
        self.pushed: dict[int, list[tuple[int, int, Tensor]]] = {}
        self.sent: list[tuple[Any, Tensor]] = []
        self.report = RankReport(f"server {self.number}")

    @staticmethod
    def learning(plan: ParallelPlan) -> Learning:
        assert plan.training is not None
        return plan.training.learning

    def run(self) -> RankReport:
        dist.barrier()
        self.report.start()
        while self.clocks:
            header = torch.zeros(3, dtype=torch.int64)
            worker = dist.recv(header, tag=HEADER)
            what, iteration, version = header.tolist()
            if what == PULL:
                self.asking.append((worker, iteration))
            elif what == PUSH:
                self._push(worker, iteration, version)
            else:
                del self.clocks[worker]
            self._answer()
        for work, _ in self.sent:
            work.wait()
        self.report.end()
        self.report.updates = self.version
        return self.report

    def weights(self) -> dict[str, Tensor]:
        return {f"piece {self.number}": self.piece}

    def _answer(self) -> None:
        """Those who may begin their iteration get what is there now."""
        slowest, bound = min(self.clocks.values(), default=0), self.sync.staleness
        still = []
        for worker, iteration in self.asking:
            if bound is not None and iteration - slowest > bound:
                still.append((worker, iteration))
                continue
            self.report.ahead.append(iteration - slowest)
            for tensor in (torch.tensor([self.version]), self.piece.clone()):
                self.sent.append((dist.isend(tensor, worker, tag=ANSWER), tensor))
        self.asking = still

    def _push(self, worker: int, iteration: int, version: int) -> None:
        gradient = torch.empty_like(self.piece)
        dist.recv(gradient, worker, tag=PAYLOAD)
        self.clocks[worker] = iteration + 1
        waiting = self.pushed.setdefault(iteration, [])
        waiting.append((worker, version, gradient))
        if self.sync.staleness != 0 or len(waiting) == self.workers:
            self._update(self.pushed.pop(iteration))

    def _update(self, pushes: list[tuple[int, int, Tensor]]) -> None:
        """With the mean of what came, in the order of workers."""
        self.report.late += [self.version - version for _, version, _ in pushes]
        gradients = [[gradient] for _, _, gradient in sorted(pushes, key=lambda push: push[0])]
        self.learner.update([self.piece], mean(gradients), self.version)
        self.version += 1


class ServedWorker:
    """Pulls, computes, pushes."""

    def __init__(self, job: TrainingJob, rank: int) -> None:
        self.problem, self.plan, self.rank = TrainingProblem(job), job.plan, rank
        self.sync = job.plan.synchronization
        self.flat = flatten_parameters(self.problem.built.module)
        self.pieces = pieces(job.plan, self.flat.numel())
        self.slow = job.plan.workers[rank].slow or (1.0,)
        self.iterations = iterations(job.plan, rank)
        self.gathered = torch.zeros_like(self.flat)
        self.versions = [0] * len(self.pieces)
        self.oldest: list[int] = []
        self.coming: list[tuple[list[Any], Tensor, Tensor]] = []
        self.sent: list[tuple[Any, Tensor]] = []
        self.report = RankReport(f"worker {rank}")

    def weights(self) -> dict[str, Tensor]:
        return {}

    def run(self) -> RankReport:
        dist.barrier()
        self.report.start()
        for number, (iteration, slots) in enumerate(self.iterations):
            if number % self.sync.fetch_every == 0:
                self._await_weights()
                self._ask(iteration)
            if number == 0 or not self.sync.fetch_ahead:
                self._await_weights()
            self._compute(number, [slot.micro_batch for slot in slots if slot.kind == FORWARD])
            if (number + 1) % self.sync.push_every == 0 or number + 1 == len(self.iterations):
                self._push(iteration)
        self._await_weights()
        for server in range(len(self.pieces)):
            self._header(server, DONE, 0, 0)
        for work, _ in self.sent:
            work.wait()
        self.report.end()
        self.report.updates = len(self.iterations)
        return self.report

    def _header(self, server: int, what: int, iteration: int, version: int) -> None:
        self._send(torch.tensor([what, iteration, version]), server, HEADER)

    def _send(self, tensor: Tensor, server: int, tag: int) -> None:
        self.sent.append((dist.isend(tensor, len(self.plan.workers) + server, tag=tag), tensor))

    def _ask(self, iteration: int) -> None:
        for server, piece in enumerate(self.pieces):
            self._header(server, PULL, iteration, 0)
            version, values = torch.zeros(1, dtype=torch.int64), torch.empty_like(self.flat[piece])
            source = len(self.plan.workers) + server
            works = [dist.irecv(tensor, source, tag=ANSWER) for tensor in (version, values)]
            self.coming.append((works, version, values))

    def _await_weights(self) -> None:
        """Wait for what was asked for, and compute with it from now on."""
        for server, (works, version, values) in enumerate(self.coming):
            for work in works:
                work.wait()
            self.versions[server] = int(version)
            self.flat[self.pieces[server]] = values
        self.coming = []

    def _compute(self, number: int, micro_batches: list[int]) -> None:
        """The mean gradient of the iteration is added to what is to be pushed. A slow worker
        sleeps the rest.
        """
        self.oldest = self.oldest or list(self.versions)
        began = time.perf_counter()
        for micro_batch in micro_batches:
            position = self.problem.position(micro_batch)
            loss = self.problem.built.module(*self.problem.part(position))
            gradients = torch.autograd.grad(loss, list(self.problem.built.module.parameters()))
            self.gathered += torch.cat([g.reshape(-1) for g in gradients]) / len(micro_batches)
            self.report.loss(position, loss.item())
        factor = self.slow[number % len(self.slow)]
        time.sleep((factor - 1) * (time.perf_counter() - began) if factor > 1 else 0.0)

    def _push(self, iteration: int) -> None:
        for server, piece in enumerate(self.pieces):
            self._header(server, PUSH, iteration, self.oldest[server])
            self._send(self.gathered[piece].clone(), server, PAYLOAD)
        self.gathered.zero_()
        self.oldest = []
