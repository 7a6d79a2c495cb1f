"""One profile of several: every figure is the mean of those in the middle.

A shared host is fast at one moment and slow at the next, for longer than a figure takes to measure. So the
whole grid is measured several times over, and a figure has been seen at as many moments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from experiments.workloads.profiles.layer_times import AttentionTimes, Curve, LayerTimes, Steady

#: How many of five, the fastest and the slowest, are left out at each end.
LEFT_OUT = 1


def combine(rounds: Sequence[LayerTimes]) -> LayerTimes:
    """Return the profile of all ``rounds``; what came out below nothing is nothing."""
    first = rounds[0]
    groups = {
        key: Steady(
            steady.contexts,
            tuple(
                _middle([_groups(one)[key].curves[place] for one in rounds])
                for place in range(len(steady.curves))
            ),
        )
        for key, steady in _groups(first).items()
    }
    return replace(
        first,
        by_tokens=_curves([one.by_tokens for one in rounds]),
        by_sequences=_curves([one.by_sequences for one in rounds]),
        attention=AttentionTimes(groups, first.attention.is_apart),
        wake=_middle([one.wake for one in rounds if one.wake]) if first.wake else None,
    )


def _curves(rounds: Sequence[Mapping[str, Curve]]) -> dict[str, Curve]:
    return {name: _middle([one[name] for one in rounds]) for name in rounds[0]}


def _middle(curves: Sequence[Curve]) -> Curve:
    values = np.sort([curve.seconds for curve in curves], axis=0)
    kept = values[LEFT_OUT:-LEFT_OUT] if len(values) > 2 * LEFT_OUT else values
    return Curve(curves[0].points, tuple(np.maximum(kept.mean(axis=0), 0.0).tolist()))


def _groups(times: LayerTimes) -> Mapping[tuple[int, int], Steady]:
    assert isinstance(times.attention, AttentionTimes), "this host's are measured together"
    return times.attention.groups
