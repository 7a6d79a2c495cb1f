"""How long work says how far it is. The runner gives one in; simulators and live runners report to it."""

from __future__ import annotations

import json
import sys
import time
from typing import Protocol, TextIO


class Progress(Protocol):
    """Called with the fraction done (0 to 1) and the name of the current step."""

    def __call__(self, fraction: float, step: str) -> None: ...


def silent(fraction: float, step: str) -> None:
    """Report to nobody."""


def part(progress: Progress, start: float, end: float) -> Progress:
    """A progress whose 0..1 is ``start``..``end`` of ``progress``: for a stage of a longer work."""

    def report(fraction: float, step: str) -> None:
        progress(start + (end - start) * min(max(fraction, 0.0), 1.0), step)

    return report


class JsonLines:
    """One JSON line per report on ``stream``, at most ten a second, the last always."""

    def __init__(self, stream: TextIO = sys.stderr, interval: float = 0.1) -> None:
        self.stream, self.interval, self._last = stream, interval, float("-inf")

    def __call__(self, fraction: float, step: str) -> None:
        now = time.monotonic()
        if now - self._last < self.interval and fraction < 1:
            return
        self._last = now
        print(json.dumps({"progress": round(fraction, 4), "step": step}), file=self.stream, flush=True)


class Bar:
    """A bar on a terminal with the time left, redrawn in place."""

    def __init__(self, stream: TextIO = sys.stderr, width: int = 28) -> None:
        self.stream, self.width, self._start = stream, width, time.monotonic()

    def __call__(self, fraction: float, step: str) -> None:
        filled = round(self.width * min(fraction, 1.0))
        spent = time.monotonic() - self._start
        left = f"{spent / fraction - spent:5.1f} s left" if 0.02 < fraction < 1 else ""
        bar = "█" * filled + "·" * (self.width - filled)
        end = "\n" if fraction >= 1 else ""
        print(
            f"\r{bar} {fraction * 100:5.1f} %  {step[:40]:40} {left:14}",
            end=end,
            file=self.stream,
            flush=True,
        )
