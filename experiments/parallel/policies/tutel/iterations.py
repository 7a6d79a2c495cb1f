"""The choice anew in each iteration: what was fastest for a like capacity is remembered (section 3.3 of the
paper, "joint tuning").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput
from experiments.parallel.policies.tutel.experts import ExpertChoice

#: Seconds of a step by choice.
Times = Mapping[ExpertChoice, float]
#: Capacities of iterations, at most, and the largest of them.
MOST, LARGEST = 256, 64.0


@dataclass(frozen=True)
class Iteration:
    """An iteration: its capacity, what was chosen for it, and whether that had to be tried first.

    ``step_time`` are its seconds, ``unadapted`` those with the choice of the first iteration.
    """

    capacity: float
    choice: ExpertChoice
    tried: bool
    step_time: float
    unadapted: float

    @property
    def note(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "degree": self.choice.degree,
            "chunks": self.choice.chunks,
            "two_level": self.choice.two_level,
            "tried": self.tried,
            "step_time": self.step_time,
            "unadapted": self.unadapted,
        }


def parse_capacities(text: str) -> tuple[float, ...]:
    """Return the numbers of a list with commas; ``BadInput`` for anything else."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) > MOST:
        raise BadInput(f"{len(words)} capacities", "knobs.capacities", f"at most {MOST}")
    return tuple(_capacity(word) for word in words)


def _capacity(word: str) -> float:
    expected = f"numbers above 0, up to {LARGEST:g}, with commas between them"
    try:
        found = float(word)
    except ValueError:
        raise BadInput(f"capacity {word!r:.40}", "knobs.capacities", expected) from None
    if not 0 < found <= LARGEST:
        raise BadInput(f"capacity {found:g}", "knobs.capacities", expected)
    return found


def adapt(
    capacities: Iterable[float],
    width: float,
    fastest: Callable[[float], ExpertChoice],
    seconds: Callable[[ExpertChoice, float], float],
) -> Iterator[Iteration]:
    """Carry out iterations of these ``capacities``, in turn.

    Those within ``width`` of one another share a choice: that which is ``fastest`` for the first of them.
    """
    known: dict[int, ExpertChoice] = {}
    first: ExpertChoice | None = None
    for capacity in capacities:
        like = math.floor(capacity / width)
        tried = like not in known
        choice = known.setdefault(like, fastest(capacity)) if tried else known[like]
        first = first or choice
        yield Iteration(capacity, choice, tried, seconds(choice, capacity), seconds(first, capacity))
