"""Which plans are simulated, in what order: the best by closed forms, then what answers other goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from experiments.advisor.ask import COST, MEMORY
from experiments.advisor.cluster.candidates import Candidate
from experiments.advisor.cluster.ideas import IDEAS, ideas_of
from experiments.advisor.cluster.space import Space
from experiments.parallel.planning.degrees.analytic import Flags
from experiments.workloads.step import Floats

#: Of the best within the margin those that are simulated first, and all; and of the best beyond it.
FIRST, BEST, BEYOND = 3, 5, 2
#: Shares of the memory below which the best is simulated too: leaner plans that one might want.
SHARES = (0.75, 0.5, 0.25)


def scores(space: Space, goal: str) -> Floats:
    """What is to be least, of every plan."""
    if goal == MEMORY:
        return space.found.peak_memory
    price = space.devices if goal == COST else 1.0
    found: Floats = space.found.step_time * price
    return found


def shortlist(spaces: Sequence[Space], goal: str, capacity: float, allowed: float) -> list[Candidate]:
    """Return the plans to simulate, the most promising first, each once.

    ``allowed`` bytes leave the margin free; ``capacity`` are all.
    """
    found: dict[tuple[object, ...], Candidate] = {}
    for candidate in _in_order(spaces, goal, capacity, allowed):
        found.setdefault((candidate.nodes, candidate.policy, *candidate.knobs.items()), candidate)
    return list(found.values())


def _in_order(spaces: Sequence[Space], goal: str, capacity: float, allowed: float) -> Iterator[Candidate]:
    """The best, then leaner and cheaper ones that might be alternatives, then the next best."""
    best = list(islice(_best(spaces, goal, partial(np.greater_equal, allowed)), BEST))
    yield from best[:FIRST]
    yield from islice(_best(spaces, goal, lambda memory: (memory > allowed) & (memory <= capacity)), BEYOND)
    for share in SHARES:
        yield from islice(_best(spaces, goal, partial(np.greater_equal, share * capacity)), 1)
    yield from islice(_best(spaces, COST, partial(np.greater_equal, allowed)), 1)
    yield from best
    yield from islice(_best(spaces, MEMORY, partial(np.greater_equal, capacity)), 1)
    for number in range(len(IDEAS)):
        yield from _best_of_idea(spaces, goal, number, allowed)


def _best(spaces: Sequence[Space], goal: str, may: Callable[[Floats], Flags]) -> Iterator[Candidate]:
    """Candidates by what is to be least, the best of each division; of selective checkpointing the same."""
    rows = []
    for number, space in enumerate(spaces):
        time, memory = space.found.step_time, space.found.peak_memory
        places = np.flatnonzero(np.isfinite(time) & may(memory))
        score = scores(space, goal)[places]
        rows += [
            (float(s), float(t), number, int(p)) for s, t, p in zip(score, time[places], places, strict=True)
        ]
    seen = set()
    for _, _, number, place in sorted(rows):
        candidate = spaces[number].candidate(place)
        if candidate.division not in seen:
            seen.add(candidate.division)
            yield candidate
            if saved := candidate.with_saved_operators:
                yield saved


def _best_of_idea(spaces: Sequence[Space], goal: str, idea: int, allowed: float) -> Iterator[Candidate]:
    """The best of an idea on all nodes."""
    space = spaces[0]
    of_idea = (ideas_of(space) == idea) & (space.found.peak_memory <= allowed)
    places = np.flatnonzero(of_idea & np.isfinite(space.found.step_time))
    if len(places):
        yield space.candidate(int(places[np.argmin(scores(space, goal)[places])]))
