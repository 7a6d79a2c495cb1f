"""The plan of a memory policy: what happens to which tensor before which op. Plain frozen data with a JSON form.

**When.** ``at`` is an op index: the move is carried out when op ``at`` is about to begin, after op ``at - 1`` has
ended and freed what died with it; ``at == len(ops)`` is after the last op. Moves with equal ``at`` are carried out
in the order listed. Nothing else is timed: how long a move takes and what waits for it is the hardware's affair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.core.errors import BadInput

DEVICE = "device"
#: Where a tensor's content can lie beside the device: host memory, or storage (SSD, persistent memory).
TIERS = ("host", "storage")


@dataclass(frozen=True)
class Move:
    """One decision about one tensor (or op), see the subclasses."""

    action: ClassVar[str] = ""
    at: int

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"action": self.action, **plain}


@dataclass(frozen=True)
class Offload(Move):
    """Copy ``tensor`` to ``tier``; its device bytes are free once the copy has ended and op ``until`` too.

    ``until`` is the last op that may still use the device copy (reads only); at least ``at - 1``. The copy runs
    beside the ops from ``at`` on. ``ratio`` >= 1 shrinks what crosses the link and lies on the tier (a compressing
    copy engine).
    """

    action: ClassVar[str] = "offload"
    tensor: int
    until: int
    tier: str = "host"
    ratio: float = 1.0


@dataclass(frozen=True)
class Prefetch(Move):
    """Bring ``tensor`` back to the device; device bytes are taken when the copy is admitted, see the simulator."""

    action: ClassVar[str] = "prefetch"
    tensor: int


@dataclass(frozen=True)
class Wait(Move):
    """Compute stands still until the copy of ``tensor`` that is under way, out or in, has ended.

    A prefetch that has found no space yet is not under way.
    """

    action: ClassVar[str] = "wait"
    tensor: int


@dataclass(frozen=True)
class Drop(Move):
    """Discard ``tensor`` at once: to be recomputed, or never used again."""

    action: ClassVar[str] = "drop"
    tensor: int


@dataclass(frozen=True)
class Recompute(Move):
    """Run ``ops`` (indices of ops that ran before, ascending) again so that the dropped tensors ``keep`` exist.

    Other outputs of these ops are freed after their last use within the list. An output that is resident already
    is not replaced: its second copy lives only while its op runs.
    """

    action: ClassVar[str] = "recompute"
    ops: tuple[int, ...]
    keep: tuple[int, ...]


@dataclass(frozen=True)
class Compress(Move):
    """Encode ``tensor`` on the device to ``bytes / ratio`` in ``seconds`` of compute; unusable until decompressed."""

    action: ClassVar[str] = "compress"
    tensor: int
    ratio: float
    seconds: float


@dataclass(frozen=True)
class Decompress(Move):
    """Decode ``tensor`` on the device to full size in ``seconds`` of compute."""

    action: ClassVar[str] = "decompress"
    tensor: int
    seconds: float


@dataclass(frozen=True)
class Place(Move):
    """The persistent ``tensor`` lies on ``tier`` when the step begins, and again when it ends. ``at`` is 0."""

    action: ClassVar[str] = "place"
    tensor: int
    tier: str = "host"


@dataclass(frozen=True)
class Algorithm(Move):
    """Op ``at`` runs in ``seconds`` with ``workspace`` bytes: another kernel than the step was timed with."""

    action: ClassVar[str] = "algorithm"
    seconds: float
    workspace: int


MOVES: Mapping[str, type[Move]] = {
    kind.action: kind
    for kind in (Offload, Prefetch, Wait, Drop, Recompute, Compress, Decompress, Place, Algorithm)
}


@dataclass(frozen=True)
class MemoryPlan:
    """``moves`` in the order of ``at`` (sorted, stable, on construction).

    ``reactive``: the runner asks the policy's ``evict`` when an allocation does not fit,
    and fetches on demand what an op lacks. ``notes`` is what the policy wants to be read beside the plan (JSON).
    """

    moves: tuple[Move, ...] = ()
    reactive: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", tuple(sorted(self.moves, key=lambda move: move.at)))

    def to_json(self) -> dict[str, Any]:
        return {
            "moves": [move.to_json() for move in self.moves],
            "reactive": self.reactive,
            "notes": dict(self.notes),
        }


def load_plan(data: Mapping[str, Any]) -> MemoryPlan:
    """The plan that ``to_json`` wrote; ``BadInput`` names the move and the field."""
    unknown = set(data) - {"moves", "reactive", "notes"}
    if unknown:
        raise BadInput(f"unknown field {sorted(unknown)[0]!r}", "plan", "moves, reactive, notes")
    moves = tuple(_load_move(row, f"plan.moves[{i}]") for i, row in enumerate(data.get("moves", ())))
    return MemoryPlan(moves, data.get("reactive", False), data.get("notes", {}))


def _load_move(row: Mapping[str, Any], where: str) -> Move:
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in row.items()}
    action = str(values.pop("action", None))
    if action not in MOVES:
        raise BadInput(f"unknown action {action!r}", where, "one of " + ", ".join(MOVES))
    try:
        return MOVES[action](**values)
    except TypeError as error:
        raise BadInput(str(error).replace("__init__()", ""), where, f"the fields of {action}") from None
