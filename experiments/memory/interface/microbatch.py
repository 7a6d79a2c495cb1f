"""A step cut into micro-batches that run one after another and add their gradients, before one optimizer
update.

For steps that were read from a trace. A model is captured anew with its batch cut instead, which knows every
shape. A part of an op has a part of its FLOPs, and its bytes but for those of tensors that do not grow with
the batch (weights, gradients), which it moves whole; its time is the op's by the ratio of the two rooflines.
Where the FLOPs are not known, all of an op's time counts as arithmetic; where the device is not known, no
traffic is longer than the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput
from experiments.hardware.parts import Device
from experiments.hardware.roofline import memory_rate, op_times
from experiments.workloads.ragged import Ints, Ragged
from experiments.workloads.step import KINDS, PHASES, Floats, Ops, Step, Tensors

OPTIMIZER = PHASES.index("optimizer")
GRADIENT, INPUT = KINDS.index("gradient"), KINDS.index("input")
Flags = npt.NDArray[np.bool_]


def in_microbatches(step: Step, parts: int, device: Device | None = None) -> Step:
    """``step`` with its forward and backward ops ``parts`` times over, each on a part of the batch.

    Persistent tensors and gradients are shared by the parts; the kernel that makes a gradient adds to it from
    the second part on. Other tensors belong to their part, and hold a share of the bytes where they grow with
    the batch. ``device`` gives the rates that say whether a part of an op is bound by arithmetic or memory.
    """
    if parts == 1:
        return step
    _refuse_uneven(step, parts)
    own = ~step.persistent & ~_gradients(step)
    owned = np.nonzero(own)[0]
    work = np.nonzero(step.ops.phase != OPTIMIZER)[0]
    update = np.nonzero(step.ops.phase == OPTIMIZER)[0]
    source = np.concatenate([*([work] * parts), update])
    part_of = np.concatenate([np.repeat(np.arange(parts), len(work)), np.full(len(update), parts - 1)])
    inputs, outputs, added = _operands(step, own, source, part_of)
    grows = _growing(step)
    cut = _Parts.of(step, grows & (own | (step.tensors.kind == INPUT)), source, part_of, parts, added)
    return replace(
        step,
        ops=_ops(step.ops, cut, device),
        tensors=_tensors(step, owned, grows, parts),
        inputs=Ragged.of(inputs),
        outputs=Ragged.of(outputs),
        facts={**step.facts, "micro_batches": parts},
        release=_release(step, owned, source, parts),
    )


def _refuse_uneven(step: Step, parts: int) -> None:
    batch = step.facts.get("batch")
    if batch is not None and batch % parts:
        raise BadInput(
            f"a batch of {batch} is not {parts} equal micro-batches", step.name, "a divisor of the batch"
        )
    if "micro_batches" in step.facts:
        raise BadInput("is in micro-batches already", step.name, "the step of a whole batch")


def _operands(
    step: Step, own: Flags, source: Ints, part_of: Ints
) -> tuple[list[list[int]], list[list[int]], Floats]:
    """Return the inputs and outputs of every op: its part's ``own`` tensors, and what is added to.

    Bytes of the latter, which are read besides, come third.
    """
    ids = _tensors_by_part(own, int(part_of.max()) + 1)
    inputs, outputs, added = [], [], np.zeros(len(source))
    made: set[int] = set()
    for row, (op, part) in enumerate(zip(source.tolist(), part_of.tolist(), strict=True)):
        reads, writes = ids[part, step.inputs[op]].tolist(), ids[part, step.outputs[op]].tolist()
        sums = [t for t in writes if t < len(own) and not own[t] and not step.persistent[t] and t in made]
        again = [t for t in sums if t not in reads]
        inputs.append([*reads, *again])
        added[row] = step.tensors.bytes[again].sum() if not step.ops.view[op] else 0
        outputs.append(writes)
        made.update(writes)
    return inputs, outputs, added


def _tensors_by_part(own: Flags, parts: int) -> Ints:
    """Return the id of every tensor in every part: the first has the step's, shared ones keep theirs."""
    count, owned = len(own), np.nonzero(own)[0]
    ids = np.tile(np.arange(count), (parts, 1))
    for part in range(1, parts):
        ids[part, owned] = count + (part - 1) * len(owned) + np.arange(len(owned))
    return ids


def _release(
    step: Step, owned: npt.NDArray[np.int64], source: npt.NDArray[np.int64], parts: int
) -> npt.NDArray[np.int64] | None:
    """Each part's tensors are released after the part's own op, shared ones after the last part's."""
    if step.release is None:
        return None
    places: list[list[int]] = [[] for _ in range(len(step.ops))]
    for place, op in enumerate(source.tolist()):
        places[op].append(place)

    def after(tensor: int, part: int) -> int:
        op = int(step.release[tensor]) if step.release is not None else -1
        return places[op][min(part, len(places[op]) - 1)] if op >= 0 else -1

    own = set(owned.tolist())
    first = [after(tensor, 0 if tensor in own else parts - 1) for tensor in range(len(step.tensors))]
    more = [after(tensor, part) for part in range(1, parts) for tensor in owned.tolist()]
    return np.array([*first, *more], np.int64)


