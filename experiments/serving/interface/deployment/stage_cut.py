"""Cuts a chain of layers into stages so that the slowest is as fast as can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


def cut_stages(seconds: Sequence[float], stages: int) -> tuple[int, ...]:
    """Return where each stage ends (layers before it), none of them empty.

    Dynamic programming over the first layers and the stages that they fill (AlpaServe, section 4.1):
    F(s, k) = min over i of max(F(s - 1, i), sum of layers i to k). The first term rises with i and the second
    falls, so the best i is next to where they meet, which moves on with k.
    ``ValueError`` for more stages than layers.
    """
    layers = len(seconds)
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers do not make {stages} stages")
    sums = [0.0, *accumulate(seconds)]
    slowest: list[float] = sums
    choices: list[list[int]] = []
    for stage in range(2, stages + 1):
        slowest, chosen = _further_stage(slowest, sums, stage)
        choices.append(chosen)
    ends = [layers]
    for chosen in reversed(choices):
        ends.append(chosen[ends[-1]])
    return tuple(reversed(ends))


def _further_stage(
    before: Sequence[float], sums: Sequence[float], stage: int
) -> tuple[list[float], list[int]]:
    """The slowest of ``stage`` stages for each number of layers, and where the last of them begins."""
    layers = len(sums) - 1
    slowest, chosen = [float("inf")] * (layers + 1), [0] * (layers + 1)
    meet = stage - 1
    for last in range(stage, layers + 1):
        while meet + 1 < last and before[meet] < sums[last] - sums[meet]:
            meet += 1
        near = (cut for cut in (meet - 1, meet) if cut >= stage - 1)
        slowest[last], chosen[last] = min((max(before[cut], sums[last] - sums[cut]), cut) for cut in near)
    return slowest, chosen
