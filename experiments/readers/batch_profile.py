"""Profiles of a model by batch as Nexus publishes them: seconds and memory of a pass, and those around it.

Three lines of names, then ``batch,latency(us),std(us),memory(B)``, then the microseconds before and after a
pass of one request.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.workloads.scenario import BatchProfile

HEADER = "batch,latency(us),std(us),memory(B)"
#: The headings after which the microseconds of pre- and postprocessing stand two lines below.
AROUND = ("Preprocess latency", "Postprocess latency")
MOST_LINES, MOST_BATCH = 100_000, 10**6


@dataclass(frozen=True)
class NexusProfile:
    """A profile file: the pass by batch, and the seconds before and after it for each request."""

    model: str
    device: str
    profile: BatchProfile
    preprocess: float
    postprocess: float


def read_nexus_profile(data: bytes, name: str) -> NexusProfile:
    """Read a profile; ``BadInput`` names file, line, value and what was expected."""
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 5 or lines[3].strip() != HEADER or len(lines) > MOST_LINES:
        found = lines[3].strip()[:60] if len(lines) > 3 else "nothing"
        raise BadInput(f"{found!r}", f"{name}, line 4", f"a batch profile of Nexus: {HEADER}")
    rows = [_row(line, f"{name}, line {number}") for number, line in _table(lines)]
    if not rows:
        raise BadInput("no batches", f"{name}, line 5", "batch, microseconds, deviation, bytes")
    batch, latency, memory = zip(*rows, strict=True)
    if any(later <= earlier for earlier, later in itertools.pairwise(batch)):
        raise BadInput("batches are not ascending", name, "each batch once, the smallest first")
    before, after = (_around(lines, heading, name) for heading in AROUND)
    return NexusProfile(
        lines[0].strip(), lines[1].strip(), BatchProfile(batch, latency, memory), before, after
    )


def _table(lines: list[str]) -> list[tuple[int, str]]:
    end = next((place for place, line in enumerate(lines) if line.strip() == AROUND[0]), len(lines))
    return [(number, line) for number, line in enumerate(lines[4:end], 5) if line.strip()]


def _row(line: str, where: str) -> tuple[int, float, float]:
    cells = line.split(",")
    if len(cells) != 4:
        raise BadInput(f"{len(cells)} cells", where, "batch, microseconds, deviation, bytes")
    batch = number(cells[0], where, 1, MOST_BATCH)
    if not batch.is_integer():
        raise BadInput(f"batch {cells[0].strip()!r:.40}", where, "a whole number")
    return int(batch), number(cells[1], where, 1e-3, 1e12) * 1e-6, number(cells[3], where, 0, 1e15)


def _around(lines: list[str], heading: str, name: str) -> float:
    for place, line in enumerate(lines):
        if line.strip() == heading and place + 2 < len(lines):
            where = f"{name}, line {place + 3}"
            return number(lines[place + 2].split(",")[0], where, 0, 1e12) * 1e-6
    return 0.0


def number(text: str, where: str, low: float, high: float) -> float:
    """Return the number that ``text`` spells, from ``low`` to ``high``."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise BadInput(f"{text.strip()!r:.40}", where, f"a number from {low:g} to {high:g}")
    return value
