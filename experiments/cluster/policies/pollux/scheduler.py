"""What Pollux' scheduler knows of all jobs, and the allocation that it searches for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from experiments.cluster.interface import ClusterView
from experiments.cluster.planning.agents import Agent, Agents
from experiments.cluster.policies.pollux.generations import search
from experiments.cluster.policies.pollux.genetic import AllocationProblem, States
from experiments.workloads.step import Floats

#: Devices on each node.
Row = tuple[int, ...]
#: Added to speed-ups, so that a job without devices is worth something.
FLOOR = 1e-3


@dataclass(frozen=True)
class SearchSettings:
    """``power`` of the mean of speed-ups; ``delay`` seconds that a restart is taken to cost."""

    power: float
    delay: float
    size: int
    generations: int
    patience: int
    processes: int = 1


@dataclass
class Scheduler:
    """``agents`` of the jobs that are there, and the last population by job."""

    settings: SearchSettings
    agents: Agents = field(default_factory=Agents)
    jobs: list[int] = field(default_factory=list)
    states: States | None = None

    def allocate(self, view: ClusterView, capacity: Sequence[int]) -> dict[int, Row]:
        """Return how many devices of each node every job has from now on."""
        jobs = sorted(
            (*view.running, *view.waiting),
            key=lambda job: (view.attained_service(job), view.jobs.submit[job], job),
        )
        problem = self._problem(jobs, view, capacity)
        population = search(
            problem,
            self._carried_over(jobs, len(capacity)),
            view.rng,
            self.settings.size,
            self.settings.generations,
            self.settings.patience,
            self.settings.processes,
        )
        self.jobs, self.states = jobs, population.states
        best = population.states[int(np.argmax(population.values[:, 0]))]
        return {job: tuple(row) for job, row in zip(jobs, best.tolist(), strict=True)}

    def _carried_over(self, jobs: Sequence[int], nodes: int) -> States:
        """The last population, its rows in the order of the present jobs; new ones have nothing."""
        if self.states is None:
            return np.zeros((0, len(jobs), nodes), np.int16)
        states = np.zeros((len(self.states), len(jobs), nodes), np.int16)
        before = {job: place for place, job in enumerate(self.jobs)}
        known = [(place, before[job]) for place, job in enumerate(jobs) if job in before]
        if known:
            now, then = map(list, zip(*known, strict=True))
            states[:, now] = self.states[:, then]
        return states

    def _problem(self, jobs: Sequence[int], view: ClusterView, capacity: Sequence[int]) -> AllocationProblem:
        total = sum(capacity)
        most = [self.agents[job].most_gpus(total) for job in jobs]
        fair = max(1, math.ceil(total / len(jobs)))
        speedups = np.stack(
            [speedups_of(self.agents[job], cap, fair, total) for job, cap in zip(jobs, most, strict=True)]
        )
        factors = np.array([self.agents.restart_factor(job, self.settings.delay, view) for job in jobs])[
            :, None, None
        ]
        scale = len(capacity) / total
        return AllocationProblem(
            capacity=np.array(capacity, np.int16),
            most=np.array(most, np.int16),
            base=np.array([row_of(job, view) for job in jobs], np.int16),
            speedups=speedups,
            keep=self._values(speedups * scale),
            move=self._values(speedups * scale * factors),
        )

    def _values(self, speedups: Floats) -> Floats:
        """Terms whose sum rises with the power mean of all jobs' speed-ups."""
        power = self.settings.power
        if power == 0:
            return np.asarray(np.log(speedups + FLOOR))
        return np.asarray(np.sign(power) * (speedups + FLOOR) ** power)


def speedups_of(agent: Agent, most: int, fair: int, total: int) -> Floats:
    """Goodput on 0, 1, ... ``total`` devices of one node, and of several, over that of a fair share.

    A job that has measured nothing is taken to speed up with each device. The fair share is taken to be on
    one node, however large.
    """
    table = np.zeros((2, total + 1))
    if agent.model is None:
        table[:, 1:] = np.arange(1, total + 1) / fair
        return table
    base = agent.goodputs(False, fair)[fair]
    for several in (False, True):
        table[int(several), : most + 1] = agent.goodputs(several, most)
    return table / base if base > 0 else table


def row_of(job: int, view: ClusterView) -> Row:
    """How many devices of each node a job has now."""
    row = [0] * len(view.pool.machines)
    if job in view.running:
        for node, count in view.pool.machines.by_node(view.running[job].devices):
            row[node] = count
    return tuple(row)


def utility(rows: Mapping[int, Row], agents: Mapping[int, Agent], devices: int) -> float:
    """The speed-up of all jobs over one device each, for each of so many devices (section 4.2.3)."""
    made = 0.0
    for job, row in rows.items():
        gpus, agent = sum(row), agents[job]
        if not gpus:
            continue
        if agent.model is None:
            made += gpus
            continue
        alone = agent.goodputs(False, 1)[1]
        made += agent.goodputs(sum(count > 0 for count in row) > 1, gpus)[gpus] / alone if alone > 0 else 0.0
    return made / devices
