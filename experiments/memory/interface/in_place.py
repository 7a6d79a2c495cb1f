"""Ops that write over what they read, and the step in which they write elsewhere.

Under checkpointing frameworks use the out-of-place form of a ReLU: content that was written over cannot be
read again, so an op before it could run again only together with it. The numbers are the same; the new tensor
takes bytes of its own from its op on, while the old one goes once nothing reads it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from experiments.core.errors import BadInput
from experiments.memory.interface.lineage import Lineage
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import PHASES, Ops, Step, Tensors

#: ATen's activation functions, whose in-place forms end with an underscore.
ACTIVATIONS = (
    "relu|relu6|leaky_relu|elu|celu|hardtanh|clamp|clamp_min|clamp_max|silu|mish|hardswish|hardsigmoid|sigmoid|"
    "tanh|threshold"
)
IN_PLACE = re.compile(rf"(aten\.(?:{ACTIVATIONS}))_(?=\.|$)")


def in_place_ops(step: Step) -> tuple[int, ...]:
    """Return the forward ops that write over all of a tensor which they read, and could write elsewhere.

    No view of the tensor was taken before, which would have to see what is written.
    """
    lineage = Lineage(step)
    forward = np.nonzero(step.ops.phase == PHASES.index("forward"))[0].tolist()
    return tuple(op for op in forward if _could_write_elsewhere(step, lineage, op))


def _could_write_elsewhere(step: Step, lineage: Lineage, op: int) -> bool:
    written = lineage.writes[op]
    if not IN_PLACE.fullmatch(_name(step.ops.target[op])) or len(written) != 1:
        return False
    tensor = written[0]
    if lineage.persistent[tensor] or tensor not in lineage.reads[op] or not lineage.version(tensor, op):
        return False
    whole = step.ops.bytes_moved[op] >= 2 * step.tensors.bytes[tensor]
    return bool(whole) and not any(lineage.views[use] for use in step.uses[tensor].tolist() if use < op)


def _name(target: str) -> str:
    """``aten.relu_`` of ``aten.relu_.default``."""
    return ".".join(target.split(".")[:2])


def elsewhere(target: str) -> str:
    """Return the name of an in-place op's form that writes elsewhere; any other as it is."""
    return IN_PLACE.sub(r"\1", target)


def out_of_place(step: Step, ops: Sequence[int]) -> Step:
    """Return ``step`` whose in-place ``ops`` write new tensors, which all later ops use instead.

    The new tensors follow the others, in the order of ``ops``. ``BadInput`` names an op that is not in place.
    """
    strange = sorted(set(ops) - set(in_place_ops(step)))
    if strange or list(ops) != sorted(set(ops)):
        raise BadInput(
            f"op {strange[0] if strange else ops[0]} cannot write elsewhere",
            "plan.out_of_place",
            "ops in place",
        )
    changing, count = set(ops), len(step.tensors)
    latest = list(range(count))
    inputs, outputs = [], []
    replaced: list[int] = []
    for op in range(len(step.ops)):
        inputs.append(list(dict.fromkeys(latest[t] for t in step.inputs[op].tolist())))
        if op in changing:
            tensor = next(t for t in step.outputs[op].tolist() if t in set(step.inputs[op].tolist()))
            latest[tensor] = count + len(replaced)
            replaced.append(tensor)
        outputs.append(list(dict.fromkeys(latest[t] for t in step.outputs[op].tolist())))
    return replace(
        step,
        ops=_rename(step.ops, changing),
        tensors=_with_copies(step.tensors, replaced, [step.ops.name[op] for op in ops]),
        inputs=Ragged.of(inputs),
        outputs=Ragged.of(outputs),
    )


def _rename(ops: Ops, changing: Collection[int]) -> Ops:
    targets = tuple(elsewhere(t) if op in changing else t for op, t in enumerate(ops.target))
    return replace(ops, target=targets)


def _with_copies(tensors: Tensors, replaced: Sequence[int], names: Sequence[str]) -> Tensors:
    """``tensors`` and another of each of ``replaced``, by these names."""
    rows = list(replaced)
    return Tensors(
        name=(*tensors.name, *names),
        bytes=np.concatenate((tensors.bytes, tensors.bytes[rows])),
        dtype=(*tensors.dtype, *(tensors.dtype[t] for t in rows)),
        shape=(*tensors.shape, *(tensors.shape[t] for t in rows)),
        kind=np.concatenate((tensors.kind, tensors.kind[rows])),
        sparsity=np.concatenate((tensors.sparsity, tensors.sparsity[rows])),
    )
