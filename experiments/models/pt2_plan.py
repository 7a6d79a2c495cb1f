"""How an exported ATen graph runs: each target found in torch by its name, modes and devices those of the
moment.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from experiments.core.errors import BadInput
from experiments.models.exported import Call, Exported, Mode, Now, Planned, fill, run_one
from experiments.workloads.operators import ATEN_OPERATORS, SIZE_ARITHMETIC, UPDATE
from experiments.workloads.program import Device, GraphProgram, Node

#: Sizes beyond this are no sizes; arithmetic on them stops here.
LARGEST_SIZE = 1 << 62
_MODULES: Mapping[str, Any] = {"_operator": operator, "math": math, "torch": torch}
#: Where each operator says that it trains, and where it has a rate of dropping: by argument name.
TRAINING = {"batch_norm": "training", "instance_norm": "use_input_stats"}
DROPPING = {
    **{"dropout": "p", "dropout_": "p", "feature_dropout": "p", "native_dropout": "p"},
    **{
        "scaled_dot_product_attention": "dropout_p",
        "_scaled_dot_product_flash_attention_for_cpu": "dropout_p",
    },
}


def plan_calls(program: GraphProgram, shapes: Sequence[tuple[int, ...]], outputs: tuple[str, ...]) -> Planned:
    """The plan for inputs of ``shapes``, tried once on tensors without memory.

    ``BadInput`` names the failing node.
    """
    calls = tuple(_call(node) for node in program.nodes)
    plan = Planned(calls, program.constants, (), outputs)
    with _disable_current_modes(), FakeTensorMode(), torch.no_grad():
        out = _try_shapes(program, plan, shapes)
    return replace(plan, output_shape=tuple(out.shape))


def _try_shapes(program: GraphProgram, plan: Planned, shapes: Sequence[tuple[int, ...]]) -> Tensor:
    module = Exported(program, plan, weights=False).eval()
    mode, stored = module.mode(), module.stored_tensors()
    held: dict[str, Any] = {
        entry.name: torch.empty(shape, dtype=getattr(torch, entry.dtype))
        for entry, shape in zip(program.inputs, shapes, strict=True)
    }
    for index, call in enumerate(plan.calls):
        where = f"node {index} ({program.nodes[index].op} {call.name!r:.80})"
        arguments = [fill(argument, held, stored, mode) for argument in call.arguments]
        keywords = {name: fill(value, held, stored, mode) for name, value in call.keywords.items()}
        result = run_one(call, arguments, keywords, where)
        several = result if isinstance(result, tuple | list) else (result,)
        held.update(pair for pair in zip(call.outputs, several, strict=False) if pair[0])
    out: Tensor = held[program.output]
    return out


def _call(node: Node) -> Call:
    where = f"node {node.name!r:.80} ({node.op:.80})"
    own = _bound_sizes(node.op) if node.op in SIZE_ARITHMETIC else _OWN.get(node.op)
    if own is not None:
        first = () if node.op in SIZE_ARITHMETIC else (Now(),)
        return Call(own, node.name, node.scope, (*first, *node.arguments), node.keywords, node.outputs)
    _, name, overload = node.op.split(".")
    packet = getattr(torch.ops.aten, name, None) if name in ATEN_OPERATORS else None
    if packet is None or overload not in packet.overloads():
        raise BadInput("is unknown to this torch", where, f"an operator of torch {torch.__version__}")
    function = getattr(packet, overload)
    node = _as_trained(node, name, function)
    return Call(function, node.name, node.scope, node.arguments, node.keywords, node.outputs)


def _as_trained(node: Node, name: str, function: Any) -> Node:
    """Normalizations follow the model's mode, and nothing is dropped. Layouts are the usual one."""
    given = {entry.name: place for place, entry in enumerate(function._schema.arguments)}
    arguments, keywords = list(node.arguments), dict(node.keywords)
    keywords = {key: value for key, value in keywords.items() if key not in ("layout", "pin_memory")}
    for table, value in ((TRAINING, Now("training")), (DROPPING, 0.0)):
        argument = table.get(name)
        if argument in keywords:
            keywords[argument] = value
        elif argument in given and given[argument] < len(arguments):
            arguments[given[argument]] = value
    if "device" in given and _makes_tensors(function):
        keywords["device"] = Device()
    return replace(node, arguments=tuple(arguments), keywords=keywords)


def _makes_tensors(function: Any) -> bool:
    """A factory such as ``arange``: without a tensor among its arguments it would choose a device
    by itself.
    """
    entries = function._schema.arguments
    keyword = any(entry.name == "device" and entry.kwarg_only for entry in entries)
    return keyword and not any(str(entry.type) == "Tensor" for entry in entries)


def _normalized(
    mode: Mode, x: Tensor, scale: Any, bias: Any, mean: Tensor, variance: Tensor, *rest: Any
) -> tuple[Any, ...]:
    """Batch normalization of a program without in-place operations, and what else it would give: the saved
    statistics, which only its own backward pass would read, and the running ones, which are updated in place
    here.
    """
    rate, eps = rest[-2:]
    out = F.batch_norm(x, mean, variance, scale, bias, mode.training, rate, eps)
    return out, None, None, mean, variance


@torch.no_grad()
def _write_update(mode: Mode, buffer: Tensor, value: Tensor) -> None:
    """Write a buffer's new value, unless it was updated in place already."""
    if buffer is not value:
        buffer.copy_(value)


#: Carried out by functions of our own instead of the operator.
_OWN: Mapping[str, Callable[..., Any]] = {
    "aten._native_batch_norm_legit_functional.default": _normalized,
    "aten._native_batch_norm_legit_no_training.default": _normalized,
    UPDATE: _write_update,
}


def _bound_sizes(target: str) -> Callable[..., Any]:
    """Arithmetic on sizes whose results stay sizes."""
    module, _, name = target.partition(".")
    function = getattr(_MODULES[module], name)

    def call_bounded(*arguments: Any) -> Any:
        found = function(*arguments)
        if isinstance(found, int) and not isinstance(found, bool) and abs(found) > LARGEST_SIZE:
            raise ValueError(f"a size beyond {LARGEST_SIZE}")
        return found

    return call_bounded
