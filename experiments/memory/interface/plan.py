"""The plan of a memory policy: what happens to which tensor before which op. Plain frozen data with a JSON
form.

**When.** ``at`` is an op index: the move is carried out when op ``at`` is about to begin, after op ``at - 1``
has ended and freed what died with it; ``at == len(ops)`` is after the last op. Moves with equal ``at`` are
carried out in the order listed. Nothing else is timed: how long a move takes and what waits for it is the
hardware's affair.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from experiments.core.errors import BadInput
from experiments.core.policy import LAWS
from experiments.memory.interface.record import frozen, load_record
from experiments.memory.interface.space import CountedBytes, Space
from experiments.memory.interface.space_json import FORMER, load_space, space_json

DEVICE = "device"
#: Where a tensor's content can be resident off the device: host memory, storage (SSD), or byte-addressable
#: memory beyond the host's (persistent memory, CXL).
TIERS = ("host", "storage", "remote")
#: What contract tests ask of every plan: the laws of every family, that its time is the ops' and that of
#: named causes, that what leaves is what its moves send, and that faster links never make it slower.
PLAN_LAWS = (*LAWS, "causes", "sent", "links")
OTHER_TIMES = "it gives an op another time than the step's own"


@dataclass(frozen=True)
class MemoryMove:
    """One decision about one tensor (or op), of which each subclass is a kind."""

    action: ClassVar[str] = ""
    at: int

    @property
    def exceptions(self) -> Mapping[str, str]:
        """The laws (``PLAN_LAWS``) that do not apply to a plan with this move, each with the reason."""
        return {"closed_form": "it moves or changes something even where everything fits"}

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"action": self.action, **plain}


@dataclass(frozen=True)
class Offload(MemoryMove):
    """Copy ``tensor`` to ``tier``; its device bytes are free once the copy has ended and op ``until`` too.

    ``until`` is the last op that may still use the device copy (reads only); at least ``at - 1``. The copy
    runs concurrently with the ops from ``at`` on. ``ratio`` >= 1 shrinks what crosses the link and is stored
    on the tier (a compressing copy engine).
    """

    action: ClassVar[str] = "offload"
    tensor: int
    until: int
    tier: str = "host"
    ratio: float = 1.0


@dataclass(frozen=True)
class Prefetch(MemoryMove):
    """Bring ``tensor`` back to the device.

    Device bytes are taken when the copy is admitted, see the simulator.

    ``keep``: the copy on its tier stays, and takes its bytes there, until the tensor is written; an
    ``Offload`` to the same tier then moves nothing.
    """

    action: ClassVar[str] = "prefetch"
    tensor: int
    keep: bool = False

    @property
    def exceptions(self) -> Mapping[str, str]:
        own = {"sent": "an offload of what its tier still holds moves nothing"} if self.keep else {}
        return {**super().exceptions, **own}


@dataclass(frozen=True)
class WaitForCopy(MemoryMove):
    """Stall compute until the copy of ``tensor`` in flight, out or in, has ended.

    A prefetch that has found no space yet is not in flight; after the last op, where nothing else asks for
    space, it takes what there is first. For what an op on the host writes it is that op that is waited for.
    """

    action: ClassVar[str] = "wait"
    tensor: int


@dataclass(frozen=True)
class Drop(MemoryMove):
    """Discard ``tensor`` at once: to be recomputed, or never used again."""

    action: ClassVar[str] = "drop"
    tensor: int


@dataclass(frozen=True)
class Recompute(MemoryMove):
    """Run ``ops`` again so that the dropped tensors ``keep`` exist.

    ``ops`` are indices of ops that ran before, ascending.

    Other outputs of these ops are freed after their last use within the list. An output that is resident
    already is not replaced: its second copy lives only while its op runs.
    """

    action: ClassVar[str] = "recompute"
    ops: tuple[int, ...]
    keep: tuple[int, ...]


@dataclass(frozen=True)
class Compress(MemoryMove):
    """Encode ``tensor`` on the device to ``bytes / ratio`` in ``seconds`` of compute.

    It is unusable until it is decompressed.
    """

    action: ClassVar[str] = "compress"
    tensor: int
    ratio: float
    seconds: float

    @property
    def exceptions(self) -> Mapping[str, str]:
        return {**super().exceptions, "sent": "what leaves is the packed tensor"}


@dataclass(frozen=True)
class Decompress(MemoryMove):
    """Decode ``tensor`` on the device to full size in ``seconds`` of compute."""

    action: ClassVar[str] = "decompress"
    tensor: int
    seconds: float


@dataclass(frozen=True)
class PlaceTensor(MemoryMove):
    """Have the persistent ``tensor`` resident on ``tier`` when the step begins, and when it ends.

    ``at`` is 0. With ``copy`` it is on the device then, and ``tier`` has a copy that is as good, which stays
    as after a ``Prefetch`` with ``keep``.
    """

    action: ClassVar[str] = "place"
    tensor: int
    tier: str = "host"
    copy: bool = False


@dataclass(frozen=True)
class Algorithm(MemoryMove):
    """Run op ``at`` in ``seconds`` with ``workspace`` bytes.

    It is another kernel than the step was timed with.
    """

    action: ClassVar[str] = "algorithm"
    seconds: float
    workspace: int

    @property
    def exceptions(self) -> Mapping[str, str]:
        return {**super().exceptions, "causes": OTHER_TIMES}


@dataclass(frozen=True)
class Log(MemoryMove):
    """Write ``bytes`` of ``tensor`` to a log on ``tier``, overlapped with compute.

    These are bytes that will be overwritten, or a checkpoint.

    The tensor stays where it is; what is resident on ``tier`` itself does not cross the host link. A
    ``WaitForCopy`` for the tensor stalls until the log is complete. The log's space is taken until the step
    ends.
    """

    action: ClassVar[str] = "log"
    tensor: int
    bytes: int
    tier: str = "remote"

    @property
    def exceptions(self) -> Mapping[str, str]:
        return {**super().exceptions, "sent": "what leaves is a log next to the tensor"}


@dataclass(frozen=True)
class InPlace(MemoryMove):
    """Let op ``at`` use ``tensors`` where they are resident on their byte-addressable tier.

    It then takes ``seconds``.

    Those of them that the op produces are made on ``tier``.
    """

    action: ClassVar[str] = "in_place"
    tensors: tuple[int, ...]
    seconds: float
    tier: str = "remote"

    @property
    def exceptions(self) -> Mapping[str, str]:
        return {**super().exceptions, "causes": OTHER_TIMES}


@dataclass(frozen=True)
class OnHost(MemoryMove):
    """Run op ``at`` on the host's processor in ``seconds``, concurrent with the device's compute.

    It begins when every tensor it reads has a copy on the host and the processor is free; what it writes is
    then resident on the host (device copies are void). What the device needs of it comes back by
    ``Prefetch``. Its workspace is host memory. A tensor has a copy there once it was offloaded to the host,
    placed there or made there, and while it is on the device after a ``Prefetch`` with ``keep``. What is
    resident on ``through`` is streamed from there and back in the same ``seconds``, and stays there.

    With ``late`` what it writes comes into force one step later: until then a ``Prefetch`` brings what the
    same op wrote a step before, whose bytes the host keeps next to the new ones (the delayed update of
    ZeRO-Offload). What is computed is then another thing than without.
    """

    action: ClassVar[str] = "on_host"
    seconds: float
    through: str = "host"
    late: bool = False

    @property
    def exceptions(self) -> Mapping[str, str]:
        return {**super().exceptions, "causes": OTHER_TIMES}


MOVES: Mapping[str, type[MemoryMove]] = {
    kind.action: kind
    for kind in (
        Offload,
        Prefetch,
        WaitForCopy,
        Drop,
        Recompute,
        Compress,
        Decompress,
        PlaceTensor,
        Algorithm,
        Log,
        InPlace,
        OnHost,
    )
}


@dataclass(frozen=True)
class MemoryPlan:
    """The moves of one step, and how the device is run with them: what a memory policy returns.

    ``moves`` are in the order of ``at`` (sorted, stable, on construction).

    ``reactive``: the runner asks the policy's ``evict`` when an allocation does not fit, and fetches on
    demand what an op lacks. ``notes`` is what the policy wants to be read with the plan (JSON).
    ``splits`` > 1 cuts the batch into that many micro-batches and ``order`` (a permutation of the ops,
    empty: as they are) reorders the result; each of ``overlays`` lets a new tensor take over the memory
    of one that dies when it is made: (new, old); the in-place ops of ``out_of_place`` (indices before
    ``order``) write new tensors instead. Ops and tensors of the moves are those of the step so
    transformed, see ``transform.transformed``. ``space`` says how the device's memory is managed: bytes
    counted, addresses from a pool, a cache of pages, or the rules of a published release instead of the
    simulator's own.
    """

    moves: tuple[MemoryMove, ...] = ()
    reactive: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    splits: int = 1
    order: tuple[int, ...] = ()
    overlays: tuple[tuple[int, int], ...] = ()
    out_of_place: tuple[int, ...] = ()
    space: Space = field(default_factory=CountedBytes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", tuple(sorted(self.moves, key=lambda move: move.at)))

    @property
    def exceptions(self) -> Mapping[str, str]:
        """The laws that do not apply to this plan or to a part of it, each with the reason.

        They are of ``PLAN_LAWS``.
        """
        reasons = dict(self.space.exceptions)
        for move in self.moves:
            reasons |= move.exceptions
        if self.reactive:
            reasons["sent"] = "what leaves is decided while it runs"
        return reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain data; fields at their defaults are left out, but for the first three."""
        data: dict[str, Any] = {
            "moves": [move.to_json() for move in self.moves],
            "reactive": self.reactive,
            "notes": dict(self.notes),
        }
        if self.splits != 1:
            data["splits"] = self.splits
        if self.order:
            data["order"] = list(self.order)
        if self.overlays:
            data["overlays"] = [list(pair) for pair in self.overlays]
        if self.out_of_place:
            data["out_of_place"] = list(self.out_of_place)
        if self.space != CountedBytes():
            data["space"] = space_json(self.space)
        return data


def load_plan(data: Mapping[str, Any]) -> MemoryPlan:
    """Return the plan that ``to_json`` wrote, now or before; ``BadInput`` names the move and the field."""
    known = [f.name for f in dataclasses.fields(MemoryPlan)]
    unknown = set(data) - {*known, *FORMER}
    if unknown:
        raise BadInput(f"unknown field {sorted(unknown)[0]!r}", "plan", ", ".join(known))
    moves = tuple(_load_move(row, f"plan.moves[{i}]") for i, row in enumerate(data.get("moves", ())))
    values = {name: data[name] for name in ("reactive", "notes", "splits") if name in data}
    return MemoryPlan(
        moves,
        order=tuple(data.get("order", ())),
        overlays=frozen(data.get("overlays", ())),
        out_of_place=tuple(data.get("out_of_place", ())),
        space=load_space(data),
        **values,
    )


def _load_move(row: Mapping[str, Any], where: str) -> MemoryMove:
    values = dict(row)
    action = str(values.pop("action", None))
    if action not in MOVES:
        raise BadInput(f"unknown action {action!r}", where, "one of " + ", ".join(MOVES))
    return load_record(MOVES[action], values, where)
