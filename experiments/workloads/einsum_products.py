"""Axes of the ops that combine tensors: products, convolutions, attention, look-ups and mixtures of experts.

Left out: strides and paddings (a capture does not keep them; a window's halo is its width less the ratio of
sizes), and products of two activations other than experts and attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.workloads.einsum_axes import PICTURE, Axes, Axis, Loops, Tensors, Walk, broadcast


def product(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """``x @ W`` with an optional bias: rows are the first axes of x, the summed ones its last."""
    weight = next((t for t in reversed(inputs) if tensors.is_weight(t) and len(tensors.shape(t)) == 2), None)
    data = next((t for t in inputs if not tensors.is_weight(t)), None)
    if weight is None or data is None:
        return None
    rows, columns = tensors.shape(result)[0], tensors.shape(result)[-1]
    summed = tensors.elements(weight) // columns
    own = tensors.of(data)
    cut = next((i for i in range(len(own) + 1) if math.prod(a.size for a in own[i:]) == summed), None)
    read = Walk(data, own)
    if cut is None or math.prod(a.size for a in own[:cut]) != rows:
        picked = _picked(tensors, data, rows, summed)
        own = tensors.axes[data] = _rows_of(tensors, rows, summed) if picked is None else own
        read = picked or Walk(data, own)
        own = tuple(axis for axis in read.loops if axis is not None)
        cut = len(own) - 1
    made = Axis(columns, _label_of_columns(tensors, columns))
    output = (*own[:cut], made)
    walks = [read, Walk(weight, (made, *own[cut:]))]
    walks += [Walk(t, (made,)) for t in inputs if t not in (data, weight) and tensors.is_weight(t)]
    return Loops("einsum", output, tuple(walks))


def _picked(tensors: Tensors, data: int, rows: int, summed: int) -> Walk | None:
    """Of each sample one row, such as the first token's: nothing tells which, so all rows must be near."""
    own = tensors.of(data)
    if not own or own[0].size != rows or own[-1].size != summed or tensors.elements(data) <= rows * summed:
        return None
    loops = (own[0], *(None for _ in own[1:-1]), own[-1])
    return Walk(data, loops, rows * summed / tensors.elements(data))


def _rows_of(tensors: Tensors, rows: int, summed: int) -> Axes:
    """Axes for an operand whose own do not fit (rows, summed): the result of an op without a rule."""
    found = [axis for axis in tensors.fresh((rows,)) if axis.size > 1 or axis.label == "batch"]
    return (*found, tensors.feature(summed))


def _label_of_columns(tensors: Tensors, columns: int) -> str:
    if not tensors.sequence.size:
        return "channel"
    return "hidden" if columns == tensors.hidden else "feedforward"


