"""Pollux' genetic search: one generation after another, on one core or several (section 4.2.2).

A large generation is divided among processes: each mutates its part of the children, then mends and judges
it. Between the two they wait for one another, since random numbers are drawn for what is to be mended alone.
Matrices are in memory that all share. What is found is the same to the byte.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.cluster.policies.pollux.draws import Part, parts_of, skip
from experiments.cluster.policies.pollux.genetic import (
    AllocationProblem,
    Population,
    States,
    cross,
    mutate,
)
from experiments.core.processes import Workers
from experiments.workloads.step import Floats

#: Entries of a generation's matrices from which on dividing it gives more than it costs (decision 0213).
LARGE = 200_000


class _Mutation(NamedTuple):
    """A part of the children to mutate, with the generator's state before all of them."""

    part: Part
    state: Mapping[str, Any]


class _Mending(NamedTuple):
    """A part of them to mend and judge, and how many rows with too much there are ``before`` it."""

    part: Part
    state: Mapping[str, Any]
    before: int


class _Judged(NamedTuple):
    """What ``Population`` has besides the matrices."""

    values: Floats
    marks: npt.NDArray[np.int64]


def search(
    problem: AllocationProblem,
    start: States,
    rng: np.random.Generator,
    size: int,
    generations: int,
    patience: int,
    processes: int = 1,
) -> Population:
    """Return the last generation, bred from ``start`` and what is now.

    It ends early where the fittest is the same for ``patience`` generations.
    """
    weights = rng.integers(1, 1 << 40, problem.base.size)
    first = problem.mend(np.concatenate((start, problem.base[None])).astype(np.int16), rng)
    population, same = Population.of(first, problem, weights).best(size), 0
    with _make_breeder(problem, weights, size, processes) as breed:
        for _ in range(generations):
            before = population.values[:, 0].max()
            children = breed(cross(population.states, size, rng), rng)
            population = population.joined(children).best(size)
            same = 0 if population.values[:, 0].max() > before else same + 1
            if same >= patience:
                break
    return population


Breed = Callable[[States, np.random.Generator], Population]


@contextmanager
def _make_breeder(
    problem: AllocationProblem, weights: npt.NDArray[np.int64], size: int, processes: int
) -> Iterator[Breed]:
    """What makes children of crossed parents."""
    if processes == 1 or size * problem.base.size < LARGE:
        yield lambda crossed, rng: _breed_alone(crossed, problem, weights, rng)
        return
    division = _Division(problem, weights, size, processes)
    with Workers(division.work, processes) as workers:
        yield lambda crossed, rng: division.breed(crossed, rng, workers)


def _breed_alone(
    crossed: States, problem: AllocationProblem, weights: npt.NDArray[np.int64], rng: np.random.Generator
) -> Population:
    everything = Part(0, len(crossed), len(crossed))
    return Population.of(problem.mend(mutate(crossed, problem, rng, everything), rng), problem, weights)


class _Division:
    """Children before and after both steps, in memory that this process and those forked from it share."""

    def __init__(
        self, problem: AllocationProblem, weights: npt.NDArray[np.int64], size: int, processes: int
    ) -> None:
        self.problem, self.weights, self.processes = problem, weights, processes
        self.crossed, self.mutated, self.mended = _share((3, size, *problem.base.shape))

    def breed(self, crossed: States, rng: np.random.Generator, workers: Workers[Any, Any]) -> Population:
        count, nodes = len(crossed), crossed.shape[2]
        parts = parts_of(count, self.processes)
        self.crossed[:count] = crossed
        state = rng.bit_generator.state
        rows = list(accumulate(workers.map([_Mutation(part, state) for part in parts]), initial=0))
        mutate(crossed[:0], self.problem, rng, Part(0, 0, count))  # skips what they have drawn
        state = rng.bit_generator.state
        judged: list[_Judged] = workers.map(
            [_Mending(part, state, before) for part, before in zip(parts, rows, strict=False)]
        )
        skip(rng, rows[-1] * nodes)
        values, marks = map(np.concatenate, zip(*judged, strict=True))
        return Population(self.mended[:count], values, marks)

    def work(self, task: _Mutation | _Mending) -> int | _Judged:
        """Mutate, and say how many rows have too much; or mend and judge."""
        rng, place = np.random.Generator(np.random.PCG64(0)), task.part.rows
        rng.bit_generator.state = task.state
        if isinstance(task, _Mutation):
            mutated = self.problem.separate(mutate(self.crossed[place], self.problem, rng, task.part))
            self.mutated[place] = mutated
            return int(self.problem.excess(mutated).sum())
        skip(rng, task.before * self.mutated.shape[2])
        self.mended[place] = self.problem.limit(self.mutated[place].copy(), rng)
        judged = Population.of(self.mended[place], self.problem, self.weights)
        return _Judged(judged.values, judged.marks)


def _share(shape: tuple[int, ...]) -> States:
    """Matrices that processes forked later read and write as well."""
    entries = math.prod(shape)
    memory = mmap.mmap(-1, entries * np.dtype(np.int16).itemsize)
    return np.frombuffer(memory, np.int16).reshape(shape)
