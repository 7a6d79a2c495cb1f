"""The grouping genetic algorithm for a window of jobs (section 5.3).

A gene is a node with its group of jobs. Crossover puts whole groups of one parent into the other, whose jobs
there give way, and what was displaced is inserted again by best fit; mutation dissolves a few groups. The
fitness is the mean score of the window's jobs. The first of the population is what best fit gives for the
window, and the best is never lost: so the answer is never worse than that. Each child is born from a seed of
its own, so that processes may divide a generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from experiments.cluster.interface import Devices
from experiments.cluster.policies.liquid.rooms import OTHER_RACK, Rooms, Want
from experiments.core.processes import Workers

#: Generations without a better answer after which the search ends.
PATIENCE = 20

#: Devices of each job of a window that found some.
Placing = dict[int, Devices]


@dataclass(frozen=True)
class Search:
    """How long and how the window is searched; ``processes`` change how soon it ends and nothing else."""

    population: int
    generations: int
    crossover: float
    mutation: float
    processes: int = 1


def best_fit(window: Iterable[int], wants: Mapping[int, Want], rooms: Rooms) -> Placing:
    """Place the jobs of a window one after another."""
    left, placed = rooms.copy(), Placing()
    _insert(window, wants, left, placed)
    return placed


def fitness(window: Sequence[int], wants: Mapping[int, Want], rooms: Rooms, placed: Placing) -> float:
    """The mean score of a window's jobs, with all in place; those without one count as worse than any."""
    left = _rooms_with(rooms, wants, placed)
    worst = rooms.alpha * OTHER_RACK + rooms.beta + 1.0
    scores = [
        left.alpha * left.network(placed[job]) + left.beta * left.idle(_nodes(placed[job], left))
        if job in placed
        else worst
        for job in window
    ]
    return sum(scores) / len(scores)


class _Scored(NamedTuple):
    """A placing with its fitness."""

    value: float
    placing: Placing


def search(
    window: Sequence[int], wants: Mapping[int, Want], rooms: Rooms, how: Search, rng: np.random.Generator
) -> Placing:
    """Return the best placing found of a window of jobs."""
    first = best_fit(window, wants, rooms)
    if len(window) < 2:
        return first
    breeder = _Breeder(window, wants, rooms, how)
    with Workers(breeder.breed, how.processes) as workers:
        population = _keep_best([breeder.score(first), *_breed((), workers, how, rng)], how)
        stale = 0
        for _ in range(how.generations):
            before = population[0]
            population = _keep_best([*population, *_breed(population, workers, how, rng)], how)
            stale = stale + 1 if population[0] is before else 0
            if stale >= PATIENCE:
                break
    return population[0].placing


def _keep_best(placings: Iterable[_Scored], how: Search) -> list[_Scored]:
    """The first of equal ones before the others."""
    return sorted(placings, key=lambda one: one.value)[: how.population]


def _breed(
    population: Iterable[_Scored],
    workers: Workers[tuple[list[Placing], list[int]], list[_Scored]],
    how: Search,
    rng: np.random.Generator,
) -> Iterator[_Scored]:
    """A generation of children, a part of it from each process."""
    parents = [one.placing for one in population]
    seeds = np.array_split(rng.integers(2**63, size=how.population - 1), how.processes)
    return chain.from_iterable(workers.map([(parents, part.tolist()) for part in seeds]))


@dataclass(frozen=True)
class _Breeder:
    """A window of jobs, what they want, and what is left for them."""

    window: Sequence[int]
    wants: Mapping[int, Want]
    rooms: Rooms
    how: Search

    def score(self, placed: Placing) -> _Scored:
        return _Scored(fitness(self.window, self.wants, self.rooms, placed), placed)

    def breed(self, task: tuple[list[Placing], list[int]]) -> list[_Scored]:
        """A child for each seed; without parents best fit in another order."""
        parents, seeds = task
        return [self.score(self._child(parents, np.random.default_rng(seed))) for seed in seeds]

    def _child(self, parents: Sequence[Placing], rng: np.random.Generator) -> Placing:
        """One of the better of two, crossed with another, with a few groups dissolved."""
        if not parents:
            return best_fit(rng.permutation(self.window).tolist(), self.wants, self.rooms)
        child = dict(parents[min(rng.integers(len(parents), size=2))])
        if rng.random() < self.how.crossover:
            _cross(child, parents[min(rng.integers(len(parents), size=2))], self.wants, self.rooms, rng)
        used = sorted({node for devices in child.values() for node in _nodes(devices, self.rooms)})
        dissolved = {node for node in used if rng.random() < self.how.mutation}
        for job in [job for job, devices in child.items() if dissolved & _nodes(devices, self.rooms)]:
            del child[job]
        missing = [job for job in self.window if job not in child]
        left = _rooms_with(self.rooms, self.wants, child)
        _insert(rng.permutation(missing).astype(int).tolist(), self.wants, left, child)
        return child


def _cross(
    child: Placing, other: Placing, wants: Mapping[int, Want], rooms: Rooms, rng: np.random.Generator
) -> None:
    """Put the groups of some of the other's nodes into a child; what is in their way is displaced."""
    used = sorted({node for devices in other.values() for node in _nodes(devices, rooms)})
    if not used:
        return
    genes = set(rng.choice(used, size=rng.integers(1, len(used) + 1), replace=False).tolist())
    inserted = [job for job, devices in other.items() if genes & _nodes(devices, rooms)]
    for job in [job for job, devices in child.items() if job in inserted or genes & _nodes(devices, rooms)]:
        del child[job]
    left = _rooms_with(rooms, wants, child)
    for job in inserted:
        if left.fits(other[job], wants[job]):
            left.take(other[job], wants[job])
            child[job] = other[job]


def _insert(jobs: Iterable[int], wants: Mapping[int, Want], left: Rooms, placed: Placing) -> None:
    """Place jobs by best fit into what is left; where one finds no place its like do not either."""
    hopeless = set[Want]()
    for job in jobs:
        devices = None if wants[job] in hopeless else left.best_fit(wants[job])
        if devices is None:
            hopeless.add(wants[job])
        else:
            left.take(devices, wants[job])
            placed[job] = devices


def _rooms_with(rooms: Rooms, wants: Mapping[int, Want], placed: Placing) -> Rooms:
    left = rooms.copy()
    for job, devices in placed.items():
        left.take(devices, wants[job])
    return left


def _nodes(devices: Devices, rooms: Rooms) -> set[int]:
    return {rooms.machines.node_of[device] for device in devices}
