"""Tensors that stay in byte-addressable memory beyond the host's: every use takes them where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.memory.interface import InPlace, MemoryMachine, MemoryMove, PlaceTensor
from experiments.memory.planning.locations import access_seconds
from experiments.workloads.step import Step


def uses_in_place(step: Step, machine: MemoryMachine, tensors: Iterable[int]) -> list[MemoryMove]:
    """Return the moves with which ``tensors`` are in remote memory for as long as they exist."""
    by_op: dict[int, list[int]] = defaultdict(list)
    chosen = sorted(tensors)
    for tensor in chosen:
        for op in step.uses[tensor].tolist():
            by_op[op].append(tensor)
    placed: list[MemoryMove] = [PlaceTensor(0, t, "remote") for t in chosen if step.persistent[t]]
    return placed + [
        InPlace(op, tuple(used), _seconds(step, machine, op, used)) for op, used in sorted(by_op.items())
    ]


def _seconds(step: Step, machine: MemoryMachine, op: int, tensors: Sequence[int]) -> float:
    """An op with tensors in remote memory lasts at least as long as that takes to read and write them."""
    return max(
        float(step.ops.seconds[op]), sum(access_in_place(step, machine, op, tensor) for tensor in tensors)
    )


def access_in_place(step: Step, machine: MemoryMachine, op: int, tensor: int) -> float:
    """Return the seconds that remote memory takes to give ``op`` the tensor, or to take it."""
    written = tensor in step.outputs[op]
    return access_seconds(step, machine, op, int(step.tensors.bytes[tensor]), written)
