"""``kineto``: a trace of ``torch.profiler`` (Chrome trace JSON, packed or not) as a measured step.

Ops with their times, phases and modules: ``kineto_ops``. Allocations with their lifetimes: ``kineto_memory``.
The tensors that were there before the step: ``kineto_update``; which op reads what: ``kineto_uses``. What a
trace cannot say and is assumed here is listed in the reading, and what it lacks (shapes, memory events) in
its warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import kineto_events
from experiments.readers.base import Reader, Reading
from experiments.readers.kineto_columns import timeline
from experiments.readers.kineto_events import Trace
from experiments.readers.kineto_kernels import timed_by_kernels
from experiments.readers.kineto_memory import CPU, Memory, Storage, remember
from experiments.readers.kineto_ops import Op, Reckoned, Window, reckon, window
from experiments.readers.kineto_shapes import TYPES, flops
from experiments.readers.kineto_update import Group, groups, storages_by_update
from experiments.readers.kineto_uses import Resolver
from experiments.readers.plausibility import low_utilization
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

ITEM = dict(TYPES.values())
#: The step's live peak may differ from the allocator's own by this much before it is worth a warning.
TOLERANCE = 0.05


def _recognizes(head: bytes, name: str) -> bool:
    start = head.lstrip()[:1]
    torch_header = b'"schemaVersion"' in head and (b'"deviceProperties"' in head or b'"traceEvents"' in head)
    return start == b"{" and (torch_header or b'"traceEvents"' in head)


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    trace = kineto_events.load(data, name)
    try:
        part = window(trace)
        reckoned = timed_by_kernels(reckon(trace, part), trace, part)
    except BadInput as error:
        raise BadInput(error.what, name, error.expected) from None
    memory = remember(trace, reckoned.ops, part)
    found = _Tensors(reckoned, memory)
    step = _step(name, trace, part, reckoned, memory, found, options)
    return Reading(
        step, _assumptions(trace, part, reckoned, memory), _warnings(step, trace, reckoned, memory)
    )


class _Tensors:
    """All tensors of the step, and for each op which it reads and writes."""

    def __init__(self, reckoned: Reckoned, memory: Memory | None) -> None:
        self.ops = reckoned.ops
        self.inputs: list[list[Storage]] = [[] for _ in self.ops]
        self.outputs: list[list[Storage]] = [[] for _ in self.ops]
        self.groups: tuple[Group, ...] = ()
        self.all: list[Storage] = []
        self.local: list[Storage] = []
        self.unexplained = 0
        if memory is not None:
            self._fill(reckoned, memory)

    def _fill(self, reckoned: Reckoned, memory: Memory) -> None:
        self.groups = groups(reckoned, memory)
        self.local = list(memory.storages)
        for storage in memory.storages:
            if storage.kind == "temporary" and storage.born >= 0 and self._phase(storage.born) == "forward":
                storage.kind = "activation"
        resolver = Resolver(memory.storages, [group.parameter for group in self.groups], memory.granule)
        updates = storages_by_update(self.ops, self.groups, memory)
        for index, op in enumerate(self.ops):
            read = updates[index] if index in updates else resolver.visit(index, op)
            self.inputs[index] = list(dict.fromkeys(read))
            if op.sums_fan_in and read and read[0].born >= 0:
                self._renew(read[0], index)
                continue
            if index in updates:
                for storage in self.inputs[index]:
                    storage.touch(index)
            if op.name.endswith("_") and read:
                written = [s for s in self.inputs[index] if s.kind != "gradient"]
                self.outputs[index].extend(written if index in updates else read[:1])
        self._hold()
        before = [s for group in self.groups for letter in "psg" for s in group.members(letter)]
        self.all = list(
            dict.fromkeys([*before, *resolver.frozen, *resolver.buffers, *resolver.inputs, *self.local])
        )
        self._explain(memory)

    def _phase(self, op: int) -> str:
        return self.ops[op].phase

    def _renew(self, total: Storage, index: int) -> None:
        """A sum of gradients is a tensor of its own, as in a captured step. Autograd adds in place where
        nobody else holds the tensor, which is no property of the model.
        """
        before = Storage(total.bytes, total.born, index, "temporary", "", total.shape, total.dtype)
        before.uses = [use for use in total.uses if use <= index]
        for use in before.uses:
            self.inputs[use] = [before if storage is total else storage for storage in self.inputs[use]]
        total.born, total.uses = index, []
        self.local.append(before)

    def _hold(self) -> None:
        """Births are writes. A death keeps a tensor alive until then, unless the program merely held it: a
        gradient after its update, or what is freed with the program's variables while parameters are updated.
        """
        for storage in self.local:
            if storage.born >= 0:
                self.outputs[storage.born].append(storage)
            end = storage.died
            if end is None or storage.kind == "gradient" or storage in self.inputs[end]:
                continue
            inside = (
                self._phase(end) != "optimizer"
                or storage.born < 0
                or self._phase(storage.born) == "optimizer"
            )
            if inside and not (storage.uses and self._phase(end) == "optimizer"):
                self.inputs[end].append(storage)

    def _explain(self, memory: Memory) -> None:
        """On an accelerator the allocator's count says how much there was before; what is left over is one
        tensor.
        """
        if memory.device[0] == CPU:
            return
        known = sum(s.bytes for s in self.all if s.born < 0)
        self.unexplained = memory.before - known
        if self.unexplained > 0:
            rest = Storage(self.unexplained, -1, None, "buffer", "allocated before the trace", inferred=True)
            self.all.append(rest)


def _step(
    name: str,
    trace: Trace,
    part: Window,
    reckoned: Reckoned,
    memory: Memory | None,
    found: _Tensors,
    options: WorkloadOptions,
) -> Step:
    ids = {id(storage): index for index, storage in enumerate(found.all)}
    inputs = Ragged.of([ids[id(s)] for s in row] for row in found.inputs)
    outputs = Ragged.of([ids[id(s)] for s in row] for row in found.outputs)
    ops = _ops(reckoned.ops, memory, found)
    facts = _facts(trace, part, reckoned, memory, found, options)
    timed_on = _device_name(trace) if reckoned.on_device else "cpu (from the trace)"
    return Step(name, ops, _tensors(found.all), inputs, outputs, "trace", timed_on, facts)


def _ops(rows: Sequence[Op], memory: Memory | None, found: _Tensors) -> Ops:
    sizes = [[s.bytes for s in out if s.born == index] for index, out in enumerate(found.outputs)]
    written = [max(size, default=0) for size in sizes]
    counted = []
    for op, size in zip(rows, written, strict=True):
        item = op.arguments[0].item if op.arguments else 4
        counted.append(flops(op.name, op.arguments, op.call.args, size // item))
    moved = [sum(a.bytes for a in op.arguments) + sum(size) for op, size in zip(rows, sizes, strict=True)]
    view = np.array([op.view for op in rows])
    return Ops(
        name=tuple(_number(op.name for op in rows)),
        target=tuple(op.name for op in rows),
        module=tuple(op.module for op in rows),
        phase=np.array([PHASES.index(op.phase) for op in rows], np.int8),
        seconds=np.array([op.seconds for op in rows], np.float64),
        flops=np.array(counted, np.float64),
        bytes_moved=np.where(view, 0.0, np.array(moved, np.float64)),
        workspace=memory.workspace if memory else np.zeros(len(rows), np.int64),
        dtype=tuple(op.arguments[0].dtype if op.arguments else "" for op in rows),
        view=view,
        random=np.array([op.random for op in rows]),
    )


def _number(names: Any) -> list[str]:
    """Names that differ: the second ``aten::mm`` is ``aten::mm.1``."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        out.append(f"{name}.{count}" if count else name)
    return out


