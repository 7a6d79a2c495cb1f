"""FlashNeuron's plan for a device as it is: offsets at both ends, prefetch by counting bytes, optional
compression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.core.errors import Infeasible
from experiments.memory.interface import (
    DeviceView,
    MemoryMachine,
    MemoryMove,
    MemoryPlan,
    MemoryPool,
    Offload,
    Prefetch,
    WaitForCopy,
)
from experiments.memory.interface.activations import last_forward_op
from experiments.memory.interface.paged import PAGE, PagedStep
from experiments.memory.policies.flashneuron.forward_offload import Write, bytes_for_saved, candidates, choose
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Step

#: The shares of the capacity that are planned for: the next where the allocator finds no hole.
SHARES = (1.0, 0.99, 0.97, 0.95, 0.92, 0.88)


def offload_to_storage(step: Step, device: DeviceView, compress: bool) -> MemoryPlan:
    """The plan for the largest share of the capacity at which the device's memory can be given out."""
    plan = MemoryPlan()
    if step.live_peak <= device.capacity:
        return plan
    for share in SHARES:
        try:
            plan = _plan(step, device.machine, int(share * device.capacity), compress)
        except Infeasible:
            if share == SHARES[0]:
                raise
            return plan
        if device.estimate(plan).fits:
            return plan
    return plan


@dataclass(frozen=True)
class Choice:
    """What leaves, the bytes of the candidates that stay, and by how much each that leaves shrinks."""

    writes: tuple[Write, ...]
    rest: int
    ratios: Mapping[int, float]


def _plan(step: Step, machine: MemoryMachine, capacity: int, compress: bool) -> MemoryPlan:
    """Phase 1, and phase 2 where ``compress`` allows it and writing takes longer than the forward pass."""
    paged = PagedStep(step)
    line = bytes_for_saved(paged, capacity)
    order = candidates(paged)
    chosen = _choice(paged, order, line, dict.fromkeys(order, 1.0))
    forward = float(step.ops.seconds[: last_forward_op(step) + 1].sum())
    if compress and _write_time(paged, chosen, machine) > forward:
        shrunk = {tensor: compression(step, tensor) for tensor in order}
        second = _choice(paged, sorted(order, key=lambda tensor: -shrunk[tensor]), line, shrunk)
        chosen = min((chosen, second), key=lambda choice: _write_time(paged, choice, machine))
    notes = {"line": line, "candidates": len(order), "chosen": len(chosen.writes), "rest": chosen.rest}
    pool = MemoryPool("two_ended", PAGE, tuple(sorted(chosen.ratios)))
    return MemoryPlan(_moves(paged, chosen, capacity), notes=notes, space=pool)


def _choice(paged: PagedStep, order: Sequence[int], line: int, ratios: Mapping[int, float]) -> Choice:
    writes, rest = choose(paged, order, line)
    return Choice(tuple(writes), rest, {write.tensor: ratios[write.tensor] for write in writes})


def _write_time(paged: PagedStep, choice: Choice, machine: MemoryMachine) -> float:
    return sum(machine.out_time(paged.bytes[t] / ratio, "storage") for t, ratio in choice.ratios.items())


def compression(step: Step, tensor: int) -> float:
    """Return the factor by which values are smaller when compressed.

    16-bit values, in sparse rows with 16-bit columns where the zeros known make that pay.
    """
    words = {"float64": 8, "float32": 4}.get(step.tensors.dtype[tensor], 2)
    sparsity = float(step.tensors.sparsity[tensor])
    dense = words / 2
    if np.isnan(sparsity) or sparsity >= 1:
        return dense
    return max(dense, words / (4 * (1 - sparsity)))


def _moves(paged: PagedStep, choice: Choice, capacity: int) -> tuple[MemoryMove, ...]:
    loss, writes = last_forward_op(paged.step), choice.writes
    out: list[MemoryMove] = [
        Offload(w.start, w.tensor, w.start - 1, "storage", choice.ratios[w.tensor]) for w in writes
    ]
    drain: list[MemoryMove] = [WaitForCopy(loss + 1, write.tensor) for write in writes]
    return (*out, *drain, *_prefetches(paged, writes, capacity))


def _prefetches(paged: PagedStep, writes: Sequence[Write], capacity: int) -> list[MemoryMove]:
    """From the loss on, after each op: what the coming ops use next comes while it fits next to the largest
    op.
    """
    loss, ops = last_forward_op(paged.step), paged.ops
    away = {write.tensor for write in writes}
    load = _load_without(paged, writes)
    coming = [(op, t) for op in range(loss + 1, ops) for t in paged.touched[op] if t in away]
    coming = list({tensor: (op, tensor) for op, tensor in reversed(coming)}.values())[::-1]
    spare = capacity - _largest_local(paged)
    moves: list[MemoryMove] = []
    at = loss + 1
    for op, tensor in coming:
        size = paged.bytes[tensor]
        while at < op and load[at:op].max(initial=0) + size > spare:
            at += 1
        moves.append(Prefetch(min(at, op), tensor))
        load[min(at, op) : op] += size
    return moves


def _load_without(paged: PagedStep, writes: Sequence[Write]) -> Ints:
    """Bytes by op when each write's tensor is away until its first use after the loss."""
    load = paged.step.live_bytes.copy()
    loss = last_forward_op(paged.step)
    for write in writes:
        back = next(op for op in paged.uses[write.tensor] if op > loss)
        load[write.start : back] -= paged.bytes[write.tensor]
    return load


def _largest_local(paged: PagedStep) -> int:
    return max(sum(paged.bytes[t] for t in row if not paged.is_global[t]) for row in paged.touched)
