"""The record of a serving run: what became of each request, and every pass through the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Iteration(NamedTuple):
    """Consecutive passes of the engine over the same requests.

    ``steps`` passes from ``start`` to ``end`` (s) over ``requests`` with ``tokens`` computed in each
    pass.
    """

    start: float
    end: float
    requests: int
    tokens: int
    steps: int
    kv_reserved: int


@dataclass(frozen=True)
class Served:
    """One request's times in s (NaN: never happened), its KV slots and its computed tokens.

    Padding is counted apart.
    """

    request: int
    admitted: float
    first_token: float
    last_token: float
    answered: float
    slots: int
    computed: int
    rejected: bool = False


@dataclass(frozen=True)
class ServingPlan:
    """``gaps`` are all times between two tokens of a request (s), unsorted."""

    served: tuple[Served, ...]
    iterations: tuple[Iteration, ...]
    gaps: memoryview
    passes: int
