"""Ansor's evolutionary search.

Programs of all sketches mutate, the model says which survive (section 5.1).

As in TVM there is no crossover: parents are drawn in proportion to their score, mutated with probability 0.85
by one rule (a cut moved from one loop to another, the unroll limit, a compute location, the parallel loops),
and the best never measured are kept from all generations.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.compilation.interface.tuning import Digits, Floats, ScheduleKnob, ScheduleSpace
from experiments.compilation.planning.tuning.annealing import Score, best_of
from experiments.compilation.planning.tuning.schedules import divisors
from experiments.workloads.tuning_log import Value

#: How often each rule mutates a program, among the rules that a space has knobs for.
CPU_RULES = {"tile": 0.90, "unroll": 0.04, "location": 0.05, "parallel": 0.01}
GPU_RULES = {"tile": 0.90, "unroll": 0.10}
MUTATION = 0.85
#: Of the first population, at most so many are the best programs measured before.
MEASURED_SHARE = 0.2


@dataclass(frozen=True)
class Evolution:
    """Sizes of the search.

    A space of at most ``population`` points for each generation is looked through instead.
    """

    population: int = 2048
    generations: int = 4
    rules: tuple[tuple[str, float], ...] = tuple(CPU_RULES.items())


def evolve(
    space: ScheduleSpace,
    score: Score,
    count: int,
    taken: Collection[int],
    measured: Sequence[int],
    rng: np.random.Generator,
    evolution: Evolution,
) -> list[int]:
    """Return the ``count`` best points met that are not ``taken``, best first.

    ``measured`` are the best known, best first.
    """
    if space.is_small and space.size <= evolution.population * (evolution.generations + 1):
        return best_of(space, score, count, taken)
    digits = first_population(space, measured, rng, evolution.population)
    kept: dict[int, float] = {}
    for generation in range(evolution.generations + 1):
        scores = score(digits)
        for point, value in zip(space.indices(digits), scores.tolist(), strict=True):
            if point not in taken:
                kept[point] = value
        kept = dict(heapq.nlargest(2 * count, kept.items(), key=lambda entry: (entry[1], -entry[0])))
        if generation < evolution.generations:
            parents = digits[rng.choice(len(digits), size=len(digits), p=chances(scores))]
            digits = mutate(space, parents, rng, dict(evolution.rules))
    return list(kept)[:count]


def first_population(
    space: ScheduleSpace, measured: Sequence[int], rng: np.random.Generator, size: int
) -> Digits:
    """Programs at random, and up to a fifth of the best measured."""
    old = list(measured[: int(MEASURED_SHARE * size)])
    drawn = space.random_digits(size - len(old), rng)
    return np.concatenate([space.digits(old), drawn]) if old else drawn


def chances(scores: Floats) -> Floats:
    """In proportion to the score.

    Scores that reach below 0 are shifted first, all equal ones have equal chances.
    """
    shifted = scores - min(float(scores.min()), 0.0)
    total = float(shifted.sum())
    return shifted / total if total > 0 else np.full(len(scores), 1.0 / len(scores))


def mutate(
    space: ScheduleSpace, parents: Digits, rng: np.random.Generator, rules: dict[str, float]
) -> Digits:
    """Return children of the parents, each changed by one rule with probability 0.85."""
    places = {kind: _places(space, kind) for kind in rules}
    kinds = [kind for kind in rules if places[kind]]
    children = parents.copy()
    if not kinds:
        return children
    weights = np.array([rules[kind] for kind in kinds])
    rows = np.flatnonzero(rng.random(len(parents)) < MUTATION)
    drawn = rng.choice(len(kinds), size=len(rows), p=weights / weights.sum())
    for row, kind in zip(rows.tolist(), drawn.tolist(), strict=True):
        place = places[kinds[kind]][int(rng.integers(len(places[kinds[kind]])))]
        knob, digit = space.knobs[place], int(parents[row, place])
        children[row, place] = _change(knob, digit, rng)
    return children


def _places(space: ScheduleSpace, kind: str) -> list[int]:
    return [i for i, knob in enumerate(space.knobs) if knob.kind == kind and len(knob.values) > 1]


def _change(knob: ScheduleKnob, digit: int, rng: np.random.Generator) -> int:
    """Another value: of a cut, a factor moved from one loop to another; of anything else, any."""
    value = knob.values[digit]
    if knob.kind == "tile" and isinstance(value, tuple):
        moved = knob.digit.get(moved_factor(value, rng))
        if moved is not None:
            return moved
    return (digit + int(rng.integers(1, len(knob.values)))) % len(knob.values)


def moved_factor(lengths: tuple[int | str, ...], rng: np.random.Generator) -> Value:
    """Return the lengths with a divisor of one moved to another: their product stays."""
    numbers = [int(length) for length in lengths]
    sources = [place for place, length in enumerate(numbers) if length > 1]
    if not sources or len(numbers) < 2:
        return lengths
    source = sources[int(rng.integers(len(sources)))]
    target = (source + int(rng.integers(1, len(numbers)))) % len(numbers)
    factors = divisors(numbers[source])[1:]
    factor = factors[int(rng.integers(len(factors)))]
    numbers[source] //= factor
    numbers[target] *= factor
    return tuple(numbers)
