"""Named dimensions for the operators of a captured step, from what a capture keeps: op names and tensor
shapes.

Views are not ops, so the dimensions of tensors are followed instead: each tensor keeps a list of axes; the
rules of ``einsum_rules`` say which axes an op walks and which its result has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from experiments.workloads.einsum import Operand, Operator
from experiments.workloads.einsum_axes import WEIGHTS, Axes, Axis, Loops, Tensors, Walk
from experiments.workloads.einsum_rules import loops_of, op_name
from experiments.workloads.step import KINDS, PHASES, Floats, Step

FORWARD, BACKWARD = PHASES.index("forward"), PHASES.index("backward")
PARAMETER = KINDS.index("parameter")


def captured_operators(step: Step, layer_of: npt.NDArray[np.int64]) -> tuple[Operator, ...]:
    """The forward ops of ``step``, views left out; ``layer_of`` is the layer of each op."""
    tensors = Tensors(step)
    maker: dict[int, int] = {}
    parameters: dict[int, int] = {}
    made: list[tuple[int, Loops, list[int]]] = []
    for op in np.flatnonzero((step.ops.phase == FORWARD) & ~step.ops.view).tolist():
        results = [t for t in step.outputs[op].tolist() if not tensors.is_weight(t) and tensors.elements(t)]
        if not results:
            continue
        found = loops_of(tensors, step, op, results[0])
        sources = [maker.get(walk.tensor, -1) for walk in found.walks]
        rows = zip(found.walks, sources, strict=True)
        walks = tuple(_as_made(walk, made[source][1].output if source >= 0 else ()) for walk, source in rows)
        loops = replace(found, walks=walks)
        made.append((op, loops, sources))
        for result in results:
            maker[result] = len(made) - 1
            same = tensors.elements(result) == math.prod(axis.size for axis in loops.output)
            tensors.axes[result] = loops.output if same else tensors.fresh(tensors.shape(result))
    stash, shares = _stash(step), _shares(step, layer_of)
    return tuple(
        _operator(
            step, op, loops, sources, parameters, int(layer_of[op]), float(stash[op]), float(shares[op])
        )
        for op, loops, sources in made
    )


def _as_made(walk: Walk, output: Axes) -> Walk:
    """A reader may have taken the axes of a result for others than its maker did: it needs those that it
    lacks whole.
    """
    if not output or len(walk.loops) == len(output):
        return walk
    return replace(walk, loops=tuple(axis if axis in walk.loops else None for axis in output))


def _stash(step: Step) -> Floats:
    """Bytes of each op's results that the backward pass reads; a tensor counts with the op that changed it
    last.
    """
    read = {
        tensor
        for op in np.flatnonzero((step.ops.phase == BACKWARD) & ~step.ops.view).tolist()
        for tensor in step.inputs[op].tolist()
    }
    last: dict[int, int] = {}
    for op in np.flatnonzero((step.ops.phase == FORWARD) & ~step.ops.view).tolist():
        for tensor in step.outputs[op].tolist():
            if int(step.tensors.kind[tensor]) not in WEIGHTS:
                last[tensor] = op
    kept = np.zeros(len(step.ops))
    for tensor, op in last.items():
        if tensor in read:
            kept[op] += step.tensors.bytes[tensor]
    return kept


def _shares(step: Step, layer_of: npt.NDArray[np.int64]) -> Floats:
    """Each forward op's part of its layer's forward seconds; of its bytes moved where no time is known."""
    forward = (step.ops.phase == FORWARD) & ~step.ops.view
    seconds = step.ops.seconds if np.isfinite(step.ops.seconds).all() else step.ops.bytes_moved
    weight = np.where(forward, seconds, 0.0)
    totals = np.bincount(np.maximum(layer_of, 0), weight)
    whole = totals[np.maximum(layer_of, 0)]
    return np.divide(weight, whole, out=np.zeros_like(weight), where=whole > 0)


def _operator(
    step: Step,
    op: int,
    loops: Loops,
    sources: Sequence[int],
    parameters: dict[int, int],
    layer: int,
    stash: float,
    share: float,
) -> Operator:
    names = _names(loops)
    operands = []
    for walk, source in zip(loops.walks, sources, strict=True):
        number = -1
        if source < 0 and int(step.tensors.kind[walk.tensor]) == PARAMETER:
            number = parameters.setdefault(walk.tensor, len(parameters))
        dims = tuple("" if axis is None else names[axis] for axis in walk.loops)
        operands.append(
            Operand(dims, float(step.tensors.bytes[walk.tensor]) * walk.part, source, number),
        )
    return Operator(
        name=step.ops.name[op],
        kind=loops.kind,
        layer=layer,
        sizes=tuple((name, axis.size) for axis, name in names.items()),
        output=tuple(names[axis] for axis in loops.output),
        operands=tuple(operands),
        output_bytes=sum(
            float(step.tensors.bytes[t])
            for t in step.outputs[op].tolist()
            if int(step.tensors.kind[t]) not in WEIGHTS
        ),
        stash_bytes=stash,
        flops=float(step.ops.flops[op]),
        share=share,
        statistics=tuple(names[axis] for axis in loops.statistics),
        whole=tuple(names[axis] for axis in loops.whole),
        halo=tuple((names[axis], size) for axis, size in loops.halo),
        function=op_name(step, op),
    )


def _names(loops: Loops) -> dict[Axis, str]:
    """A name for each axis that the op walks, those of its output first; a second one of a label is
    ``label.in``.
    """
    found: dict[Axis, str] = {}
    for axis in (*loops.output, *(axis for walk in loops.walks for axis in walk.loops if axis is not None)):
        if axis not in found:
            name = axis.label
            while name in found.values():
                name += ".in"
            found[axis] = name
    return found
