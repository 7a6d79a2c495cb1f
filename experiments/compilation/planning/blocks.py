"""A step's ops as operators of blocks on a named device.

Modeled kernels, in place of a database of measured ones.

A block makes ``tile`` output elements and an equal part of the op's work. A unit has its share of the
device's arithmetic and of its memory bandwidth, at the efficiencies of the device's sheet, and every block
takes ``latency`` more: reading what it needs and writing what it made. Small tiles keep all units busy
(shortest alone), large ones pay the latency less often (least unit-seconds). What this leaves out: data that
blocks share are read by one of them only, and a reduction is divided by its outputs alone.
"""

from __future__ import annotations

import math

from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.blocks import BlockOperator, KernelGrid, OperatorWork
from experiments.workloads.step import Step

#: Ops that only name memory: nothing is launched for them.
NO_KERNEL = ("aten.empty", "aten.lift_fresh_copy", "aten.detach")
#: Output elements of a block: from one thread block of few threads to thousands a thread.
TILES = tuple(2**power for power in range(2, 17))


def work_of(step: Step) -> list[OperatorWork]:
    """Return the ops that launch something.

    Each reads the last writers of what it touches (what it overwrites too).
    """
    writer: dict[int, str] = {}
    readers: dict[int, list[str]] = {}
    found = []
    for number, (inputs, outputs) in enumerate(zip(step.inputs.lists(), step.outputs.lists(), strict=True)):
        target = step.ops.target[number]
        if step.ops.view[number] or target.startswith(NO_KERNEL) or not outputs:
            continue
        name = step.ops.name[number]
        before = [writer[tensor] for tensor in (*inputs, *outputs) if tensor in writer]
        before += [reader for tensor in outputs for reader in readers.get(tensor, ())]
        reads = tuple(dict.fromkeys(entry for entry in before if entry != name))
        largest = max(outputs, key=lambda tensor: math.prod(step.tensors.shape[tensor]))
        elements, made = math.prod(step.tensors.shape[largest]), float(step.tensors.bytes[largest])
        flops, traffic = float(step.ops.flops[number]), float(step.ops.bytes_moved[number])
        found.append(OperatorWork(name, target, flops, traffic, max(elements, 1), made, reads))
        for tensor in inputs:
            readers.setdefault(tensor, []).append(name)
        for tensor in outputs:
            writer[tensor], readers[tensor] = name, []
    return found


def operator_of(work: OperatorWork, unit: UnitShare) -> BlockOperator:
    """Both kernels of an op, over all tiles."""
    counts = dict.fromkeys(min(-(-work.elements // tile), work.most_blocks) for tile in TILES)
    kernels = [KernelGrid(n, unit.seconds(work.flops / n, work.bytes / n)) for n in counts]
    fast = min(kernels, key=lambda kernel: (kernel.alone(unit.count), kernel.area))
    thrifty = min(kernels, key=lambda kernel: (kernel.area, kernel.seconds))
    return BlockOperator(work.name, fast, thrifty, work.reads, members=work.members)
