"""Operators that an exporter wrote out in pieces, put together again: GELU, SiLU and scaled dot-product
attention.

Before operator set 20 ONNX had no GELU, before 23 no attention, so exported transformers hold their formulas.
Run piece by piece these keep many more activations for the backward pass than the model did. An activation is
recognized by what it computes, not by how it is spelled: a chain of elementwise operations of one tensor that
has the function's values is the function. Attention is a softmax between two products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor

from experiments.models.exported import Call, Mode, Now
from experiments.workloads.program import Stored, Value, Weight

Floats = npt.NDArray[np.float64]

#: Where two functions are compared, and how far apart rounded constants may put them.
POINTS: Floats = np.linspace(-6.0, 6.0, 41)
TOLERANCE = 1e-5
#: Longest chain of elementwise operations that is looked at.
LONGEST = 12
#: What a mask adds where nothing may be seen.
HIDDEN = -1e4

_erf = np.vectorize(math.erf)
_ELEMENTWISE: Mapping[str, Callable[..., Floats]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power},
    **{"Neg": np.negative, "Tanh": np.tanh, "Erf": _erf, "Exp": np.exp, "Identity": np.positive},
    **{"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Reciprocal": np.reciprocal},
}
_CORES = ("Erf", "Tanh", "Sigmoid")
_SCALE = math.sqrt(2 / math.pi)
#: Activations by their values at ``POINTS``, with the function that is run instead.
_ACTIVATIONS: Mapping[str, tuple[Floats, Callable[[Mode, Tensor], Tensor]]] = {
    "Gelu": (POINTS / 2 * (1 + _erf(POINTS / math.sqrt(2))), lambda mode, x: F.gelu(x)),
    "Gelu by tanh": (
        POINTS / 2 * (1 + np.tanh(_SCALE * (POINTS + 0.044715 * POINTS**3))),
        lambda mode, x: F.gelu(x, approximate="tanh"),
    ),
    "Swish": (POINTS / (1 + np.exp(-POINTS)), lambda mode, x: F.silu(x)),
}


@dataclass
class _Graph:
    """Calls with who makes each value and how often it is read."""

    calls: list[Call]
    shapes: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Weight]
    outputs: frozenset[str]

    def __post_init__(self) -> None:
        self.maker = {name: index for index, call in enumerate(self.calls) for name in call.outputs if name}
        self.readers: dict[str, list[int]] = {}
        for index, call in enumerate(self.calls):
            for argument in call.arguments:
                if isinstance(argument, Value):
                    self.readers.setdefault(argument.name, []).append(index)

    def made_by(self, argument: Any, *operators: str) -> Call | None:
        """The call that made ``argument``, if it is one of ``operators``."""
        index = self.maker.get(argument.name, -1) if isinstance(argument, Value) else -1
        return self.calls[index] if index >= 0 and self.calls[index].op in operators else None

    def only_reader(self, name: str) -> int | None:
        """The one call that reads the value once.

        ``None`` where there are others or it is an output of the model.
        """
        found = self.readers.get(name, [])
        return found[0] if len(found) == 1 and name not in self.outputs else None

    def shape(self, argument: Any) -> tuple[int, ...]:
        return self.shapes.get(argument.name, ()) if isinstance(argument, Value) else ()


def fuse(
    calls: Sequence[Call],
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Weight],
    outputs: frozenset[str],
) -> tuple[Call, ...]:
    """``calls`` with written-out operators put together, and without what nobody reads any more."""
    graph = _Graph(list(calls), shapes, constants, outputs)
    changed: dict[int, Call] = {}
    for index, call in enumerate(graph.calls):
        found = None
        if call.op in _CORES:
            found = _activation(graph, index)
        elif call.op == "Softmax":
            found = _attention(graph, index)
        if found is not None:
            changed[found[0]] = found[1]
    return _living([changed.get(index, call) for index, call in enumerate(graph.calls)], outputs)


def _living(calls: Sequence[Call], outputs: frozenset[str]) -> tuple[Call, ...]:
    wanted, kept = set(outputs), []
    for call in reversed(calls):
        if wanted.intersection(call.outputs):
            kept.append(call)
            wanted.update(argument.name for argument in call.arguments if isinstance(argument, Value))
    return tuple(reversed(kept))


def _operands(call: Call) -> tuple[Any, ...]:
    """A call's arguments without the mode that stands first."""
    return call.arguments[1:]


