"""Operators of one element at a time, with broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.table import OPERATORS, How, Operator, operator
from experiments.workloads.program import DType

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{"Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh},
    **{"Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh},
    **{
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Floor": torch.floor,
        "HardSwish": F.hardswish,
        "IsNaN": torch.isnan,
    },
    **{"Log": torch.log, "Mish": F.mish, "Neg": torch.neg, "Not": torch.logical_not, "Relu": torch.relu},
    **{"Reciprocal": torch.reciprocal, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign},
    **{"Sin": torch.sin, "Sinh": torch.sinh, "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan},
    **{"Tanh": torch.tanh, "Softplus": F.softplus},
}
_BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    **{"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Equal": torch.eq},
    **{"Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le},
    **{"And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor},
}


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[How, Tensor], Tensor]:
    return lambda how, x: function(x)


def _binary(function: Callable[[Any, Any], Tensor]) -> Callable[[How, Any, Any], Tensor]:
    """At least one side is a tensor; torch wants the left one to be."""

    def call(how: How, left: Any, right: Any) -> Tensor:
        return function(left if isinstance(left, Tensor) else _like(left, right), right)

    return call


def _like(number: Any, other: Tensor) -> Tensor:
    return torch.full((), number, dtype=other.dtype, device=other.device)


for _name, _function in _UNARY.items():
    OPERATORS[_name] = Operator(_unary(_function))
for _name, _both in _BINARY.items():
    OPERATORS[_name] = Operator(_binary(_both), numbers=True)


@operator("Div", numbers=True)
def _div(how: How, left: Any, right: Any) -> Tensor:
    """Whole numbers are divided toward zero."""
    if not isinstance(left, Tensor):
        left = _like(left, right)
    whole = not left.dtype.is_floating_point
    return torch.div(left, right, rounding_mode="trunc" if whole else None)


@operator("Pow", numbers=True)
def _pow(how: How, base: Any, exponent: Any) -> Tensor:
    found = torch.pow(base, exponent)
    return found.to(base.dtype) if isinstance(base, Tensor) else found


@operator("Mod")
def _mod(how: How, left: Tensor, right: Tensor) -> Tensor:
    return torch.fmod(left, right) if how.get("fmod", 0) else torch.remainder(left, right)


@operator("Max")
def _max(how: How, *values: Tensor) -> Tensor:
    return functools.reduce(torch.maximum, values)


@operator("Min")
def _min(how: How, *values: Tensor) -> Tensor:
    return functools.reduce(torch.minimum, values)


@operator("Sum")
def _sum(how: How, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values)


@operator("Mean")
def _mean(how: How, *values: Tensor) -> Tensor:
    return functools.reduce(torch.add, values) / len(values)


@operator("IsInf")
def _is_inf(how: How, x: Tensor) -> Tensor:
    up, down = how.get("detect_positive", 1), how.get("detect_negative", 1)
    if up and down:
        return torch.isinf(x)
    return torch.isposinf(x) if up else torch.isneginf(x) if down else torch.zeros_like(x, dtype=torch.bool)


@operator("Clip", host=(1, 2))
def _clip(how: How, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    low, high = (how.get(name) if value is None else value for name, value in (("min", low), ("max", high)))
    return x if low is None and high is None else torch.clamp(x, low, high)


@operator("Where")
def _where(how: How, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(condition, yes, no)


@operator("Cast")
def _cast(how: How, x: Tensor) -> Tensor:
    wanted: DType = how.attributes["to"]
    return x.to(how.dtype(wanted))


@operator("CastLike")
def _cast_like(how: How, x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


@operator("Identity")
def _identity(how: How, x: Tensor) -> Tensor:
    return x


@operator("Dropout", host=(1, 2))
def _dropout(how: How, x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """At rate 0, as every model here; the mask is all true."""
    return x, torch.ones((), dtype=torch.bool, device=x.device).expand(x.shape)


@operator("Gelu")
def _gelu(how: How, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=how.get("approximate", "none"))


@operator("LeakyRelu")
def _leaky_relu(how: How, x: Tensor) -> Tensor:
    return F.leaky_relu(x, how.get("alpha", 0.01))


@operator("PRelu")
def _prelu(how: How, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


@operator("Elu")
def _elu(how: How, x: Tensor) -> Tensor:
    return F.elu(x, how.get("alpha", 1.0))


@operator("Celu")
def _celu(how: How, x: Tensor) -> Tensor:
    return F.celu(x, how.get("alpha", 1.0))


@operator("Selu")
def _selu(how: How, x: Tensor) -> Tensor:
    alpha, gamma = how.get("alpha", 1.67326319217681884765625), how.get("gamma", 1.05070102214813232421875)
    below = torch.clamp(alpha * torch.expm1(torch.clamp(x, max=0)), max=0)
    return torch.mul(torch.clamp(x, min=0) + below, gamma)


@operator("HardSigmoid")
def _hard_sigmoid(how: How, x: Tensor) -> Tensor:
    return torch.clamp(x * how.get("alpha", 0.2) + how.get("beta", 0.5), 0, 1)


@operator("ThresholdedRelu")
def _thresholded_relu(how: How, x: Tensor) -> Tensor:
    return F.threshold(x, how.get("alpha", 1.0), 0.0)


@operator("Swish")
def _swish(how: How, x: Tensor) -> Tensor:
    alpha = how.get("alpha", 1.0)
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)