def _tensors(rows: Sequence[Storage]) -> Tensors:
    return Tensors(
        name=tuple(s.name or f"{s.kind} {index}" for index, s in enumerate(rows)),
        bytes=np.array([s.bytes for s in rows], np.int64),
        dtype=tuple(s.dtype or "uint8" for s in rows),
        shape=tuple(s.shape for s in rows),
        kind=np.array([KINDS.index(s.kind) for s in rows], np.int8),
        sparsity=np.full(len(rows), np.nan),
    )


def _device_name(trace: Trace) -> str:
    rows = trace.header.get("deviceProperties")
    if isinstance(rows, list) and rows and isinstance(rows[0], dict):
        return str(rows[0].get("name", "accelerator"))
    return "accelerator (from the trace)"


def _facts(
    trace: Trace,
    part: Window,
    reckoned: Reckoned,
    memory: Memory | None,
    found: _Tensors,
    options: WorkloadOptions,
) -> dict[str, Any]:
    parameters = [s for s in found.all if s.kind == "parameter"]
    facts: dict[str, Any] = {
        "source": "kineto",
        "steps_in_trace": part.steps,
        "wall_seconds": part.end - part.start,
        "seconds_between_ops": reckoned.between,
        "optimizer": reckoned.optimizer or None,
        "training": any(op.phase == "backward" for op in reckoned.ops),
        **reckoned.facts,
    }
    if parameters:
        facts["parameters"] = sum(
            math.prod(s.shape) if s.shape else s.bytes // ITEM.get(s.dtype, 4) for s in parameters
        )
    batch = options.batch or _batch(found)
    if batch:
        facts["batch"] = batch
    if memory is not None:
        facts |= {"allocator_peak_bytes": memory.peak, "allocator_before_bytes": memory.before}
        facts["inferred_bytes"] = sum(s.bytes for s in found.all if s.inferred)
    return facts


