"""A step's ops as operators of blocks on a named device: modelled kernels, in place of a database of measured ones.

A block makes ``tile`` output elements and an equal part of the op's work. A unit has its share of the device's
arithmetic and of its memory bandwidth, at the efficiencies of the device's sheet, and every block takes ``latency``
more: reading what it needs and writing what it made. Small tiles keep all units busy (shortest alone), large ones pay
the latency less often (least unit-seconds). What this leaves out: data that blocks share are read by one of them only,
and a reduction is divided by its outputs alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.compilation.planning.blocks.rtasks import Kernel, Operator
from experiments.hardware.parts import Device
from experiments.workloads.step import Step

#: Ops that compute each output element from the inputs' elements at its place (or a broadcast one).
_ELEMENTWISE = """
add sub mul div neg exp log sqrt rsqrt pow tanh sigmoid relu relu6 hardtanh gelu silu leaky_relu elu hardswish clamp
maximum minimum where abs _to_copy clone native_batch_norm _native_batch_norm_legit_no_training
"""
ELEMENTWISE = frozenset(f"aten.{name}{place}" for name in _ELEMENTWISE.split() for place in ("", "_"))
#: Ops that only name memory: nothing is launched for them.
NO_KERNEL = ("aten.empty", "aten.lift_fresh_copy", "aten.detach")
#: Output elements of a block: from one thread block of few threads to thousands a thread.
TILES = tuple(2**power for power in range(2, 17))


@dataclass(frozen=True)
class Unit:
    """One of ``count`` equal units: FLOP/s, bytes/s, and seconds that a block takes however little it does."""

    count: int
    flops: float
    bytes: float
    latency: float

    def seconds(self, flops: float, bytes: float) -> float:
        return self.latency + max(flops / self.flops, bytes / self.bytes)


def unit_of(device: Device, occupancy: int, latency: float, dtype: str) -> Unit:
    """The device's rates divided among ``occupancy`` blocks on each multiprocessor."""
    rates = device.kernels
    count = rates.multiprocessors * occupancy
    flops = device.peak(dtype) * device.compute_efficiency * rates.product_efficiency
    traffic = device.memory_bandwidth * device.memory_efficiency * rates.stream_efficiency
    return Unit(count, flops / count, traffic / count, latency)


@dataclass(frozen=True)
class Work:
    """What an op does, before it is cut into blocks: ``elements`` and ``made`` bytes are its largest output's."""

    name: str
    target: str
    flops: float
    bytes: float
    elements: int
    made: float
    reads: tuple[str, ...]
    parts: int = 1

    @property
    def elementwise(self) -> bool:
        return self.target.rsplit(".", 1)[0] in ELEMENTWISE


def work_of(step: Step) -> list[Work]:
    """The ops that launch something; each reads the last writers of what it touches (what it overwrites too)."""
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
        found.append(Work(name, target, flops, traffic, max(elements, 1), made, reads))
        for tensor in inputs:
            readers.setdefault(tensor, []).append(name)
        for tensor in outputs:
            writer[tensor], readers[tensor] = name, []
    return found


def operator_of(work: Work, unit: Unit) -> Operator:
    """Both kernels of an op, over all tiles."""
    kernels = []
    for tile in TILES:
        blocks = -(-work.elements // tile)
        kernels.append(Kernel(blocks, unit.seconds(work.flops / blocks, work.bytes / blocks)))
        if blocks == 1:
            break
    fast = min(kernels, key=lambda kernel: (kernel.alone(unit.count), kernel.area))
    thrifty = min(kernels, key=lambda kernel: (kernel.area, kernel.seconds))
    return Operator(work.name, fast, thrifty, work.reads)


def fused(works: Sequence[Work]) -> list[Work]:
    """Element-wise ops computed by the kernel that makes their input, where nothing else reads it.

    A kernel holds at most one op that is not element-wise. What passes between two fused ops is neither written nor
    read. A maker moves to its only reader, so the graph stays free of cycles and in execution order.
    """
    readers = Counter(name for work in works for name in work.reads)
    kernels: dict[str, Work] = {}
    moved: dict[str, str] = {}
    for work in works:
        kernel = work
        for name in work.reads:
            maker = kernels[_now(name, moved)]
            if readers[name] == 1 and work.elementwise and _fits(maker, kernel):
                kernel = _joined(maker, kernel)
                del kernels[maker.name]
                moved[maker.name] = work.name
        reads = dict.fromkeys(_now(name, moved) for name in kernel.reads)
        kernels[work.name] = replace(kernel, reads=tuple(name for name in reads if name != work.name))
    return list(kernels.values())


def _now(name: str, moved: Mapping[str, str]) -> str:
    """The kernel that an op has become part of."""
    while name in moved:
        name = moved[name]
    return name


def _fits(maker: Work, reader: Work) -> bool:
    return maker.elements == reader.elements and (maker.elementwise or reader.elementwise)


def _joined(maker: Work, reader: Work) -> Work:
    """One kernel of both; ``target`` is the one that is not element-wise, where there is one."""
    return Work(
        reader.name,
        reader.target if maker.elementwise else maker.target,
        maker.flops + reader.flops,
        max(maker.bytes + reader.bytes - 2 * maker.made, 0.0),
        reader.elements,
        reader.made,
        (*maker.reads, *reader.reads),
        maker.parts + reader.parts,
    )