def of_experts(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """A batched product of rows [experts, capacity, width] with a weight of each expert."""
    weight = next((t for t in inputs if tensors.is_weight(t) and len(tensors.shape(t)) == 3), None)
    data = next((t for t in inputs if not tensors.is_weight(t)), None)
    if weight is None or data is None:
        return None
    experts, rows, columns = tensors.shape(result)
    summed = tensors.elements(weight) // (experts * columns)
    own = tensors.of(data)
    if [axis.size for axis in own] != [experts, rows, summed]:
        if tensors.elements(data) != experts * rows * summed:
            return None
        own = (Axis(experts, "experts"), Axis(rows, "capacity"), tensors.feature(summed))
        tensors.axes[data] = own
    made = Axis(columns, _label_of_columns(tensors, columns))
    return Loops("einsum", (*own[:2], made), (Walk(data, own), Walk(weight, (own[0], own[2], made))))


def convolution(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    data, weight = inputs[0], inputs[1] if len(inputs) > 1 else -1
    own, shape = tensors.of(data), tensors.shape(result)
    if len(own) != 4 or len(shape) != 4 or weight < 0:
        return None
    kernel = tensors.shape(weight)
    made, inner = Axis(shape[1], "channel"), own[1]
    height, width = (Axis(shape[2 + i], PICTURE[1 + i]) for i in (0, 1))
    groups = max(1, inner.size // kernel[1])
    walked = inner if groups == 1 else made  # a group's channels stay together
    halo = tuple(
        (axis, reach)
        for axis, before, span in ((height, own[2], kernel[2]), (width, own[3], kernel[3]))
        if (reach := span - max(1, round(before.size / axis.size))) > 0
    )
    walks = [
        Walk(data, (own[0], walked, height, width)),
        Walk(weight, (made, inner) if groups == 1 else (made,)),
    ]
    walks += [Walk(t, (made,)) for t in inputs[2:] if tensors.is_weight(t)]
    return Loops("convolution", (own[0], made, height, width), tuple(walks), halo=halo)


def pool(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    own, shape = tensors.of(inputs[0]), tensors.shape(result)
    if len(own) != 4 or len(shape) != 4:
        return None
    if shape[2] * shape[3] == 1:
        return Loops("reduce", own[:2], (Walk(inputs[0], own),))
    height, width = (Axis(shape[2 + i], PICTURE[1 + i]) for i in (0, 1))
    output = (own[0], own[1], height, width)
    return Loops("pool", output, (Walk(inputs[0], output),))


def attention(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Queries walk the sequence, keys and values all of it; heads are the last axis of what made them."""
    shape = tensors.shape(result)
    data = [t for t in inputs if not tensors.is_weight(t) and len(tensors.of(t)) >= 3]
    if len(shape) != 4 or not data:
        return None
    batch, sequence = tensors.of(data[0])[:2]
    kept = (data[0], data[min(1, len(data) - 1)], data[min(2, len(data) - 1)])
    heads, inside = Axis(shape[1], "heads"), Axis(shape[3], "head_size")
    keys = Axis(sequence.size, "keys")
    walks = []
    for place, tensor in enumerate(kept):
        own = tensors.of(tensor)
        for axis in own[2:3]:
            axis.label = "heads"
        rows = sequence if place == 0 else keys
        rest = (None,) * (len(own) - 3)
        walks.append(Walk(tensor, (batch, rows, heads, *rest), kept.count(tensor) ** -1.0))
    return Loops("attention", (batch, sequence, heads, inside), tuple(walks), whole=(keys, inside))


def looked_up(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Rows of a table: a sum over the table with one row chosen."""
    table, indices = inputs[0], inputs[1]
    rows, columns = tensors.shape(table)
    entries = Axis(rows, "vocabulary")
    made = Axis(columns, "hidden" if tensors.sequence.size else "channel")
    tensors.hidden = tensors.hidden or columns
    own = tensors.of(indices)
    kept = own if math.prod(a.size for a in own) * columns == tensors.elements(result) else own[:1]
    loops: tuple[Axis | None, ...] = tuple(axis if axis in kept else None for axis in own)
    return Loops("embedding", (*kept, made), (Walk(table, (entries, made)), Walk(indices, loops)))


def chosen(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """The best-scored rows of each expert.

    Where devices divide the batch, each chooses among its own rows for a part of an expert's capacity, as in
    GShard's groups.
    """
    own, shape = tensors.of(inputs[0]), tensors.shape(result)
    experts = next((axis for axis in own if axis.size == shape[0] and axis is not tensors.batch), None)
    if experts is None or len(shape) != 2:
        return None
    experts.label = "experts"
    capacity = Axis(shape[1], "capacity")
    walked = {experts: experts, tensors.batch: capacity}
    loops = tuple(walked.get(axis) for axis in own)
    return Loops("choice", (experts, capacity), (Walk(inputs[0], loops),))


def gather(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Rows picked by an index: each from anywhere, or from the part of the batch that chose them."""
    if len(inputs) != 2 or not tensors.shape(result):
        return None
    data, index = inputs
    rows, own = tensors.of(index), tensors.of(data)
    if math.prod(a.size for a in rows) * own[-1].size != tensors.elements(result):
        return None
    chosen = [axis if axis.label == "capacity" else None for axis in rows[-1:]]
    before = [chosen[0] if axis is tensors.batch and chosen else None for axis in own[:-1]]
    loops = (*before, own[-1])
    return Loops("dispatch", (*rows, own[-1]), (Walk(data, loops), Walk(index, rows)))


def scatter(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Rows added where an index says (combination of what experts made).

    Each device has a part of every sum.
    """
    data = inputs[-1]  # what is added stands last: index_add(into, index, rows)
    own, output = tensors.of(data), tensors.fresh(tensors.shape(result))
    if len(own) < 2 or not output or own[-1].size != output[-1].size:
        return None
    made = (*output[:-1], own[-1])
    rows = tuple(
        tensors.batch if axis.label == "capacity" and tensors.batch in made else axis for axis in own
    )
    walks = []
    for tensor in inputs:
        axes = tensors.of(tensor)
        if tensor == data or tuple(a.size for a in axes) == tuple(a.size for a in own[:-1]):
            walks.append(Walk(tensor, rows[: len(axes)]))
        else:
            walks.append(broadcast(tensors, tensor, made))
    return Loops("combination", made, tuple(walks))
