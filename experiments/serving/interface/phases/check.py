"""The one checker of runs on several instances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from experiments.serving.interface.check import LISTED, TOLERANCE, outcome_faults
from experiments.serving.interface.phases.plan import PhasePlan
from experiments.workloads.requests import RequestTrace


def phase_violations(plan: PhasePlan, trace: RequestTrace) -> list[str]:
    """What is impossible about ``plan``; empty when nothing is."""
    found = [*outcome_faults(plan.serving, trace), *_passes(plan), *_copies(plan)]
    ended = sum(s.rejected or not math.isnan(s.answered) for s in plan.serving.served)
    if ended == len(trace) and plan.held_at_end:
        found.append(f"{plan.held_at_end} blocks are held after the last answer")
    more = len(found) - LISTED
    return found if more <= 0 else [*found[:LISTED], f"and {more} more"]


def _passes(plan: PhasePlan) -> Iterator[str]:
    """An instance begins a pass when its first stage is free, and has no more blocks than it has."""
    last: dict[int, float] = {}
    for row in plan.passes:
        if row.start < last.get(row.instance, 0.0) - TOLERANCE or not row.start <= row.free <= row.end:
            yield f"instance {row.instance} begins a pass at {row.start:g} s inside another"
        last[row.instance] = row.free
        if not 0 < row.used <= plan.totals[row.instance]:
            used, total = row.used, plan.totals[row.instance]
            yield f"instance {row.instance} has {used} of {total} blocks at {row.start:g} s"


def _copies(plan: PhasePlan) -> Iterator[str]:
    """One copy at a time between two instances, whole before the second token and after the first began."""
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for copy in plan.copies:
        lanes.setdefault((copy.source, copy.goal), []).append((copy.start, copy.end))
        served = plan.serving.served[copy.request]
        is_needed = served.last_token > served.first_token
        if copy.end < served.first_token - TOLERANCE or (is_needed and served.last_token < copy.end):
            yield f"KV of request {copy.request} arrives at {copy.end:g} s, out of order with its tokens"
    for lane, spans in lanes.items():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            if start < end - TOLERANCE:
                yield f"two copies at once between instances {lane} at {start:g} s"
                break
