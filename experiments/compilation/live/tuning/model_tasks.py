"""Operators that can be tuned.

Products and convolutions of a model or of a list, by shape, the heaviest first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from experiments.compilation.interface import Argument, Graph, GraphNode, Ref
from experiments.compilation.interface.tuning import Contraction, ScheduleSpace, TuningTask
from experiments.compilation.live.tuning.operators import conv2d, matmul, stages_of
from experiments.compilation.planning.tuning.schedules import sketch_space, template_space
from experiments.compilation.planning.tuning.sketches import derive
from experiments.workloads.operator_list import Operator as ListedOperator
from experiments.workloads.operator_list import OperatorList


@dataclass(frozen=True)
class ModelOperator:
    """One operator on one shape; ``calls`` in one run of the model; ``dtype`` of its operands."""

    nest: Contraction
    dtype: str
    calls: int

    @property
    def title(self) -> str:
        """``matmul m 256 n 768 k 768``."""
        sizes = " ".join(f"{axis} {extent}" for axis, extent in self.nest.axes)
        return f"{self.nest.operator} {sizes}"


#: A loop nest, where there is one, and the type of its operands.
Found = tuple[Contraction | None, str]


def heaviest(
    found: Iterable[Found], count: int, kinds: Sequence[str], dtypes: Sequence[str]
) -> tuple[ModelOperator, ...]:
    """Return the operators of these kinds and types with the most FLOPs in all, equal shapes together."""
    calls: dict[tuple[str, str], ModelOperator] = {}
    for nest, dtype in found:
        if nest is None or nest.operator not in kinds or dtype not in dtypes:
            continue
        known = calls.get((repr(nest), dtype))
        calls[repr(nest), dtype] = ModelOperator(nest, dtype, (known.calls if known else 0) + 1)
    ordered = sorted(calls.values(), key=lambda operator: -operator.nest.flops * operator.calls)
    return tuple(ordered[:count])


def of_graph(graph: Graph) -> Iterator[Found]:
    """Yield every op of a model."""
    return ((contraction_of(node, graph), node.dtype) for node in graph.computing)


def of_list(listed: OperatorList) -> Iterator[Found]:
    """Yield every operator of a list."""
    return ((_listed_nest(one), one.dtype) for one in listed.operators)


def _listed_nest(one: ListedOperator) -> Contraction | None:
    if one.kind == "matmul":
        return matmul(one.one("m"), one.one("n"), one.one("k"), math.prod(one.sizes.get("batch", ())))
    if one.kind != "conv" or len(one.sizes["x"]) != 4 or one.one("groups") != 1:
        return None
    (n, c, h, w), (r, q) = one.sizes["x"], one.sizes["kernel"]
    stride, padding, dilation = (
        one.sizes.get(name, default)
        for name, default in (("stride", (1, 1)), ("padding", (0, 0)), ("dilation", (1, 1)))
    )
    return conv2d((n, c, h, w), (one.one("filters"), c, r, q), _two(stride), _two(padding), _two(dilation))


def _two(sides: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = sides
    return rows, columns


def contraction_of(node: GraphNode, graph: Graph) -> Contraction | None:
    """Return the loop nest of a product or plain convolution; ``None`` of anything else.

    Biases are left to the next op.
    """
    name = node.target.removeprefix("aten.").split(".")[0]
    shapes = [graph.type(argument).shape if isinstance(argument, Ref) else () for argument in node.arguments]
    if name == "conv2d":
        return _convolution(node.arguments, shapes)
    if name == "linear":
        return matmul(math.prod(shapes[0][:-1]), shapes[1][0], shapes[0][-1])
    if name in ("mm", "bmm", "matmul"):
        return _product(shapes[0], shapes[1])
    return _product(shapes[1], shapes[2]) if name in ("addmm", "baddbmm") else None


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> Contraction | None:
    if len(right) == 2 and len(left) >= 2:
        return matmul(math.prod(left[:-1]), right[1], left[-1])
    if len(left) == len(right) > 2 and left[:-2] == right[:-2]:
        return matmul(left[-2], right[-1], left[-1], batch=math.prod(left[:-2]))
    return None


def _convolution(arguments: tuple[Argument, ...], shapes: Sequence[tuple[int, ...]]) -> Contraction | None:
    """Return ``conv2d(input, weight, bias, stride, padding, dilation, groups)`` with one group and padding in
    numbers.
    """
    defaults: tuple[Argument, ...] = (None, None, None, (1, 1), (0, 0), (1, 1), 1)
    stride, padding, dilation, groups = (*arguments, *defaults[len(arguments) :])[3:7]
    data, weight = shapes[0], shapes[1]
    if groups != 1 or len(data) != 4 or len(weight) != 4:
        return None
    sides = [_pair(value) for value in (stride, padding, dilation)]
    if any(side is None for side in sides):
        return None
    first, second, third = (side for side in sides if side is not None)
    (n, c, h, w), (f, _, r, q) = data, weight
    return conv2d((n, c, h, w), (f, c, r, q), first, second, third)


def _pair(value: Argument) -> tuple[int, int] | None:
    if isinstance(value, tuple) and len(value) in (1, 2) and all(isinstance(side, int) for side in value):
        first, last = value[0], value[-1]
        return (first, last) if isinstance(first, int) and isinstance(last, int) else None
    return None


def host_task(operator: ModelOperator, from_sketches: bool, cores: int) -> TuningTask:
    """Return the operator with the C++ schedules that its tuner chooses from."""
    nest = operator.nest
    sketches = derive(stages_of(nest), cores) if from_sketches else ()
    space: ScheduleSpace = sketch_space(nest, sketches) if from_sketches else template_space(nest)
    return TuningTask(operator.title, nest.operator, space, float(operator.calls), nest.flops, nest)
