"""A limit of time for searches, set from outside of a run: the best so far is the answer then.

No clock decides in a run without one. A search that ends for time says so and, where a knob counts what it
looked at, tells the value of that knob that gives the same answer on every host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class TimeLimit:
    """``seconds`` for all searches of a run; ``reached`` are knobs with the values that repeat it."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    ended: bool = False
    reached: dict[str, int] = field(default_factory=dict)


_limit: ContextVar[TimeLimit | None] = ContextVar("time limit of searches", default=None)


@contextmanager
def limit_time(seconds: float | None) -> Iterator[TimeLimit | None]:
    """Let searches within the block take so many seconds from now; ``None`` is no limit."""
    token = _limit.set(None if seconds is None else TimeLimit(seconds))
    try:
        yield _limit.get()
    finally:
        _limit.reset(token)


def time_is_up(share: float = 1.0) -> bool:
    """Whether a search has to end with the best so far; ``share`` of the time is what it may take."""
    return seconds_left(share) <= 0


def seconds_left(share: float = 1.0) -> float:
    """Seconds until a search has to end, infinite without a limit."""
    limit = _limit.get()
    return float("inf") if limit is None else limit.started + share * limit.seconds - time.monotonic()


def say_ended(what: str, knob: str = "", value: int = 0) -> str:
    """Return the sentence on a search that ended for time after ``what``; keep the knob that repeats it."""
    limit = _limit.get()
    assert limit is not None
    limit.ended = True
    told = f"the search ended after its {limit.seconds:g} s with the best so far ({what})"
    if not knob:
        return f"{told}; in that time another host may find another"
    limit.reached[knob] = value
    return f"{told}; {knob}={value} repeats it"