def _batch(found: _Tensors) -> int | None:
    """The first dimension of the first input of the forward pass."""
    first = next((s for s in found.all if s.kind == "input" and s.shape), None)
    return first.shape[0] if first is not None else None


def _assumptions(trace: Trace, part: Window, reckoned: Reckoned, memory: Memory | None) -> tuple[str, ...]:
    told = [
        "an op's time includes what the host spent since the op before it inside autograd and annotations"
    ]
    if reckoned.on_device:
        told = ["an op's time is that of the kernels it launched; what the host did meanwhile counts nothing"]
    if part.steps > 1:
        told.append(f"the last of {part.steps} steps in the trace is the step")
    told.append("what follows the last backward op is the optimizer's part")
    if memory is None:
        return tuple(told)
    source = (
        "gradients that autograd accumulated"
        if reckoned.accumulated
        else "what the backward pass left allocated"
    )
    told += [
        f"parameters are as many and as large as the {source}; their optimizer state follows from the "
        f"optimizer{f' {reckoned.optimizer}' if reckoned.optimizer else '’s operators'}",
        "gradients of a tensor used twice are summed into a tensor of their own, though autograd may add in "
        "place",
        "tensors are told apart by size, shape and order, because the trace names shapes and not tensors",
        "an optimizer's op touches its parameter, gradient and state; gradients are free after their update",
    ]
    return tuple(told)


def _warnings(step: Step, trace: Trace, reckoned: Reckoned, memory: Memory | None) -> tuple[str, ...]:
    told = []
    if memory is None:
        told.append("no memory events: tensors and peak are unknown (profile with profile_memory=True)")
    if not any(op.arguments for op in reckoned.ops):
        told.append("no shapes: FLOPs and the uses of tensors are unknown (profile with record_shapes=True)")
    if memory is not None and memory.frees:
        told.append(f"{memory.frees} tensors were freed that were allocated before the trace began")
    if memory is not None and memory.device[0] != CPU and memory.peak:
        error = step.live_peak / memory.peak - 1
        if abs(error) > TOLERANCE:
            told.append(f"the step's live peak is {error:+.0%} off the allocator's own peak in the trace")
    if trace.kernels and len({kernel.device for kernel in trace.kernels}) > 1:
        told.append("kernels of several devices: the busiest one is read")
    facts = step.facts
    if not reckoned.on_device and step.seconds > 1.02 * facts["wall_seconds"]:
        told.append("threads overlap: the sum of op times is more than the step took")
    if facts.get("device_busy_seconds", 0) < 0.98 * facts.get("device_seconds", 0):
        told.append(
            "kernels of several streams overlap: the sum of op times is more than the device was busy"
        )
    return (*told, *low_utilization(step, step.timed_on))


def _first_rank(readings: Sequence[tuple[str, Reading]], name: str, options: WorkloadOptions) -> Reading:
    """Of the traces of several processes the step of the first; the page tells how the others compare."""
    stem, first = readings[0]
    told = f"the step is that of {stem}, one of {len(readings)} traces in {name}"
    return Reading(first.value, (*first.assumed, told), first.warnings)


READER = Reader(
    "kineto",
    "step",
    "PyTorch profiler trace (Chrome trace JSON), or an archive with one for each rank",
    _recognizes,
    _read,
    merge=_first_rank,
    timeline=timeline,
)
