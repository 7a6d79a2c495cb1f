"""The record of a serving run: what became of each request, and every pass through the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Iteration(NamedTuple):
    """Consecutive passes of the engine over the same requests.

    ``steps`` passes from ``start`` to ``end`` (s) over ``requests`` with ``tokens`` computed in each
    pass; the last ``beyond`` of them were priced beyond what was measured.
    """

    start: float
    end: float
    requests: int
    tokens: int
    steps: int
    kv_reserved: int
    beyond: int = 0


class BlockPass(NamedTuple):
    """KV blocks and tokens of consecutive passes, next to the ``Iteration`` of the same place.

    Drafts that are verified, and the token before them, are ``decode``.
    """

    prefill: int
    decode: int
    used: int
    cached: int
    waiting: int


@dataclass(frozen=True)
class BlockLog:
    """What an engine over ``total`` blocks of ``size`` tokens did besides the passes.

    ``hits`` are tokens that a request found in the pool beyond those that it had had, ``recomputed`` those
    that a preempted one had and did not find again; ``preempted`` requests were so ``preemptions`` times
    together.
    ``swapped_blocks`` were copied to or from the host. Of so many ``verifications`` of drafts came
    ``verified_tokens``. Sequences that share blocks held them for ``shared_seconds`` (block-seconds), and
    would have for ``logical_seconds`` without.
    """

    total: int
    size: int
    passes: tuple[BlockPass, ...]
    hits: int
    recomputed: int
    preemptions: int
    preempted: int
    swapped_blocks: int
    held_at_end: int
    verifications: int = 0
    verified_tokens: int = 0
    shared_seconds: float = 0.0
    logical_seconds: float = 0.0


@dataclass(frozen=True)
class Served:
    """One request's times in s (NaN: never happened), its KV slots and its computed tokens.

    Padding is counted apart. ``preempted`` has from when to when it was out of memory; ``reason`` says
    why it was rejected."""

    request: int
    admitted: float
    first_token: float
    last_token: float
    answered: float
    slots: int
    computed: int
    rejected: bool = False
    reason: str = ""
    preempted: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class ServingPlan:
    """``gaps`` are all times between two tokens of a request (s), unsorted; ``memory`` is of blocks.

    ``extrapolated`` passes, of so many seconds, were priced beyond what was measured; ``None`` where nothing
    was.
    """

    served: tuple[Served, ...]
    iterations: tuple[Iteration, ...]
    gaps: memoryview
    passes: int
    memory: BlockLog | None = None
    extrapolated: int | None = None
    extrapolated_seconds: float = 0.0
