"""Kernels, operators and modules by the time they took, the largest first."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.summaries.profile.idle import launch_of
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats
from experiments.workloads.timeline import WORK_KINDS, Timeline

#: Rows that are kept; the rest is told as one.
MOST_ROWS = 300


def kernels_of(timeline: Timeline) -> list[dict[str, Any]]:
    """Work on devices by name: kind, number, seconds in all and at most."""
    work = timeline.work
    seconds = work.end - work.start
    rows = _rank(work.name, seconds)
    kind = dict(zip(work.name.tolist(), work.kind.tolist(), strict=True))
    longest = _by(work.name, seconds, np.maximum, len(timeline.names))
    return [
        {
            "name": timeline.names[name],
            "kind": WORK_KINDS[kind[name]],
            "count": count,
            "seconds": total,
            "most": float(longest[name]),
        }
        for name, count, total in rows
    ]


def operators_of(timeline: Timeline) -> list[dict[str, Any]]:
    """Operators by name, ranked by the device's time where there is a device.

    Each with its number, seconds of the host inside it alone, and of the devices for what it launched.
    """
    calls = timeline.calls
    if not len(calls):
        return []
    own, device = self_seconds(timeline), device_seconds(timeline)
    ops = np.flatnonzero(calls.is_op == 1)
    weight = device if device.any() else own
    rows = _rank(calls.name[ops], weight[ops])
    host = _by(calls.name[ops], own[ops], np.add, len(timeline.names))
    work = _by(calls.name[ops], device[ops], np.add, len(timeline.names))
    return [
        {
            "name": timeline.names[name],
            "count": count,
            "host": float(host[name]),
            "seconds": float(work[name]),
        }
        for name, count, _ in rows
    ]


def modules_of(timeline: Timeline) -> list[dict[str, Any]]:
    """As ``operators_of``, by the innermost module; empty where no module was recorded."""
    calls = timeline.calls
    inside = np.flatnonzero((calls.is_op == 1) & (calls.module >= 0))
    if not len(inside):
        return []
    own, device = self_seconds(timeline)[inside], device_seconds(timeline)[inside]
    module = calls.module[inside]
    rows = _rank(module, device if device.any() else own)
    host, work = (_by(module, values, np.add, len(timeline.names)) for values in (own, device))
    return [
        {
            "name": timeline.names[name],
            "count": count,
            "host": float(host[name]),
            "seconds": float(work[name]),
        }
        for name, count, _ in rows
    ]


def self_seconds(timeline: Timeline) -> Floats:
    """Of each call the seconds that no call inside it has."""
    calls = timeline.calls
    own = (calls.end - calls.start).astype(np.float64)
    open_: dict[int, list[int]] = {}
    start, end, thread = calls.start.tolist(), calls.end.tolist(), calls.thread.tolist()
    for row in range(len(calls)):
        stack = open_.setdefault(thread[row], [])
        while stack and end[stack[-1]] <= start[row]:
            stack.pop()
        if stack:
            own[stack[-1]] -= min(end[row], end[stack[-1]]) - start[row]
        stack.append(row)
    return np.maximum(own, 0.0)


def device_seconds(timeline: Timeline) -> Floats:
    """Of each call the seconds of the work that it launched itself, not through a call inside it."""
    work, calls = timeline.work, timeline.calls
    found = np.zeros(len(calls))
    owner = _owners(timeline)
    known = owner >= 0
    np.add.at(found, owner[known], (work.end - work.start)[known])
    return found


def _owners(timeline: Timeline) -> Ints:
    """Which operator launched each piece of work: the one that its number names, else the innermost one that
    ran on the launching thread (-1: none).
    """
    calls, work = timeline.calls, timeline.work
    ops = np.flatnonzero((calls.is_op == 1) & (calls.external >= 0))
    owner = np.full(len(work), -1, np.int64)
    if len(ops):
        order = ops[np.argsort(calls.external[ops], kind="stable")]
        number = calls.external[order]
        place = np.clip(np.searchsorted(number, work.external), 0, len(order) - 1)
        owner = np.where((number[place] == work.external) & (work.external >= 0), order[place], -1)
    launch = launch_of(timeline)
    left = np.flatnonzero((owner < 0) & (launch >= 0))
    owner[left] = _innermost(timeline, launch[left])
    return owner


def _innermost(timeline: Timeline, launch: Ints) -> Ints:
    calls, launches = timeline.calls, timeline.launches
    found = np.full(len(launch), -1, np.int64)
    for thread in np.unique(launches.thread[launch]).tolist():
        asked = np.flatnonzero(launches.thread[launch] == thread)
        order = asked[np.argsort(launches.start[launch[asked]], kind="stable")]
        ops = np.flatnonzero((calls.thread == thread) & (calls.is_op == 1)).tolist()
        found[order] = _open_at(calls.start, calls.end, ops, launches.start[launch[order]])
    return found


def _open_at(start: Floats, end: Floats, ops: list[int], times: Floats) -> list[int]:
    """The innermost of ``ops`` (by start) that is open at each of ``times``, which ascend."""
    found, open_, upcoming = [], list[int](), 0
    for time in times.tolist():
        while upcoming < len(ops) and start[ops[upcoming]] <= time:
            while open_ and end[open_[-1]] <= start[ops[upcoming]]:
                open_.pop()
            open_.append(ops[upcoming])
            upcoming += 1
        while open_ and end[open_[-1]] < time:
            open_.pop()
        found.append(open_[-1] if open_ else -1)
    return found


def _rank(keys: Ints, values: Floats) -> list[tuple[int, int, float]]:
    """(key, number, total), the largest total first."""
    if not len(keys):
        return []
    distinct, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    totals = np.bincount(inverse, weights=values, minlength=len(distinct))
    order = np.lexsort((distinct, -totals))[:MOST_ROWS]
    return [(int(distinct[i]), int(counts[i]), float(totals[i])) for i in order.tolist()]


def _by(keys: Ints, values: Floats, joined: Any, size: int) -> Floats:
    found = np.zeros(size)
    joined.at(found, keys, values)
    return found
