"""What two jobs on one slot cost each other beyond its division, measured before the run.

Two models train on a slot at once, each pair of models once, with other pairs on the other slots. What a step
then takes more of the processor's time than alone has gone to switches and to caches that they share.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from experiments.cluster.live.calibration import (
    SECONDS,
    Calibration,
    Placed,
    Timed,
    stop_gangs,
    working_gangs,
)
from experiments.cluster.live.slots import Slots
from experiments.core.progress import Progress

#: The part of a slot that each of two has.
HALF = 0.5


def calibrate_pairs(
    known: Calibration,
    models: Iterable[str],
    slots: Slots,
    folder: Path,
    seed: int,
    *,
    capped: bool,
    progress: Progress,
) -> Calibration:
    """Return what is ``known``, with what pairs of ``models`` on one slot cost each other.

    ``capped`` jobs are held to their halves; others take what they get. Models that were never timed on one
    slot are left out.
    """
    single = sorted({model for model in models if (model, 1) in known.step_seconds})
    pairs = list(combinations_with_replacement(single, 2))
    limit: Mapping[str, Any] = {"seed": seed, **({"share": HALF} if capped else {})}
    steps: dict[tuple[str, str], list[float]] = {}
    starts: list[float] = []
    for first in range(0, len(pairs), len(slots)):
        here = [pairs[(first + place) % len(pairs)] for place in range(len(slots))]
        progress(first / len(pairs), f"timing {' and '.join(here[0])} on one slot")
        for (model, other), timed in _time_pairs(here, limit, slots, folder / str(first)):
            alone = known.computing_seconds(model, 1)
            steps.setdefault((model, other), []).append(timed.computing / alone)
            starts.append(timed.start * HALF / known.start)
    progress(1.0, "timed")
    if not steps:
        return known
    crowding = {pair: statistics.fmean(found) for pair, found in sorted(steps.items())}
    return replace(known, crowding=crowding, crowded_start=statistics.median(starts))


def _time_pairs(
    pairs: list[tuple[str, str]], limit: Mapping[str, Any], slots: Slots, folder: Path
) -> list[tuple[tuple[str, str], Timed]]:
    """One pair on each slot: each model with the other one, and what it took."""
    named = [(pair, place) for place, (one, two) in enumerate(pairs) for pair in ((one, two), (two, one))]
    placed = [Placed({"model": model, **limit}, [place]) for (model, _), place in named]
    with working_gangs(placed, slots, folder) as (gangs, starts):
        time.sleep(SECONDS)
        return [(pair, timed) for (pair, _), timed in zip(named, stop_gangs(gangs, starts), strict=True)]
