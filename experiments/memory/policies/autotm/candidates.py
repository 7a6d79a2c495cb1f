"""A solved program carried out in several ways, of which the fastest is kept.

The program counts a copy as hidden by the one op that it is overlapped with, and the step waits for it there.
The same tensors may also leave and return without that wait, concurrent with as many ops as a copy takes; and
each may leave right after its use and return earlier, as far as free bytes allow. Where ops use memory beyond
the device's in place, the processor that computes also copies: the program's own way is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.memory.interface import MemoryMove, PlanEstimate, WaitForCopy
from experiments.memory.planning.location_moves import absent_gaps, moves_of
from experiments.memory.planning.locations import LocationProgram
from experiments.memory.planning.milp import MixedIntegerSolution
from experiments.memory.planning.swaps import (
    Gap,
    TensorSwap,
    UnstalledClock,
    earliest_return,
    within,
)
from experiments.memory.planning.swaps import moves_of as swap_moves

#: How many times its own duration before its next use a copy back begins; none: as soon as it could.
LEADS = (1.0, 2.0, 4.0, 8.0, None)
Moves = tuple[MemoryMove, ...]


def fastest(
    program: LocationProgram, solution: MixedIntegerSolution, estimate: Callable[[Moves], PlanEstimate]
) -> tuple[str, Moves]:
    """Return the name and the moves of the fastest way to carry the solution out, the program's own first."""
    ways = list(ways_of(program, solution))
    if len(ways) == 1:
        return ways[0]
    seen = [estimate(moves) for _, moves in ways]
    best = min(range(len(ways)), key=lambda i: (not seen[i].fits, seen[i].step_time, i))
    return ways[best]


def ways_of(program: LocationProgram, solution: MixedIntegerSolution) -> Iterator[tuple[str, Moves]]:
    """Each way to carry out the solution, and what it is called; only the first where no copy may overlap."""
    counted = moves_of(program, solution)
    yield "waits as the program counts", counted
    if not program.rules.window or program.rules.in_place:
        return
    yield "waits for no copy", tuple(move for move in counted if not isinstance(move, WaitForCopy))
    gaps = absent_gaps(program, solution)
    for lead in LEADS:
        name = "as early as it fits" if lead is None else f"{lead:g} copies ahead"
        yield f"returns {name}", _returning(program, gaps, lead)


def _returning(program: LocationProgram, gaps: Sequence[Gap], lead: float | None) -> Moves:
    """The tensors of ``gaps`` leave at once, and return ``lead`` times their copies' duration ahead."""
    clock = UnstalledClock(program.step)

    def back(gap: Gap) -> int:
        floor = earliest_return(gap)
        if lead is None or floor >= gap.before:
            return min(floor, gap.before)
        seconds = lead * program.machine.back_time(gap.bytes, program.rules.tier)
        return clock.walk_back(gap.before, seconds, floor)

    swaps = [TensorSwap(gap, back(gap), program.rules.tier) for gap in gaps]
    return swap_moves(within(program.step, swaps, program.machine.capacity))
