"""``dtr-log``: the operator log that DTR's prototype writes (Kirisame et al., ICLR 2021): JSON instructions,
one a line.

- ``CALL`` runs an operator (``TIME`` in nanoseconds); each result has a ``MEMORY`` and an ``ALIAS``: the
  argument whose memory it shares, -1 for memory of its own.
- ``MUTATE`` changes arguments. It is read as the copy on write that the paper's simulator makes of it: new
  memory of the same size takes the name over, so that what was there before can still be computed again.
- ``CONSTANT`` is there from before and stays: it is persistent here. One that appears after the first op is
  made by an op ``LoadData``, which takes no time and never runs again, and stays to the end.
- ``COPY`` is one more name for a tensor, ``COPY_FROM`` gives an old name to another tensor, ``RELEASE`` lets
  go of a name. A tensor whose last name is let go of is released behind the op that ran last
  (``Step.release``).
- What still has a name at the end is used by one more op, ``outputs``, that takes no time.

Instructions before an ``ANNOTATE`` of ``START`` belong to the warm-up and are passed over. The log has no
FLOPs, shapes or modules. From the first op of a backward pass on, every op counts as backward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.readers.dtr_instructions import (
    Annotate,
    Call,
    Constant,
    Copy,
    Instruction,
    Mutate,
    Release,
    instructions,
)
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Floats, Ops, Step, Tensors

FIRST_LINE = re.compile(rb'\s*\{[^\n]*"INSTRUCTION"\s*:\s*"[A-Z_]+"')
START, BACKWARD = "START", "BACKWARD"
OUTPUTS, LOAD = "outputs", "LoadData"


def _recognizes(head: bytes, name: str) -> bool:
    return FIRST_LINE.match(head) is not None


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    log = _Log()
    for place, instruction in _last_run(data, name):
        log.carry_out(instruction, place)
    log.use_what_is_named()
    if not log.rows:
        raise BadInput("holds no operator", name, "at least one CALL or MUTATE")
    return Reading(_step(name, log, options), _assumptions(log), _warnings(log))


def _last_run(data: bytes, name: str) -> Iterable[tuple[str, Instruction]]:
    """The instructions behind the last START; all of them where there is none."""
    found: list[tuple[str, Instruction]] = []
    for place, instruction in instructions(data, name):
        if instruction == Annotate(START):
            found = []
        else:
            found.append((place, instruction))
    return found


@dataclass(frozen=True)
class _Row:
    """One op: what it reads and writes are numbers of storages."""

    operator: str
    phase: int
    nanoseconds: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    view: bool = False


@dataclass
class _Storage:
    """Memory that one op made, or that was there before; ``names`` that mean it, ``released`` behind that
    op.
    """

    name: str
    bytes: int
    kind: str
    names: int = 1
    released: int = -1


@dataclass
class _Log:
    """What the instructions so far have made; ``storage_of`` says which storage a name means."""

    rows: list[_Row] = field(default_factory=list)
    storages: list[_Storage] = field(default_factory=list)
    storage_of: dict[str, int] = field(default_factory=dict)
    loaded: list[int] = field(default_factory=list)
    backward: bool = False
    strangers: int = 0
    views: int = 0
    changes: int = 0

    def carry_out(self, instruction: Instruction, place: str) -> None:
        """Have ``instruction`` change what is there."""
        match instruction:
            case Constant(name, size):
                self._name(name, self._there(name, size), place)
            case Call():
                self._call(instruction, place)
            case Mutate():
                self._mutate(instruction, place)
            case Copy():
                self._copy(instruction, place)
            case Release(name):
                self._release(name)
            case Annotate(text):
                self.backward |= text == BACKWARD

    def use_what_is_named(self) -> None:
        """The last op: it uses what the program still holds. What was loaded stays until then."""
        held = [n for n, one in enumerate(self.storages) if one.names and one.kind != "buffer"]
        if held:
            self.rows.append(_Row(OUTPUTS, self._phase(OUTPUTS), 0, tuple(held), ()))
        for number in self.loaded:
            self.storages[number].released = len(self.rows) - 1
        for number in set(held).difference(self.loaded):
            if self.storages[number].kind == "temporary":
                self.storages[number].kind = "gradient"

    def _there(self, name: str, size: int) -> int:
        """A constant: persistent before the first op, loaded by an op of its own after it."""
        if not self.rows:
            return self._new(name, size, "buffer")
        number = self._new(name, size, "temporary")
        if self.rows[-1].operator == LOAD:
            last = self.rows.pop()
            self.rows.append(replace(last, writes=(*last.writes, number)))
        else:
            self.rows.append(_Row(LOAD, self._phase(LOAD), 0, (), (number,)))
        self.loaded.append(number)
        return number

    def _call(self, call: Call, place: str) -> None:
        reads = self._meant(call.arguments, place)
        phase = self._phase(call.operator)
        writes = []
        for result in call.results:
            shares = result.alias >= 0
            number = reads[result.alias] if shares else self._add_value(result.name, result.bytes)
            self.storages[number].names += shares
            self._name(result.name, number, place)
            if not shares:
                writes.append(number)
        view = not writes
        self.views += view
        kept = (reads[call.results[0].alias],) if view else tuple(writes)
        self.rows.append(_Row(call.operator, phase, call.nanoseconds, reads, kept, view))

    def _mutate(self, mutate: Mutate, place: str) -> None:
        reads = self._meant(mutate.arguments, place)
        phase = self._phase(mutate.operator)
        fresh = [
            self._add_value(mutate.arguments[at], self.storages[reads[at]].bytes) for at in mutate.changed
        ]
        self.rows.append(_Row(mutate.operator, phase, mutate.nanoseconds, reads, tuple(fresh)))
        self.changes += 1
        for at, number in zip(mutate.changed, fresh, strict=True):
            self._let_go(reads[at])
            self.storage_of[mutate.arguments[at]] = number

    def _copy(self, copy: Copy, place: str) -> None:
        (source,) = self._meant([copy.source], place)
        self.storages[source].names += 1
        if not copy.over:
            self._name(copy.name, source, place)
            return
        (before,) = self._meant([copy.name], place)
        self.storage_of[copy.name] = source
        self._let_go(before)

    def _release(self, name: str) -> None:
        if name in self.storage_of:
            self._let_go(self.storage_of[name])
        else:
            self.strangers += 1

    def _let_go(self, number: int) -> None:
        storage = self.storages[number]
        storage.names -= 1
        if not storage.names:
            storage.released = len(self.rows) - 1

    def _phase(self, operator: str) -> int:
        self.backward |= "backward" in operator
        return PHASES.index("backward" if self.backward else "forward")

    def _add_value(self, name: str, size: int) -> int:
        return self._new(name, size, "temporary" if self.backward else "activation")

    def _new(self, name: str, size: int, kind: str) -> int:
        self.storages.append(_Storage(name, size, kind))
        return len(self.storages) - 1

    def _name(self, name: str, number: int, place: str) -> None:
        if name in self.storage_of:
            raise BadInput(f"{name} is made a second time", place, "a name of its own for each tensor")
        self.storage_of[name] = number

    def _meant(self, names: Sequence[str], place: str) -> tuple[int, ...]:
        unknown = next((name for name in names if name not in self.storage_of), None)
        if unknown is not None:
            raise BadInput(f"{unknown} is used before it is made", place, "a tensor of the log")
        return tuple(self.storage_of[name] for name in names)


def _step(name: str, log: _Log, options: WorkloadOptions) -> Step:
    inputs, outputs = Ragged.of(row.reads for row in log.rows), Ragged.of(row.writes for row in log.rows)
    sizes = np.array([storage.bytes for storage in log.storages], np.int64)
    touched = _bytes_of(sizes, inputs) + _bytes_of(sizes, outputs)
    facts = {"source": "dtr-log", "batch": options.batch, "views": log.views, "copies_on_write": log.changes}
    return Step(
        name,
        _ops(log, touched),
        _tensors(log, sizes),
        inputs,
        outputs,
        "trace",
        "the GPU of the log",
        facts,
        np.array([storage.released for storage in log.storages], np.int64),
    )


def _bytes_of(sizes: np.ndarray[tuple[int], np.dtype[np.int64]], rows: Ragged) -> Floats:
    totals = np.concatenate(([0], np.cumsum(sizes[rows.values])))
    return (totals[rows.offsets[1:]] - totals[rows.offsets[:-1]]).astype(np.float64)


def _ops(log: _Log, touched: Floats) -> Ops:
    rows, count = log.rows, len(log.rows)
    view = np.array([row.view for row in rows], np.bool_)
    return Ops(
        name=tuple(f"{index}: {row.operator}" for index, row in enumerate(rows)),
        target=tuple(row.operator for row in rows),
        module=("",) * count,
        phase=np.array([row.phase for row in rows], np.int8),
        seconds=np.array([row.nanoseconds for row in rows], np.float64) / 1e9,
        flops=np.zeros(count),
        bytes_moved=np.where(view, 0.0, touched),
        workspace=np.zeros(count, np.int64),
        dtype=("uint8",) * count,
        view=view,
        random=np.zeros(count, np.bool_),
    )


def _tensors(log: _Log, sizes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensors:
    rows = log.storages
    return Tensors(
        name=tuple(f"{index}: {storage.name}" for index, storage in enumerate(rows)),
        bytes=sizes,
        dtype=("uint8",) * len(rows),
        shape=tuple((storage.bytes,) for storage in rows),
        kind=np.array([KINDS.index(storage.kind) for storage in rows], np.int8),
        sparsity=np.full(len(rows), np.nan),
    )


def _assumptions(log: _Log) -> tuple[str, ...]:
    told = ["constants never leave"]
    if log.loaded:
        told.append(f"{len(log.loaded)} constants that appear after the first op are loaded then")
    if log.changes:
        told.append(f"{log.changes} ops that change a tensor write a copy of it")
    if log.views:
        told.append(f"{log.views} ops share their argument's memory: views, which no rerun pays for")
    if any(row.operator == OUTPUTS for row in log.rows):
        told.append("what still has a name at the end is used by the op named outputs")
    return tuple(told)


def _warnings(log: _Log) -> tuple[str, ...]:
    told = []
    if log.strangers:
        told.append(f"{log.strangers} releases of names that the log does not make")
    if not log.backward:
        told.append("no backward pass: every op counts as forward")
    return tuple(told)


READER = Reader("dtr-log", "step", "operator log of DTR's prototype (JSON lines)", _recognizes, _read)
