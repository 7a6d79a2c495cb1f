"""Operators that pick and place elements by index."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.table import How, operator


def _from_zero(indices: Tensor, size: int) -> Tensor:
    """Indices may count from the end."""
    return torch.where(indices < 0, indices + size, indices)


@operator("Gather")
def _gather(how: How, x: Tensor, indices: Any) -> Tensor:
    """Rows of a table by a whole tensor of indices are a lookup, as a model's embedding is."""
    axis = how.get("axis", 0)
    if axis == 0 and x.ndim == 2 and x.dtype.is_floating_point and indices.ndim:
        return F.embedding(_from_zero(indices, x.shape[0]), x)
    flat = _from_zero(indices.reshape(-1), x.shape[axis])
    picked = x.index_select(axis, flat)
    axis %= x.ndim
    return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def _gather_elements(how: How, x: Tensor, indices: Tensor) -> Tensor:
    axis = how.get("axis", 0)
    return x.gather(axis, _from_zero(indices, x.shape[axis]).long())


@operator("GatherND")
def _gather_nd(how: How, x: Tensor, indices: Tensor) -> Tensor:
    shared, depth = how.get("batch_dims", 0), indices.shape[-1]
    batch = x.shape[:shared]
    flat = x.reshape(math.prod(batch), *x.shape[shared:])
    places = indices.reshape(math.prod(batch), -1, depth)
    rows = torch.arange(flat.shape[0], device=x.device).unsqueeze(1)
    chosen = flat[(rows, *(places[..., i] for i in range(depth)))]
    return chosen.reshape(*indices.shape[:-1], *x.shape[shared + depth :])


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements")
def _scatter_elements(how: How, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis, kind = how.get("axis", 0), how.get("reduction", "none")
    places = _from_zero(indices, x.shape[axis]).long()
    if kind == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCTIONS[kind])


@operator("ScatterND")
def _scatter_nd(how: How, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    kind = how.get("reduction", "none")
    if kind not in ("none", "add"):
        raise ValueError(f"scattering with reduction {kind!r}")
    places = tuple(indices[..., i] for i in range(indices.shape[-1]))
    return x.index_put(places, updates, accumulate=kind == "add")


@operator("OneHot", host=(1,))
def _one_hot(how: How, indices: Tensor, depth: Any, values: Tensor) -> Tensor:
    """``values`` is [off, on]."""
    size = int(depth[0] if isinstance(depth, list) else depth)
    axis = how.get("axis", -1) % (indices.ndim + 1)
    places = torch.arange(size, device=indices.device).reshape(-1, *[1] * (indices.ndim - axis))
    hit = _from_zero(indices, size).unsqueeze(axis) == places
    return torch.where(hit, values[1], values[0])


@operator("TopK", host=(1,))
def _top_k(how: How, x: Tensor, count: Any = None) -> tuple[Tensor, Tensor]:
    chosen = how.get("k") if count is None else count
    size = int(chosen[0] if isinstance(chosen, list) else chosen)
    largest, ordered = bool(how.get("largest", 1)), bool(how.get("sorted", 1))
    values, indices = torch.topk(x, size, how.get("axis", -1), largest, ordered)
    return values, indices


@operator("CumSum", host=(1,))
def _cumsum(how: How, x: Tensor, axis: Any) -> Tensor:
    place = int(axis[0] if isinstance(axis, list) else axis)
    x = x.flip(place) if how.get("reverse", 0) else x
    total = torch.cumsum(x, place)
    total = total - x if how.get("exclusive", 0) else total
    return total.flip(place) if how.get("reverse", 0) else total
