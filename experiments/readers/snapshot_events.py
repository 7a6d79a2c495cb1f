"""The parts of a CUDA memory snapshot, checked: allocator events with their stacks, segments and their
blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput

MOST_EVENTS, MOST_FRAMES, MOST_DEVICES = 2_000_000, 512, 1024
MOST_BYTES = 2**50
ADDRESSES = 2**64
#: Frames that every allocation has, and that tell nothing.
PLUMBING = (
    "CUDACachingAllocator",
    "c10::",
    "torch::unwind",
    "unwind::",
    "CapturedTraceback",
    "gather_with_cpp",
    "??",
)


#: One object for all events without a stack: stacks are told apart by identity.
_NO_FRAMES: list[Any] = []


@dataclass(frozen=True)
class Event:
    """What an allocator did at one time.

    ``microseconds`` of the day's clock, ``None`` where the file has none; ``free`` bytes of the device at an
    ``oom``.
    """

    action: str
    address: int
    size: int
    where: str
    phase: str
    microseconds: int | None
    category: str
    free: int


@dataclass(frozen=True)
class Block:
    address: int
    size: int
    requested: int
    active: bool
    where: str


@dataclass(frozen=True)
class Segment:
    """What one call of cudaMalloc gave; ``device`` ``None`` where not told."""

    address: int
    size: int
    device: int | None
    blocks: tuple[Block, ...]


def events_of(value: Any, name: str) -> tuple[int, list[Event], int]:
    """The device with most events, its events in order, and how many devices have any; -1 where none has."""
    traces = [
        _rows(trace, f"{name}: device {device}", MOST_EVENTS)
        for device, trace in enumerate(_rows(value, f"{name}: device_traces", MOST_DEVICES))
    ]
    if not any(traces):
        return -1, [], 0
    device = max(range(len(traces)), key=lambda index: len(traces[index]))
    stacks = _Stacks()
    events = [
        _event(row, stacks, f"{name}: device {device}, event {index}")
        for index, row in enumerate(traces[device])
    ]
    return device, events, sum(bool(trace) for trace in traces)


def segments_of(value: Any, name: str) -> list[Segment]:
    rows = _rows(value, f"{name}: segments", MOST_EVENTS)
    blocks = [row.get("blocks") for row in rows if isinstance(row, dict)]
    if sum(len(row) for row in blocks if isinstance(row, list)) > MOST_EVENTS:
        raise BadInput("too many blocks", f"{name}: segments", f"at most {MOST_EVENTS}")
    stacks = _Stacks()
    return [_segment(row, stacks, f"{name}: segment {index}") for index, row in enumerate(rows)]


def _rows(value: Any, where: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise BadInput(f"is {type(value).__name__}", where, f"a list of at most {most}")
    return value


def _dict(value: Any, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"is {type(value).__name__}", where, "a dict")
    return value


def _integer(row: dict[Any, Any], field: str, most: int, where: str, default: int | None = None) -> int:
    value = row.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        shown = value if isinstance(value, int) else type(value).__name__
        raise BadInput(f"{field} = {shown}", where, f"an integer from 0 to {most}")
    return value


def _text(row: dict[Any, Any], field: str, where: str) -> str:
    value = row.get(field, "")
    if not isinstance(value, str):
        raise BadInput(f"{field} is {type(value).__name__}", where, "a text")
    return "".join(c if c.isprintable() else "?" for c in value[:200])


def _event(value: Any, stacks: _Stacks, where: str) -> Event:
    row = _dict(value, where)
    action = _text(row, "action", where)
    told = action in ("oom", "snapshot")
    place, phase = stacks.read(row.get("frames", _NO_FRAMES), where)
    return Event(
        action,
        _integer(row, "addr", ADDRESSES, where, 0 if told else None),
        _integer(row, "size", MOST_BYTES, where, 0 if told else None),
        place,
        phase,
        _integer(row, "time_us", 2**60, where) if "time_us" in row else None,
        _text(row, "category", where),
        _integer(row, "device_free", MOST_BYTES, where, 0),
    )


def _segment(value: Any, stacks: _Stacks, where: str) -> Segment:
    row = _dict(value, where)
    device = _integer(row, "device", MOST_DEVICES, where) if "device" in row else None
    address = start = _integer(row, "address", ADDRESSES, where)
    blocks = []
    for index, entry in enumerate(_rows(row.get("blocks", []), f"{where}: blocks", MOST_EVENTS)):
        block = _block(entry, address, stacks, f"{where}, block {index}")
        address = block.address + block.size
        blocks.append(block)
    return Segment(start, _integer(row, "total_size", MOST_BYTES, where), device, tuple(blocks))


def _block(value: Any, address: int, stacks: _Stacks, where: str) -> Block:
    """A block; older snapshots give no address: blocks follow each other."""
    row = _dict(value, where)
    size = _integer(row, "size", MOST_BYTES, where)
    place, _ = stacks.read(row.get("frames", _NO_FRAMES), where)
    return Block(
        _integer(row, "address", ADDRESSES, where, address),
        size,
        _integer(row, "requested_size", MOST_BYTES, where, size),
        _text(row, "state", where).startswith("active"),
        place,
    )


@dataclass(frozen=True)
class _Frame:
    """``shown`` is empty for a frame of the allocator's own; ``phase`` for one that tells nothing of it."""

    shown: str
    phase: str


class _Stacks:
    """Reads stacks. Frames, and whole stacks, are shared by many events, and read once."""

    def __init__(self) -> None:
        self._known: dict[int, _Frame] = {}
        self._stacks: dict[int, tuple[str, str]] = {}

    def read(self, value: Any, where: str) -> tuple[str, str]:
        """``function (file:line)`` of the innermost telling frame, and the phase that the frames speak of."""
        if id(value) in self._stacks:
            return self._stacks[id(value)]
        rows = _rows(value, f"{where}: frames", 2**20)[:MOST_FRAMES]
        frames = [self._known.get(id(row)) or self._frame(row, where) for row in rows]
        phases = {frame.phase for frame in frames}
        phase = next((phase for phase in ("optimizer", "backward") if phase in phases), "forward")
        self._stacks[id(value)] = next((frame.shown for frame in frames if frame.shown), "unknown"), phase
        return self._stacks[id(value)]

    def _frame(self, value: Any, where: str) -> _Frame:
        row = _dict(value, where)
        text, file = _text(row, "name", where), _text(row, "filename", where)
        line = _integer(row, "line", 2**31, where, 0)
        plumbing = any(word in text or word in file for word in PLUMBING)
        shown = "" if plumbing else f"{text} ({file.rsplit('/', 1)[-1]}:{line})"
        self._known[id(value)] = _Frame(shown, _phase(f"{text} {file}"))
        return self._known[id(value)]


def _phase(frame: str) -> str:
    if "torch/optim/" in frame or "Optimizer" in frame:
        return "optimizer"
    return "backward" if "autograd::Engine" in frame or "_engine_run_backward" in frame else ""
