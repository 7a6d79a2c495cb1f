"""Operators that reduce axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from experiments.models.onnx_ops.layout import axes_of
from experiments.models.onnx_ops.table import OPERATORS, How, Operator, operator


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...], bool], Tensor]] = {
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keep, dtype=x.dtype),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keep, dtype=x.dtype),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
}


def _reduction(reduce: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> Callable[..., Tensor]:
    def call(how: How, x: Tensor, axes: Any = None) -> Tensor:
        found = axes_of(how, axes)
        if not found and how.get("noop_with_empty_axes", 0):
            return x
        return reduce(x, tuple(found or range(x.ndim)), bool(how.get("keepdims", 1)))

    return call


for _name, _reduce in _REDUCTIONS.items():
    OPERATORS[_name] = Operator(_reduction(_reduce), frozenset({1}))


@operator("ArgMax")
def _argmax(how: How, x: Tensor) -> Tensor:
    return _position(how, x, torch.argmax)


@operator("ArgMin")
def _argmin(how: How, x: Tensor) -> Tensor:
    return _position(how, x, torch.argmin)


def _position(how: How, x: Tensor, find: Callable[..., Tensor]) -> Tensor:
    """The first of equal ones, or the last."""
    axis, keep = how.get("axis", 0), bool(how.get("keepdims", 1))
    if not how.get("select_last_index", 0):
        return find(x, axis, keep)
    return torch.sub(x.shape[axis] - 1, find(x.flip(axis), axis, keep))


@operator("Softmax")
def _softmax(how: How, x: Tensor) -> Tensor:
    return _over_classes(how, x, torch.softmax)


@operator("LogSoftmax")
def _log_softmax(how: How, x: Tensor) -> Tensor:
    return _over_classes(how, x, torch.log_softmax)


def _over_classes(how: How, x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Before version 13 all axes from ``axis`` on were one."""
    if how.version >= 13:
        return function(x, how.get("axis", -1))
    axis = how.get("axis", 1) % x.ndim
    return function(x.flatten(axis), -1).reshape(x.shape)


@operator("LpNormalization")
def _lp_normalization(how: How, x: Tensor) -> Tensor:
    """A vector of zeros stays one."""
    length = torch.linalg.vector_norm(x, how.get("p", 2), how.get("axis", -1), keepdim=True)
    return torch.where(length == 0, torch.zeros_like(x), x / length)
