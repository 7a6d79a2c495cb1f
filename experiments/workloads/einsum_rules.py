"""Which axes an ATen op walks: one rule for each way to compute, found by the op's name.

An op without a rule keeps the axes of an operand of its size (element-wise), or is only known to have a
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.workloads import einsum_products as products
from experiments.workloads.einsum_axes import Axis, Loops, Tensors, Walk, broadcast
from experiments.workloads.step import Step

Rule = Callable[[Tensors, Sequence[int], int], Loops | None]
#: Ops that need the whole of the dimension along which they go; a capture does not say which it is.
ORDERED = ("cumsum", "cumprod", "sort", "argsort", "flip", "roll")


def op_name(step: Step, op: int) -> str:
    """Return what an op computes: ``relu`` of ``aten.relu_.default``."""
    return step.ops.target[op].removeprefix("aten.").partition(".")[0].strip("_")


def loops_of(tensors: Tensors, step: Step, op: int, result: int) -> Loops:
    """The loops of an op, by its rule."""
    name = op_name(step, op)
    inputs = list(dict.fromkeys(step.inputs[op].tolist()))
    rule = RULES.get(name, _element_wise)
    found = None if name in ORDERED else rule(tensors, inputs, result)
    return found or _opaque(tensors, inputs, result)


def _element_wise(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """The result has the axes of an operand of its size; smaller ones are broadcast along the last axes."""
    size = tensors.elements(result)
    like = [t for t in inputs if tensors.elements(t) == size and not tensors.is_weight(t)]
    if not like:
        return _reduced(tensors, inputs, result)
    output = tensors.of(like[0])
    walks = tuple(broadcast(tensors, tensor, output) for tensor in inputs)
    return Loops("elementwise", output, walks)


def _joined(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Pictures side by side: channels of the result come from several operands, so they stay whole."""
    shape, parts = tensors.shape(result), [tensors.of(t) for t in inputs]
    if len(shape) != 4 or any(len(own) != 4 for own in parts):
        return _element_wise(tensors, inputs, result)
    first = parts[0]
    output = (first[0], Axis(shape[1], "channel"), *first[2:])
    walks = tuple(Walk(t, (first[0], None, *first[2:])) for t in inputs)
    return Loops("concatenation", output, walks, whole=output[1:2])


def _reduced(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """A sum or mean over axes: those of the operand that the smaller result does not have."""
    data = [t for t in inputs if not tensors.is_weight(t)]
    if len(data) != 1 or tensors.elements(result) >= tensors.elements(data[0]):
        return None
    own = tensors.of(data[0])
    kept: list[Axis] = []
    left = [size for size in tensors.shape(result) if size > 1]
    for axis in own:
        if left and axis.size == left[0]:
            kept.append(axis)
            left = left[1:]
    return Loops("reduce", tuple(kept), (Walk(data[0], own),)) if not left else None


def _normalized(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Norms over the last axis, softmax: each device goes on with its own part once it knows the whole's
    statistics.
    """
    found = _element_wise(tensors, inputs, result)
    if found is None or not found.output:
        return found
    kind = "softmax" if len(inputs) == 1 else "normalization"
    if kind == "softmax" and found.output[-1].label == "feedforward":
        found.output[-1].label = "vocabulary"
    return Loops(kind, found.output, found.walks, statistics=found.output[-1:])


def _batch_normalized(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    """Statistics of a batch are each replica's own, as in training without synchronized norms."""
    output = tensors.of(inputs[0])
    if len(output) < 2:
        return None
    channel = output[1]
    walks = [Walk(t, (channel,)) for t in inputs[1:] if tensors.elements(t) == channel.size]
    return Loops("normalization", output, (Walk(inputs[0], output), *walks))


def _loss(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops | None:
    own = tensors.of(inputs[0])
    walks = [Walk(inputs[0], own)]
    walks += [broadcast(tensors, t, own) for t in inputs[1:] if tensors.elements(t) > 1]
    return Loops("reduce", (), tuple(walks))


def _opaque(tensors: Tensors, inputs: Sequence[int], result: int) -> Loops:
    """Only the batch, where operands and result have one, can be divided."""
    output = tensors.fresh(tensors.shape(result))
    walks = [
        Walk(t, tuple(axis if axis is tensors.batch else None for axis in tensors.of(t))) for t in inputs
    ]
    return Loops(
        "opaque", output, tuple(walks), whole=tuple(axis for axis in output if axis is not tensors.batch)
    )


RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "addmm"), products.product),
    **dict.fromkeys(("bmm", "baddbmm"), products.of_experts),
    **dict.fromkeys(("softmax", "log_softmax", "safe_softmax"), _normalized),
    **dict.fromkeys(("native_layer_norm", "fused_rms_norm", "rms_norm"), _normalized),
    **dict.fromkeys(("native_batch_norm", "native_batch_norm_legit_functional"), _batch_normalized),
    **dict.fromkeys(
        ("scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_efficient_attention"),
        products.attention,
    ),
    **dict.fromkeys(
        ("scaled_dot_product_flash_attention", "scaled_dot_product_attention"), products.attention
    ),
    **dict.fromkeys(("convolution", "conv2d"), products.convolution),
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d", "adaptive_avg_pool2d"), products.pool),
    "embedding": products.looked_up,
    "embedding_bag": products.looked_up,
    "cat": _joined,
    "topk": products.chosen,
    "index": products.gather,
    "index_add": products.scatter,
    "nll_loss_forward": _loss,
}
