"""From a solved location program to moves that carry it out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from experiments.memory.interface import InPlace, MemoryMove, Offload, PlaceTensor, Prefetch, WaitForCopy
from experiments.memory.planning.locations import BETWEEN, LocationProgram, Stretch, access_seconds
from experiments.memory.planning.milp import MixedIntegerSolution
from experiments.memory.planning.swaps import Gap
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: At one op: where the step begins, waits for what ran overlapped with the op before, copies between ops,
#: copies overlapped with the op.
START, ENDED, BETWEEN_OPS, OVERLAPPED = range(4)
Turn = tuple[int, int, MemoryMove]


def moves_of(program: LocationProgram, solution: MixedIntegerSolution) -> tuple[MemoryMove, ...]:
    """Return the moves of a solution, waited for as the program counts.

    Copies between ops are waited for before the next op, those overlapped with an op when it has ended.

    A copy on the tier is kept while a later one of the same tensor could use it.
    """
    tier = program.rules.tier
    turns: list[Turn] = []
    again = last_departures(program, solution)
    for stretch in program.stretches:
        gap = stretch.gap
        if gap.wraps and not solution.chosen(stretch.here):
            turns.append((0, START, PlaceTensor(0, gap.tensor, tier)))
        turns += _departure(stretch, solution, tier)
        turns += _return(stretch, solution, keep=again.get(gap.tensor, -1) >= gap.before)
    turns += [(move.at, START, move) for move in _uses_elsewhere(program, solution)]
    return tuple(move for _, _, move in sorted(turns, key=lambda turn: turn[:2]))


def last_departures(program: LocationProgram, solution: MixedIntegerSolution) -> dict[int, int]:
    """After which use each tensor leaves for the last time in the step."""
    last: dict[int, int] = {}
    for stretch in program.stretches:
        if _place(stretch.out, solution) is not None:
            last[stretch.gap.tensor] = max(last.get(stretch.gap.tensor, -1), stretch.gap.after)
    return last


def _place(copies: Mapping[int, int], solution: MixedIntegerSolution) -> int | None:
    return next((op for op, copy in copies.items() if solution.chosen(copy)), None)


def _departure(stretch: Stretch, solution: MixedIntegerSolution, tier: str) -> list[Turn]:
    gap, op = stretch.gap, _place(stretch.out, solution)
    if op is None:
        return []
    if op == BETWEEN:
        leave = gap.after + 1
        offload = Offload(leave, gap.tensor, gap.after, tier)
        return [(leave, BETWEEN_OPS, offload), (leave, BETWEEN_OPS, WaitForCopy(leave, gap.tensor))]
    offload = Offload(op, gap.tensor, op - 1, tier)
    return [(op, OVERLAPPED, offload), (op + 1, ENDED, WaitForCopy(op + 1, gap.tensor))]


def _return(stretch: Stretch, solution: MixedIntegerSolution, keep: bool) -> list[Turn]:
    gap, op = stretch.gap, _place(stretch.back, solution)
    if op is None:
        return []
    if op == BETWEEN:
        return [(gap.before, BETWEEN_OPS, Prefetch(gap.before, gap.tensor, keep))]
    wait = (op + 1, ENDED, WaitForCopy(op + 1, gap.tensor))
    return [(op, OVERLAPPED, Prefetch(op, gap.tensor, keep)), wait]


def _uses_elsewhere(program: LocationProgram, solution: MixedIntegerSolution) -> list[MemoryMove]:
    """Ops that use tensors where they are resident, and how long they take."""
    if not program.rules.in_place:
        return []
    away: dict[int, list[int]] = defaultdict(list)
    for tensor, uses in program.here.items():
        for op, here in uses.items():
            if not solution.chosen(here):
                away[op].append(tensor)
    return [
        InPlace(op, tuple(sorted(t)), _lasting(program, op, t), program.rules.tier) for op, t in away.items()
    ]


def _lasting(program: LocationProgram, op: int, tensors: list[int]) -> float:
    step, sizes = program.step, program.step.tensors.bytes
    access = [
        access_seconds(step, program.machine, op, int(sizes[t]), t in program.writes[op]) for t in tensors
    ]
    return max(float(program.step.ops.seconds[op]), sum(access))


def absent_gaps(program: LocationProgram, solution: MixedIntegerSolution) -> list[Gap]:
    """The gaps for which the solution has a tensor away from the device, in the program's order."""
    return [stretch.gap for stretch in program.stretches if not solution.chosen(stretch.here)]


def absent_ops(program: LocationProgram, solution: MixedIntegerSolution) -> dict[int, list[tuple[int, int]]]:
    """For each tensor the ops ``[start, end)`` for which it is not on the device."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in program.stretches:
        gap, out, back = stretch.gap, _place(stretch.out, solution), _place(stretch.back, solution)
        if solution.chosen(stretch.here):
            continue
        away = gap.after + 1 if out in (None, BETWEEN) else out + 1
        home = gap.before if back in (None, BETWEEN) else back
        found[gap.tensor] += [(away, len(program.step.ops)), (0, home)] if gap.wraps else [(away, home)]
    for tensor, uses in program.here.items():
        found[tensor] += [(op, op + 1) for op, here in uses.items() if not solution.chosen(here)]
    return {tensor: sorted(spans) for tensor, spans in found.items() if spans}


def load_of(step: Step, absent: Mapping[int, Sequence[tuple[int, int]]]) -> Ints:
    """Bytes on the device while each op runs."""
    load = step.live_bytes.copy()
    for tensor, spans in absent.items():
        for start, end in spans:
            load[start:end] -= step.tensors.bytes[tensor]
    return load
