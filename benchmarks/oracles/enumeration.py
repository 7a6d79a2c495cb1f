"""Every program of a small operator, priced: what a constructed one can be compared with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.expressions import Expression
from experiments.compilation.planning.tiles.program import TileProgram, fits
from experiments.compilation.policies.roller.alignment import REGISTER_FACTORS, reduction_steps
from experiments.compilation.policies.roller.micro_model import estimate

MOST_PROGRAMS = 2_000_000


@dataclass(frozen=True)
class Enumerated:
    """The program of least modeled time, and how many were priced."""

    best: TileProgram
    seconds: float
    priced: int


def programs(expression: Expression, architecture: Architecture) -> Iterator[TileProgram]:
    """All programs of a thread's tile of powers of two, a block's of any multiple of it, and a step as
    constructed ones have.

    Neither alignment nor padding is asked for. ``ValueError`` where there are more than ``MOST_PROGRAMS``.
    """
    choices = [_pairs(extent) for extent in expression.domain]
    steps = reduction_steps(expression, architecture)
    count = math.prod(map(len, choices)) * math.prod(map(len, steps))
    if count > MOST_PROGRAMS:
        raise ValueError(f"{expression.name} has {count} programs; at most {MOST_PROGRAMS}")
    for pairs in itertools.product(*choices):
        register, shared = zip(*pairs, strict=True)
        for step in itertools.product(*steps):
            yield TileProgram(register, shared, step)


def _pairs(extent: int) -> list[tuple[int, int]]:
    """Sizes of a thread's tile and of a block's along an axis; the last block may reach over its end."""
    return [
        (own, own * times)
        for own in REGISTER_FACTORS
        if own < 2 * extent
        for times in range(1, -(-extent // own) + 1)
    ]


def enumerate_all(expression: Expression, architecture: Architecture) -> Enumerated:
    """The best of all programs that fit a block."""
    best, least, priced = None, math.inf, 0
    for program in programs(expression, architecture):
        if not fits(expression, program, architecture):
            continue
        priced += 1
        seconds = estimate(expression, program, architecture).seconds
        if seconds < least:
            best, least = program, seconds
    assert best is not None, "a thread of one point fits every device"
    return Enumerated(best, least, priced)
