"""Shares of work for devices that differ: by speed, then by what their memory holds.

Source: Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs", ATC'22, section 3.3
(intra- and inter-TaskGraph balance).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from experiments.core.errors import Infeasible

#: Bytes that a device needs for a share.
Bytes = Callable[[int, int], float]


def proportional(total: int, speeds: Sequence[float]) -> list[int]:
    """Return ``total`` in whole parts that are proportional to ``speeds``.

    By largest remainder (the first of equals).
    """
    exact = [total * speed / sum(speeds) for speed in speeds]
    shares = [int(part) for part in exact]
    by_remainder = sorted(range(len(speeds)), key=lambda i: (shares[i] - exact[i], i))
    for device in by_remainder[: total - sum(shares)]:
        shares[device] += 1
    return shares


def within_memory(
    shares: Sequence[int], speeds: Sequence[float], needed: Bytes, capacities: Sequence[float]
) -> list[int]:
    """Return ``shares`` after moves until every device has the bytes for its own.

    One unit at a time, from the fullest device to the one that is done first of those with free bytes.

    ``needed(device, share)`` are bytes. ``Infeasible`` when no device has free bytes for what another cannot
    hold.
    """
    now = list(shares)
    while True:
        peak = max(range(len(now)), key=lambda i: (needed(i, now[i]) / capacities[i], -i))
        excess = needed(peak, now[peak]) - capacities[peak]
        if excess <= 0:
            return now
        able = [i for i in range(len(now)) if i != peak and needed(i, now[i] + 1) <= capacities[i]]
        if not able or now[peak] == 0:
            what = f"its share of {now[peak]} samples lacks {excess:.0f} bytes and no other device has room"
            raise Infeasible(what, f"device {peak}", excess)
        valley = min(able, key=lambda i: (now[i] / speeds[i], i))
        now[peak] -= 1
        now[valley] += 1


def proportional_cut(costs: Sequence[float], speeds: Sequence[float]) -> list[int]:
    """Return the ends of runs of ``costs``, one a device, whose slowest is as fast as can be.

    Runs are consecutive and not empty.

    Linear partition by dynamic programming over (devices, prefix), where a device takes cost / speed; ties go
    to the later border. Needs at least as many costs as devices.
    """
    count, total = len(costs), [0.0]
    for cost in costs:
        total.append(total[-1] + float(cost))
    best: list[list[tuple[float, int]]] = [[(value / speeds[0], 0) for value in total]]
    for made, speed in enumerate(speeds[1:], start=1):
        before = best[-1]
        row = [(float("inf"), 0)] * (count + 1)
        for end in range(made + 1, count + 1):
            options = (
                (max(before[cut][0], (total[end] - total[cut]) / speed), -cut) for cut in range(made, end)
            )
            cost, cut = min(options)
            row[end] = cost, -cut
        best.append(row)
    ends = [count]
    for row in reversed(best[1:]):
        ends.append(row[ends[-1]][1])
    return ends[::-1]


def cut_within_memory(
    ends: Sequence[int],
    seconds: Callable[[int, int, int], float],
    needed: Callable[[int, int, int], float],
    capacities: Sequence[float],
) -> list[int]:
    """Return ``ends`` after moves until every stage has the bytes for its layers.

    One layer at a time, from the fullest stage towards the fastest one with free bytes.

    ``seconds(stage, begin, end)`` and ``needed(stage, begin, end)`` are a stage's time and bytes.
    ``Infeasible`` when a cut comes back or no stage has free bytes.
    """
    now: list[int] = list(ends)
    seen: set[tuple[int, ...]] = set()
    while True:
        spans = _spans(now)
        use = [needed(s, *span) / capacities[s] for s, span in enumerate(spans)]
        peak = max(range(len(now)), key=lambda s: (use[s], -s))
        if use[peak] <= 1:
            return now
        shifted = {s: _shifted(now, peak, s) for s in range(len(now)) if s != peak}
        able = [s for s, after in shifted.items() if needed(s, *_spans(after)[s]) <= capacities[s]]
        excess = (use[peak] - 1) * capacities[peak]
        if not able or tuple(now) in seen or spans[peak][1] - spans[peak][0] == 1:
            raise Infeasible(f"lacks {excess:.0f} bytes and no stage has room", f"stage {peak}", excess)
        seen.add(tuple(now))
        now = shifted[min(able, key=lambda s: (seconds(s, *spans[s]), s))]


def _spans(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise([0, *ends]))


def _shifted(ends: Sequence[int], peak: int, valley: int) -> list[int]:
    """Every border between the two stages moved by one layer: ``peak`` has one less and
    ``valley`` one more.
    """
    step = -1 if peak < valley else 1
    between = range(min(peak, valley), max(peak, valley))
    return [end + step if stage in between else end for stage, end in enumerate(ends)]