def _gradients(step: Step) -> Flags:
    """Tensors made by the passes and read by the update, or marked as gradients."""
    found: Flags = step.tensors.kind == GRADIENT
    for op in np.nonzero(step.ops.phase == OPTIMIZER)[0]:
        found[step.inputs[int(op)]] = True
    made_in_update = np.zeros(len(step.tensors), np.bool_)
    for op in np.nonzero(step.ops.phase == OPTIMIZER)[0]:
        made_in_update[step.outputs[int(op)]] = True
    wanted: Flags = found & ~step.persistent & ~made_in_update
    return wanted


@dataclass(frozen=True)
class _Parts:
    """What the ops of the cut step are of those of the whole one, a row for each.

    - ``source``: the op of the whole step; ``part``: which micro-batch.
    - ``share``: of the op's arithmetic and workspace.
    - ``bytes``: those that it moves.
    """

    source: Ints
    part: Ints
    share: Floats
    bytes: Floats

    @classmethod
    def of(cls, step: Step, grows: Flags, source: Ints, part: Ints, parts: int, added: Floats) -> _Parts:
        """A part of each op whose tensors grow with the batch, all of others; ``added`` is read besides."""
        growing = np.array([_growing_share(step, op, grows) for op in range(len(step.ops))])
        growing[step.ops.phase == OPTIMIZER] = 0.0
        share = np.where(growing > 0, 1.0 / parts, 1.0)
        moved = step.ops.bytes_moved * (1 - growing + growing / parts)
        return cls(source, part, share[source], moved[source] + added)


def _growing_share(step: Step, op: int, grows: Flags) -> float:
    """Return the part of an op's bytes that are of tensors which grow with the batch."""
    touched = step.touched[op]
    whole = int(step.tensors.bytes[touched].sum())
    return float(step.tensors.bytes[touched[grows[touched]]].sum()) / whole if whole else 1.0


def _ops(ops: Ops, cut: _Parts, device: Device | None) -> Ops:
    source = cut.source

    def texts(column: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(column[op] for op in source)

    names = tuple(
        ops.name[op] if part == 0 or ops.phase[op] == OPTIMIZER else f"{ops.name[op]}#{part}"
        for op, part in zip(source.tolist(), cut.part.tolist(), strict=True)
    )
    return Ops(
        name=names,
        target=texts(ops.target),
        module=texts(ops.module),
        phase=ops.phase[source],
        seconds=_seconds(ops, cut, device),
        flops=ops.flops[source] * cut.share,
        bytes_moved=cut.bytes,
        workspace=np.ceil(ops.workspace[source] * cut.share).astype(np.int64),
        dtype=texts(ops.dtype),
        view=ops.view[source],
        random=ops.random[source],
    )


def _seconds(ops: Ops, cut: _Parts, device: Device | None) -> Floats:
    """The time of each part: the whole op's, by the ratio of their roofline times."""
    whole, source = ops.seconds[cut.source], cut.source
    if device is None:
        return whole * cut.share
    known = np.isfinite(ops.flops)
    work = op_times(device, np.where(known, ops.flops, 0.0), np.zeros(len(ops)), ops.dtype)
    work = np.where(known, work, ops.seconds)[source]
    moved = np.nan_to_num(ops.bytes_moved[source]) / memory_rate(device)
    roofline = np.maximum(work, moved)
    part = np.maximum(work * cut.share, np.nan_to_num(cut.bytes) / memory_rate(device))
    return whole * np.divide(part, roofline, out=cut.share.copy(), where=roofline > 0)


def _growing(step: Step) -> Flags:
    """Tensors whose first side is a multiple of the batch; all of unknown shape, or batch."""
    batch = step.facts.get("batch")
    shapes = step.tensors.shape
    return np.array([not batch or not s or (s[0] % batch == 0 and s[0] > 0) for s in shapes], np.bool_)


def _tensors(step: Step, owned: Ints, grows: Flags, parts: int) -> Tensors:
    tensors = step.tensors
    size = tensors.bytes.copy()
    cut = owned[grows[owned]]
    size[cut] = -(-size[cut] // parts)
    more = np.concatenate([owned] * (parts - 1))
    labels = [f"{tensors.name[t]}#{1 + i // len(owned)}" for i, t in enumerate(more.tolist())]
    return Tensors(
        name=(*tensors.name, *labels),
        bytes=np.concatenate((size, size[more])),
        dtype=(*tensors.dtype, *(tensors.dtype[t] for t in more)),
        shape=(*tensors.shape, *(tensors.shape[t] for t in more)),
        kind=np.concatenate((tensors.kind, tensors.kind[more])),
        sparsity=np.concatenate((tensors.sparsity, tensors.sparsity[more])),
    )
