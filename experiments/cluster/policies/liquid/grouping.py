"""The grouping genetic algorithm for a window of jobs (section 5.3).

A gene is a node with its group of jobs. Crossover puts whole groups of one parent into the other, whose jobs
there give way, and what was displaced is inserted again by best fit; mutation dissolves a few groups. The
fitness is the mean score of the window's jobs. The first of the population is what best fit gives for the
window, and the best is never lost: so the answer is never worse than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.cluster.interface import Devices
from experiments.cluster.policies.liquid.rooms import OTHER_RACK, Rooms, Want

#: Generations without a better answer after which the search ends.
PATIENCE = 20

#: Devices of each job of a window that found some.
Placing = dict[int, Devices]


@dataclass(frozen=True)
class Search:
    """How long and how the window is searched."""

    population: int
    generations: int
    crossover: float
    mutation: float


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


def search(
    window: Sequence[int], wants: Mapping[int, Want], rooms: Rooms, how: Search, rng: np.random.Generator
) -> Placing:
    """Return the best placing found of a window of jobs."""
    first = best_fit(window, wants, rooms)
    if len(window) < 2:
        return first
    placings = [first]
    while len(placings) < how.population:
        placings.append(best_fit(rng.permutation(window).tolist(), wants, rooms))
    ranked = sorted(((fitness(window, wants, rooms, one), place) for place, one in enumerate(placings)))
    values, placings = [value for value, _ in ranked], [placings[place] for _, place in ranked]
    stale = 0
    for _ in range(how.generations):
        children = [_child(window, wants, rooms, placings, how, rng) for _ in range(how.population - 1)]
        both = [*placings, *children]
        values = [*values, *(fitness(window, wants, rooms, child) for child in children)]
        order = sorted(range(len(both)), key=lambda place: (values[place], place))[: how.population]
        stale = stale + 1 if order[0] == 0 else 0
        placings, values = [both[place] for place in order], [values[place] for place in order]
        if stale >= PATIENCE:
            break
    return placings[0]


def _child(
    window: Sequence[int],
    wants: Mapping[int, Want],
    rooms: Rooms,
    parents: Sequence[Placing],
    how: Search,
    rng: np.random.Generator,
) -> Placing:
    """One of the better of two, crossed with another, with a few groups dissolved."""
    child = dict(parents[min(rng.integers(len(parents), size=2))])
    if rng.random() < how.crossover:
        _cross(child, parents[min(rng.integers(len(parents), size=2))], wants, rooms, rng)
    used = sorted({node for devices in child.values() for node in _nodes(devices, rooms)})
    dissolved = {node for node in used if rng.random() < how.mutation}
    for job in [job for job, devices in child.items() if dissolved & _nodes(devices, rooms)]:
        del child[job]
    missing = [job for job in window if job not in child]
    _insert(rng.permutation(missing).astype(int).tolist(), wants, _rooms_with(rooms, wants, child), child)
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
