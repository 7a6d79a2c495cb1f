"""All figures of a profile, for each process (rank) of which a file was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.summaries.profile.idle import idle_of
from experiments.summaries.profile.launches import launches_of
from experiments.summaries.profile.memory import memory_of, peaks_of
from experiments.summaries.profile.occupancy import devices_of, host_of
from experiments.summaries.profile.rankings import kernels_of, modules_of, operators_of
from experiments.workloads.timeline import Timeline

#: Processes whose rankings are kept; of the others the page has rows of totals only.
MOST_IN_FULL = 16


def report(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """JSON: ``ranks``, each with its devices, rankings, idle by stream, launches and memory, by rank."""
    ordered = sorted(timelines, key=lambda one: (one.rank, one.name))
    return {"ranks": [_rank(one, place < MOST_IN_FULL) for place, one in enumerate(ordered)]}


def _rank(timeline: Timeline, in_full: bool) -> dict[str, Any]:
    row = {
        "file": timeline.name,
        "rank": timeline.rank,
        "world": timeline.world,
        "began": timeline.began,
        "events": timeline.events,
        "devices": devices_of(timeline),
        "host": host_of(timeline),
        "idle": idle_of(timeline),
    }
    if not in_full:
        return row
    return {
        **row,
        "kernels": kernels_of(timeline),
        "operators": operators_of(timeline),
        "modules": modules_of(timeline),
        "launches": launches_of(timeline),
        "peaks": peaks_of(timeline),
        "memory": memory_of(timeline),
    }
