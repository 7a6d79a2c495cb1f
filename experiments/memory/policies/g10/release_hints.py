"""The hints that the G10 release's planner gives in addition to its migrations, and all of them as moves."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.memory.interface import Drop, MemoryMove, Offload, Prefetch
from experiments.memory.planning.g10.load import PlannedLoad
from experiments.memory.planning.g10.migrations import Hint, MigrationPlanner


def announcements(load: PlannedLoad) -> list[Hint]:
    """Return when the local tensors that the load was counted from are allocated and freed.

    They come before all else.
    """
    pairs = zip(load.allocations, load.frees, strict=True)
    return [hint for birth, death in pairs for hint in (Hint(*birth, "allocate"), Hint(*death, "free"))]


def shed(planner: MigrationPlanner) -> list[Hint]:
    """Write out more tensors around the op of the highest load, without a plan for their return."""
    gaps, highest = planner.gaps, planner.highest
    taken = {move.gap for move in planner.moved}
    height, found = int(planner.load[highest]), []
    for gap in planner.priority.by_area():
        if height < 0.9 * planner.rules.target:
            break
        start, end = int(gaps.start[gap]), int(gaps.end[gap])
        if gap not in taken and not gaps.looped[gap] and start <= highest < end:
            found.append(Hint(start, int(gaps.tensor[gap]), "write", "storage"))
            height -= int(gaps.bytes[gap])
    return found


def moves_of(hints: Sequence[Hint], planner: MigrationPlanner) -> tuple[MemoryMove, ...]:
    """Return the hints as moves sorted by op, ties as the planner's sort leaves them.

    A prefetch of what does not exist allocates it.
    """
    return tuple(_move(hint) for hint in planner.priority.sort(hints, [hint.op for hint in hints]))


def _move(hint: Hint) -> MemoryMove:
    if hint.kind == "write":
        return Offload(hint.op, hint.tensor, hint.op - 1, hint.tier)
    return Drop(hint.op, hint.tensor) if hint.kind == "free" else Prefetch(hint.op, hint.tensor)