def _activation(graph: _Graph, core: int) -> tuple[int, Call] | None:
    """The last call of the chain around ``core`` that is an activation of one of the values before it."""
    ends = [core, *_chain(graph, core)]
    sources = _sources(graph, core)
    for end in reversed(ends):
        result = graph.calls[end].outputs[0]
        for source in sources:
            values = _values(graph, Value(result), source, LONGEST)
            if values is None or np.ndim(values) == 0:
                continue
            for name, (expected, function) in _ACTIVATIONS.items():
                if np.allclose(values, expected, rtol=TOLERANCE, atol=TOLERANCE):
                    call = graph.calls[end]
                    return end, replace(call, function=function, arguments=(Now(), Value(source)), op=name)
    return None


def _chain(graph: _Graph, core: int) -> list[int]:
    """The elementwise calls behind ``core``, each the only reader of the one before."""
    found: list[int] = []
    reader = graph.only_reader(graph.calls[core].outputs[0])
    while reader is not None and graph.calls[reader].op in _ELEMENTWISE and len(found) < LONGEST:
        found.append(reader)
        reader = graph.only_reader(graph.calls[reader].outputs[0])
    return found


def _sources(graph: _Graph, core: int) -> list[str]:
    """Values that ``core`` may be a function of, nearest first."""
    found: list[str] = []
    todo = [argument for argument in _operands(graph.calls[core]) if isinstance(argument, Value)]
    while todo and len(found) < LONGEST:
        value = todo.pop(0)
        if value.name not in found:
            found.append(value.name)
            maker = graph.made_by(value, *_ELEMENTWISE)
            todo += (
                [argument for argument in _operands(maker) if isinstance(argument, Value)] if maker else []
            )
    return found


def _values(graph: _Graph, argument: Any, source: str, depth: int) -> Any:
    """``argument`` as a function of ``source`` at ``POINTS``; ``None`` where it depends on anything else."""
    if isinstance(argument, int | float):
        return float(argument)
    if isinstance(argument, Value) and argument.name == source:
        return POINTS
    call = graph.made_by(argument, *_ELEMENTWISE)
    if call is None or depth == 0:
        return None
    inner = [_values(graph, operand, source, depth - 1) for operand in _operands(call)]
    if any(value is None for value in inner):
        return None
    with np.errstate(all="ignore"):
        return _ELEMENTWISE[call.op](*inner)


def _attention(graph: _Graph, softmax: int) -> tuple[int, Call] | None:
    """softmax(scale x query x key^T + mask) x value, over [batch, heads, tokens, size], as one operator."""
    made = _without_nan(graph, graph.calls[softmax].outputs[0])
    end = graph.only_reader(made)
    if end is None or graph.calls[end].op != "MatMul":
        return None
    weights, value = _operands(graph.calls[end])
    scores, mask, causal = _strip_mask(graph, _operands(graph.calls[softmax])[0])
    scores, scale = _strip_scale(graph, scores)
    product = graph.made_by(scores, "MatMul")
    if product is None or weights != Value(made):
        return None
    query, first = _strip_scale(graph, _operands(product)[0])
    key, second = _strip_scale(graph, _operands(product)[1])
    tensors = (query, key, value)
    if any(len(graph.shape(entry)) != 4 for entry in tensors) or _axis(graph, softmax) != 3:
        return None
    factor, source = scale * first * second, _transpose_source(graph, key)

    def attend(mode: Mode, query: Tensor, key: Tensor, value: Tensor, *masks: Tensor) -> Tensor:
        key = key if source is not None else key.transpose(-1, -2)
        added = masks[0].to(query.dtype) if masks else None
        return F.scaled_dot_product_attention(query, key, value, added, is_causal=causal, scale=factor)

    arguments = (Now(), query, source or key, value, *((mask,) if mask is not None else ()))
    return end, replace(graph.calls[end], function=attend, arguments=arguments, op="Attention")


