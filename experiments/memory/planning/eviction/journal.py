"""What a run in a budget did, written down as it happens, and the plan that does the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.memory.interface import Drop, Lineage, MemoryMove, MemoryPlan, Recompute


@dataclass(frozen=True)
class Use:
    """An op used ``tensors``."""

    tensors: Sequence[int]


@dataclass(frozen=True)
class Departure:
    """``tensor`` left before op ``at``: evicted, or released behind the op before."""

    at: int
    tensor: int


@dataclass(frozen=True)
class Rerun:
    """``ops`` ran again before op ``at``; they read ``reads``, and ``tensors`` were there afterwards."""

    at: int
    ops: tuple[int, ...]
    reads: Sequence[int]
    tensors: Sequence[int]


Event = Use | Departure | Rerun


@dataclass
class Journal:
    """Events in order."""

    lineage: Lineage
    events: list[Event] = field(default_factory=list)

    def moves(self) -> tuple[MemoryMove, ...]:
        """Reruns keep what is used before it leaves again; what nobody needs by then leaves by itself."""
        found = self._of_use()
        last = self.lineage.last_need(MemoryPlan(found)).tolist()
        return tuple(move for move in found if not isinstance(move, Drop) or 2 * move.at <= last[move.tensor])

    def _of_use(self) -> tuple[MemoryMove, ...]:
        """All departures and the reruns of use, from the last event to the first."""
        found: list[MemoryMove | None] = []
        used: set[int] = set()
        departure: dict[int, int] = {}
        for event in reversed(self.events):
            if isinstance(event, Use):
                used.update(event.tensors)
            elif isinstance(event, Departure):
                used.discard(event.tensor)
                departure[event.tensor] = len(found)
                found.append(Drop(event.at, event.tensor))
            else:
                keep = tuple(t for t in event.tensors if t in used)
                for tensor in set(event.tensors) - used:
                    if tensor in departure:
                        found[departure[tensor]] = None
                used.difference_update(keep)
                if keep:
                    used.update(event.reads)
                    found.append(Recompute(event.at, event.ops, keep))
        return tuple(move for move in reversed(found) if move is not None)
