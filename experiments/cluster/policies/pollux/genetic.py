"""Matrices of jobs by nodes and how they are bred: what Pollux' genetic search works on (section 4.2.2).

A matrix says how many devices of each node a job has. Rows are in the order in which jobs are favored where
they contend. Two objectives: fitness, and the share of the active nodes that is used well; a matrix is better
the fewer others are better in both, then by fitness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.cluster.policies.pollux.draws import Part
from experiments.workloads.step import Floats

#: Matrices of a population: (matrix, job, node).
States = npt.NDArray[np.int16]
#: Chances that a row goes back to what it is now, and that a row loses each of its entries.
RESET, CLEAR_ROW, CLEAR_ENTRY = 0.1, 0.1, 0.1


@dataclass(frozen=True)
class AllocationProblem:
    """What matrices are judged and mended by.

    ``capacity``  devices of each node.
    ``most``      devices that each job may have.
    ``base``      the present matrix.
    ``speedups``  by job, one node or several, and devices.
    ``keep``      the value of a job at those, its row being as it is; ``move`` the same where it changes. The
                  fitness of a matrix is larger the larger the sum of its values.
    """

    capacity: npt.NDArray[np.int16]
    most: npt.NDArray[np.int16]
    base: States
    speedups: Floats
    keep: Floats
    move: Floats
    most_nodes: int = 16

    def judge(self, states: States) -> Floats:
        """Fitness and utility of each matrix, in two columns."""
        gpus = states.sum(axis=2)
        several = (states > 0).sum(axis=2) > 1
        jobs = np.arange(states.shape[1])
        places = (jobs * 2 + several) * self.speedups.shape[2] + gpus
        changed = (states != self.base).any(axis=2)
        values = np.where(changed, self.move.take(places), self.keep.take(places)).sum(axis=1)
        active = ((states.sum(axis=1) > 0) * self.capacity).sum(axis=1)
        used = self.speedups.take(places).sum(axis=1) / np.maximum(active, 1)
        return np.stack((values, used), axis=1)

    def mend(self, states: States, rng: np.random.Generator) -> States:
        """Make matrices ones that can be carried out: earlier rows first."""
        return self.limit(self.separate(states), rng)

    def separate(self, states: States) -> States:
        """Let each node have one job of several nodes."""
        occupied = states > 0
        spread = occupied & (occupied.sum(axis=2) > 1)[:, :, None]
        states[spread & (np.cumsum(spread, axis=1) > 1)] = 0
        return states

    def excess(self, states: States) -> npt.NDArray[np.bool_]:
        """Which jobs have more devices or nodes than they may."""
        too_many = states.sum(axis=2) > self.most
        return np.asarray(too_many | ((states > 0).sum(axis=2) > self.most_nodes))

    def limit(self, states: States, rng: np.random.Generator) -> States:
        """Let jobs have no more than they may, and nodes give out no more than they have."""
        over = self.excess(states)
        if over.any():
            states[over] = self._capped(states[over], np.broadcast_to(self.most, over.shape)[over], rng)
        full = (states.sum(axis=1) > self.capacity).any(axis=1)
        if full.any():
            taken = np.minimum(np.cumsum(states[full], axis=1), self.capacity[:, None].T)
            states[full] = np.diff(taken, axis=1, prepend=0)
        return states

    def _capped(self, rows: States, most: npt.NDArray[np.int16], rng: np.random.Generator) -> States:
        """Rows of no more devices and nodes than they may have, their nodes in a random order."""
        order = np.argsort(rng.random(rows.shape, dtype=np.float32), axis=1)
        mixed = np.take_along_axis(rows, order, axis=1)
        mixed = np.diff(np.minimum(np.cumsum(mixed, axis=1), most[:, None]), axis=1, prepend=0)
        mixed[np.cumsum(mixed > 0, axis=1) > self.most_nodes] = 0
        capped = np.empty_like(rows)
        np.put_along_axis(capped, order, mixed.astype(np.int16), axis=1)
        return capped


@dataclass
class Population:
    """Matrices, the best first, with their values and a number that tells equal ones."""

    states: States
    values: Floats
    marks: npt.NDArray[np.int64]

    @classmethod
    def of(cls, states: States, problem: AllocationProblem, weights: npt.NDArray[np.int64]) -> Population:
        marks = states.reshape(len(states), -1).astype(np.int64) @ weights
        return cls(states, problem.judge(states), marks)

    def joined(self, other: Population) -> Population:
        return Population(
            np.concatenate((self.states, other.states)),
            np.concatenate((self.values, other.values)),
            np.concatenate((self.marks, other.marks)),
        )

    def best(self, size: int) -> Population:
        """The ``size`` best of them, equal ones once."""
        _, first = np.unique(self.marks, return_index=True)
        fitness, used = self.values[first].T
        no_worse = (fitness[:, None] >= fitness) & (used[:, None] >= used)
        dominators = np.count_nonzero(no_worse & ~no_worse.T, axis=0)
        kept = first[np.lexsort((-fitness, dominators))[:size]]
        return Population(self.states[kept], self.values[kept], self.marks[kept])


def cross(states: States, size: int, rng: np.random.Generator) -> States:
    """Pairs of parents, the better of two drawn, that swap their rows from a random one on."""
    pairs = max(1, size // 2)
    one, other = rng.integers(0, len(states), (2, 2, pairs)).min(axis=0)
    jobs = states.shape[1]
    before = (np.arange(jobs) < rng.integers(0, jobs, (pairs, 1)))[:, :, None]
    first, second = states[one], states[other]
    return np.concatenate((np.where(before, first, second), np.where(before, second, first)))


def mutate(states: States, problem: AllocationProblem, rng: np.random.Generator, part: Part) -> States:
    """Reset some rows, clear some entries, and raise others on nodes that have room.

    ``states`` are a ``part`` of the matrices, and are given the random numbers that it has in all of them.
    """
    _, jobs, nodes = states.shape
    chance = part.draw(rng, 2, (jobs,))
    states = np.where((chance[0] < RESET)[:, :, None], problem.base, states)
    each = part.draw(rng, 3, (jobs, nodes))
    states[(chance[1] < CLEAR_ROW)[:, :, None] & (each[0] < CLEAR_ENTRY)] = 0
    room = (problem.capacity > states.sum(axis=1))[:, None, :]
    held = (states > 0) & room
    anywhere = room / jobs
    again = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
    raised = each[1] < anywhere + again - anywhere * again
    more = (each[2] * (problem.capacity + 1 - states)).astype(np.int16)
    return np.where(raised, states + np.maximum(more, 0), states).astype(np.int16)