def _without_nan(graph: _Graph, weights: str) -> str:
    """Rows that a mask hides altogether are put to 0 by some exporters: ``Where(IsNaN(weights), 0,
    weights)``.
    """
    readers = [graph.calls[index] for index in graph.readers.get(weights, ())]
    if sorted(call.op for call in readers) != ["IsNaN", "Where"]:
        return weights
    test, choice = sorted(readers, key=lambda call: call.op)
    condition, zero, kept = _operands(choice)
    plain = isinstance(zero, Stored) and not any(graph.constants[zero.name].data)
    return (
        choice.outputs[0]
        if plain and (condition, kept) == (Value(test.outputs[0]), Value(weights))
        else weights
    )


def _axis(graph: _Graph, softmax: int) -> int:
    """The dimension of four that the weights sum to 1 over."""
    axis: int = graph.calls[softmax].attributes["axis"]
    return axis % 4


def _strip_mask(graph: _Graph, scores: Any) -> tuple[Any, Any, bool]:
    """Scores before a mask was added, the mask unless it only hides later tokens, and whether it
    does that.
    """
    call = graph.made_by(scores, "Add")
    if call is None:
        return scores, None, False
    left, right = _operands(call)
    if not graph.made_by(left, "MatMul", "Mul", "Div"):
        left, right = right, left
    if not isinstance(right, Value | Stored):
        return scores, None, False
    rows, columns = graph.shape(scores)[-2:]
    known = isinstance(right, Stored) and right.name in graph.constants and rows == columns
    if known and _hides_later(graph.constants[right.name], rows):
        return left, None, True
    return left, right, False


def _hides_later(weight: Weight, tokens: int) -> bool:
    """One triangle for all: 0 up to the own token, minus infinity or near it behind."""
    if weight.dtype not in ("float32", "float64", "float16") or weight.shape[-2:] != (tokens, tokens):
        return False
    if math.prod(weight.shape) != tokens * tokens:
        return False
    mask = np.frombuffer(weight.data, weight.dtype).reshape(tokens, tokens)
    later = np.triu(np.ones((tokens, tokens), bool), 1)
    return bool((mask[~later] == 0).all() and (mask[later] <= HIDDEN).all())


def _strip_scale(graph: _Graph, value: Any) -> tuple[Any, float]:
    """``value`` before it was multiplied or divided by a number, and the factor."""
    call = graph.made_by(value, "Mul", "Div")
    if call is None:
        return value, 1.0
    left, right = _operands(call)
    if isinstance(right, int | float) and right:
        return left, float(right) if call.op == "Mul" else 1.0 / right
    if isinstance(left, int | float) and call.op == "Mul":
        return right, float(left)
    return value, 1.0


def _transpose_source(graph: _Graph, key: Any) -> Value | None:
    """What ``key`` [b, h, size, tokens] is the transpose of, where it was made with the leading dimensions
    folded: reshaped to [b h, tokens, size], transposed, and reshaped back.
    """
    back = graph.made_by(key, "Reshape")
    turn = graph.made_by(_operands(back)[0], "Transpose") if back else None
    fold = graph.made_by(_operands(turn)[0], "Reshape") if turn else None
    if fold is None or turn is None or tuple(turn.attributes.get("perm", ())) != (0, 2, 1):
        return None
    source, flat = _operands(fold)[0], graph.shape(_operands(turn)[0])
    shape, target = graph.shape(source), graph.shape(key)
    if len(shape) != 4 or shape[2:] != flat[1:] or target != (*shape[:2], shape[3], shape[2]):
        return None
    return source if isinstance(source, Value) else None
