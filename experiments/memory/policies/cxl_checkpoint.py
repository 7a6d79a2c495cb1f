"""Failure-tolerant training in CXL memory (Kwon et al., IEEE Micro 2023, "TrainingCXL"): tables in place,
batch-aware logs.

Embedding tables are resident in persistent memory behind a coherent link and are read and updated in place,
by rows: what a batch looks up it also updates, so its bytes are those of the looked-up rows, whatever a
framework's dense gradient says. Before the rows are overwritten their old content goes to a log on the same
memory, and the other parameters go to a log of their own. Levels, as in the paper: ``demand`` (D) writes the
log when the update is about to begin; ``background`` (B) begins with the batch, whose rows are known, and has
the passes to hide it; ``full`` also looks up the next batch's rows concurrently with the update, since the
update can be added afterwards, and spreads the other parameters' checkpoint over ``mlp_every`` batches. Left
open by the paper: an op that uses a whole table otherwise (a tied output layer) streams all of it. Not
modeled: the energy, and the software path of the systems that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    InPlace,
    Log,
    MemoryMachine,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    PlaceTensor,
    WaitForCopy,
)
from experiments.memory.planning.host_update import update_of
from experiments.workloads.step import KINDS, Step

PARAMETER, STATE = KINDS.index("parameter"), KINDS.index("optimizer_state")


@dataclass(frozen=True)
class Tables:
    """The embedding tables of a step.

    ``rows`` are the bytes of each table that one batch looks up; ``whole`` everything as large as a table
    that belongs to it (its gradient, its optimizer state), by tensor, with the table.
    """

    rows: dict[int, int]
    whole: dict[int, int]


def tables_of(step: Step) -> Tables:
    rows: dict[int, int] = {}
    for op, target in enumerate(step.ops.target):
        if "embedding" in target and "backward" not in target:
            for table in step.inputs[op].tolist():
                if step.tensors.kind[table] == PARAMETER:
                    looked_up = int(step.tensors.bytes[step.outputs[op]].sum())
                    rows[table] = min(rows.get(table, 0) + looked_up, int(step.tensors.bytes[table]))
    whole = {table: table for table in rows}
    update = update_of(step)
    for op in update.ops if update else ():
        touched = step.touched[op].tolist()
        belonging = [whole[tensor] for tensor in touched if tensor in whole]
        for tensor in touched if belonging else ():
            if step.tensors.bytes[tensor] == step.tensors.bytes[belonging[0]]:
                whole.setdefault(tensor, belonging[0])
    return Tables(rows, whole)


def seconds_in_place(step: Step, op: int, tables: Tables, machine: MemoryMachine) -> float:
    """Return the time of an op on tables where they are resident.

    It takes the rows that it reads and writes, or all of them for other ops.
    """
    by_rows = "embedding" in step.ops.target[op] or step.phase_of(op) == "optimizer"
    read = written = 0.0
    for tensor in step.inputs[op].tolist():
        if tensor in tables.whole:
            read += tables.rows[tables.whole[tensor]] if by_rows else int(step.tensors.bytes[tensor])
    for tensor in step.outputs[op].tolist():
        if tensor in tables.whole:
            written += tables.rows[tables.whole[tensor]] if by_rows else int(step.tensors.bytes[tensor])
    moved = machine.back_time(read, "remote") if read else 0.0
    moved += machine.out_time(written, "remote") if written else 0.0
    return max(moved, 0.0 if by_rows else float(step.ops.seconds[op]))


@dataclass(frozen=True)
class CxlCheckpoint(MemoryPolicy):
    """Embedding tables in place in persistent memory, with undo logs.

    The logs have the rows that a batch will overwrite.
    """

    name: ClassVar[str] = "cxl_checkpoint"
    mechanism: ClassVar[str] = "other memory"

    level: str = knob(
        "full",
        "none: no log; demand: the log before the update; background: from the batch's start; full: relaxed "
        "as well",
        choices=("none", "demand", "background", "full"),
    )
    mlp_every: int = knob(
        100, "batches over which a checkpoint of the other parameters is spread (full)", low=1, high=10**6
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if device.machine.remote_bytes <= 0:
            return MemoryPlan(
                notes={"tables": 0, "reason": "the node has no memory beyond the host's (remote)"}
            )
        tables = tables_of(step)
        moves: list[MemoryMove] = [
            PlaceTensor(0, t, "remote") for t in sorted(tables.whole) if step.persistent[t]
        ]
        lookups = update = 0.0
        in_place: list[InPlace] = []
        for op in range(len(step.ops)):
            used = tuple(t for t in step.touched[op].tolist() if t in tables.whole)
            if used:
                view = bool(step.ops.view[op])
                seconds = 0.0 if view else seconds_in_place(step, op, tables, device.machine)
                in_place.append(InPlace(op, used, seconds))
                lookups += seconds if step.phase_of(op) == "forward" else 0.0
                update += seconds if step.phase_of(op) == "optimizer" else 0.0
        hidden = min(lookups, update) if self.level == "full" else 0.0
        moves += [shortened(move, step, 1 - hidden / lookups) if hidden else move for move in in_place]
        moves += self.logs(step, tables)
        rows = sum(tables.rows.values())
        return MemoryPlan(
            tuple(moves), notes={"tables": len(tables.rows), "rows_bytes": rows, "level": self.level}
        )

    def logs(self, step: Step, tables: Tables) -> Iterator[MemoryMove]:
        """Return the undo log of each table, the log of every other parameter, and the waits for them.

        The waits are before they are overwritten.
        """
        update = update_of(step)
        if self.level == "none" or update is None:
            return
        share = self.mlp_every if self.level == "full" else 1
        for tensor in update.parameters:
            writes = [op for op in update.ops if tensor in step.outputs[op]]
            at = 0 if self.level != "demand" else min(writes)
            size = (
                tables.rows[tensor] if tensor in tables.rows else -(-int(step.tensors.bytes[tensor]) // share)
            )
            yield Log(at, tensor, size)
            yield WaitForCopy(min(writes), tensor)


def shortened(move: InPlace, step: Step, share: float) -> InPlace:
    """A lookup of which all but ``share`` was done concurrently with the update before."""
    forward = step.phase_of(move.at) == "forward"
    return InPlace(move.at, move.tensors, move.seconds * share if forward else move.seconds, move.tier)
