"""A step cut into micro-batches that run one after another and add their gradients, before one optimizer
update.

For steps that were read from a trace. A model is captured anew with its batch cut instead, which knows every
shape.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from experiments.core.errors import BadInput
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors

#: Share of an op's time that does not shrink with its batch (launch, weights read, lower occupancy): an
#: assumption.
FIXED_SHARE = 0.1
OPTIMIZER = PHASES.index("optimizer")
GRADIENT = KINDS.index("gradient")


def in_microbatches(step: Step, parts: int) -> Step:
    """``step`` with its forward and backward ops ``parts`` times over, each on a part of the batch.

    Persistent tensors and gradients are shared by the parts; the kernel that makes a gradient adds to it from
    the second part on. Other tensors belong to their part, and hold a share of the bytes where they grow with
    the batch.
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
    inputs, outputs = _operands(step, own, source, part_of)
    return replace(
        step,
        ops=_ops(step.ops, source, part_of, len(update), parts),
        tensors=_tensors(step, owned, parts),
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
    step: Step, own: npt.NDArray[np.bool_], source: npt.NDArray[np.int64], part_of: npt.NDArray[np.int64]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the inputs and outputs of every op: its part's ``own`` tensors, and what is added to."""
    ids = _tensors_by_part(own, int(part_of.max()) + 1)
    inputs, outputs = [], []
    made: set[int] = set()
    for op, part in zip(source.tolist(), part_of.tolist(), strict=True):
        reads, writes = ids[part, step.inputs[op]].tolist(), ids[part, step.outputs[op]].tolist()
        sums = [t for t in writes if t < len(own) and not own[t] and not step.persistent[t] and t in made]
        inputs.append([*reads, *(t for t in sums if t not in reads)])
        outputs.append(writes)
        made.update(writes)
    return inputs, outputs


def _tensors_by_part(own: npt.NDArray[np.bool_], parts: int) -> npt.NDArray[np.int64]:
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


def _gradients(step: Step) -> npt.NDArray[np.bool_]:
    """Tensors made by the passes and read by the update, or marked as gradients."""
    found: npt.NDArray[np.bool_] = step.tensors.kind == GRADIENT
    for op in np.nonzero(step.ops.phase == OPTIMIZER)[0]:
        found[step.inputs[int(op)]] = True
    made_in_update = np.zeros(len(step.tensors), np.bool_)
    for op in np.nonzero(step.ops.phase == OPTIMIZER)[0]:
        made_in_update[step.outputs[int(op)]] = True
    wanted: npt.NDArray[np.bool_] = found & ~step.persistent & ~made_in_update
    return wanted


def _ops(
    ops: Ops, source: npt.NDArray[np.int64], part_of: npt.NDArray[np.int64], updates: int, parts: int
) -> Ops:
    share = np.full(len(source), 1.0 / parts)
    share[len(source) - updates :] = 1.0
    time = np.where(share < 1, FIXED_SHARE + (1 - FIXED_SHARE) * share, 1.0)

    def texts(column: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(column[op] for op in source)

    names = tuple(
        ops.name[op] if part == 0 or share[row] == 1 else f"{ops.name[op]}#{part}"
        for row, (op, part) in enumerate(zip(source.tolist(), part_of.tolist(), strict=True))
    )
    return Ops(
        name=names,
        target=texts(ops.target),
        module=texts(ops.module),
        phase=ops.phase[source],
        seconds=ops.seconds[source] * time,
        flops=ops.flops[source] * share,
        bytes_moved=ops.bytes_moved[source] * share,
        workspace=np.ceil(ops.workspace[source] * share).astype(np.int64),
        dtype=texts(ops.dtype),
        view=ops.view[source],
        random=ops.random[source],
    )


def _tensors(step: Step, owned: npt.NDArray[np.int64], parts: int) -> Tensors:
    tensors, batch = step.tensors, step.facts.get("batch")

    def grows(tensor: int) -> bool:
        shape = tensors.shape[tensor]
        return not shape or not batch or (shape[0] % batch == 0 and shape[0] > 0)

    size = tensors.bytes.copy()
    for tensor in owned.tolist():
        if grows(tensor):
            size[tensor] = -(-size[tensor] // parts)
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
