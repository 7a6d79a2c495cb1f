"""How long work says how far it is. The runner gives one in; simulators and live runners report to it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TextIO, TypeVar

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Progress(Protocol):
    """Called with the fraction done (0 to 1) and the name of the current step."""

    def __call__(self, fraction: float, step: str) -> None: ...


def silent(fraction: float, step: str) -> None:
    """Report the progress to nobody."""


def part(progress: Progress, start: float, end: float) -> Progress:
    """A progress whose 0..1 is ``start``..``end`` of ``progress``: for a stage of a longer work."""

    def report(fraction: float, step: str) -> None:
        progress(start + (end - start) * min(max(fraction, 0.0), 1.0), step)

    return report


def weighted_parts(progress: Progress, weights: Sequence[float]) -> Iterator[Progress]:
    """Yield a progress for each of several works, as wide as its weight: how long it is thought to take."""
    total, before = sum(weights) or 1.0, 0.0
    for weight in weights:
        yield part(progress, before / total, min((before + weight) / total, 1.0))
        before += weight


def forward_only(progress: Progress) -> Progress:
    """A progress that never goes back. A report without a step repeats the last one: a sign of life."""
    furthest, last = 0.0, ""

    def report(fraction: float, step: str) -> None:
        nonlocal furthest, last
        furthest, last = max(furthest, fraction), step or last
        progress(furthest, last)

    return report


def accompany(items: Iterable[Item], progress: Progress, every: int) -> Iterator[Item]:
    """Yield ``items``, with a sign of life at the first and after ``every`` more: for long loops."""
    for number, item in enumerate(items):
        if number % every == 0:
            progress(0.0, "")
        yield item


#: How often a solver that reports nothing is accompanied by a report, in seconds.
BEAT = 0.2
#: What a solver's call can end in; handed from its thread to the caller.
SOLVER_ERRORS = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


def run_reporting(work: Callable[[], Answer], report: Callable[[], None]) -> Answer:
    """Return ``work()``, done by another thread, while this one calls ``report`` a few times a second.

    For solvers in C that release the interpreter. Where ``report`` raises to cancel, the solver is left
    behind: it ends at its own bound or with the process.
    """
    answers: list[Answer] = []
    errors: list[Exception] = []

    def carry_out() -> None:
        try:
            answers.append(work())
        except SOLVER_ERRORS as error:
            errors.append(error)

    worker = threading.Thread(target=carry_out, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(BEAT)
        report()
    for error in errors:
        raise error
    return answers[0]


def seconds_left(fraction: float, spent: float) -> float | None:
    """Return how long work still takes that ``spent`` so long on a fraction; ``None`` where unknown."""
    return spent / fraction - spent if 0.02 < fraction < 1 else None


class JsonLines:
    """One JSON line per report on ``stream``, at most ten a second, the last always.

    It has the fraction done, the step and, once that can be said, the seconds ``left``.
    """

    def __init__(self, stream: TextIO = sys.stderr, interval: float = 0.1) -> None:
        self.stream, self.interval, self._last = stream, interval, float("-inf")
        self._start = time.monotonic()

    def __call__(self, fraction: float, step: str) -> None:
        now = time.monotonic()
        if now - self._last < self.interval and fraction < 1:
            return
        self._last = now
        left = seconds_left(fraction, now - self._start)
        more = {} if left is None else {"left": round(left, 1)}
        line = {"progress": round(fraction, 4), "step": step, **more}
        print(json.dumps(line), file=self.stream, flush=True)


class Bar:
    """A bar on a terminal with the time left, redrawn in place."""

    def __init__(self, stream: TextIO = sys.stderr, width: int = 28) -> None:
        self.stream, self.width, self._start = stream, width, time.monotonic()

    def __call__(self, fraction: float, step: str) -> None:
        filled = round(self.width * min(fraction, 1.0))
        spent = time.monotonic() - self._start
        seconds = seconds_left(fraction, spent)
        left = "" if seconds is None else f"{seconds:5.1f} s left"
        bar = "█" * filled + "·" * (self.width - filled)
        end = "\n" if fraction >= 1 else ""
        print(
            f"\r{bar} {fraction * 100:5.1f} %  {step[:40]:40} {left:14}",
            end=end,
            file=self.stream,
            flush=True,
        )
