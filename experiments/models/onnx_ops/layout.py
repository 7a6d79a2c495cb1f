"""Operators that arrange elements: shapes, slices, joins, padding, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.table import How, operator


def axes_of(how: How, given: Any, name: str = "axes") -> list[int] | None:
    """Axes from the argument, or from the attribute of older versions."""
    found = how.get(name) if given is None else given
    return None if found is None else [int(axis) for axis in found]


@operator("Reshape", host=(1,))
def _reshape(how: How, x: Tensor, sizes: Any = None) -> Tensor:
    wanted = list(axes_of(how, sizes, "shape") or ())
    if not how.get("allowzero", 0):
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    return x.reshape(wanted)


@operator("Flatten")
def _flatten(how: How, x: Tensor) -> Tensor:
    axis = how.get("axis", 1)
    return x.reshape(math.prod(x.shape[:axis]), -1)


@operator("Transpose")
def _transpose(how: How, x: Tensor) -> Tensor:
    return x.permute(tuple(how.get("perm") or range(x.ndim - 1, -1, -1)))


@operator("Squeeze", host=(1,))
def _squeeze(how: How, x: Tensor, axes: Any = None) -> Tensor:
    found = axes_of(how, axes)
    return x.squeeze() if found is None else x.squeeze(tuple(found))


@operator("Unsqueeze", host=(1,))
def _unsqueeze(how: How, x: Tensor, axes: Any = None) -> Tensor:
    found = axes_of(how, axes) or []
    rank = x.ndim + len(found)
    for axis in sorted(axis % rank for axis in found):
        x = x.unsqueeze(axis)
    return x


@operator("Expand", host=(1,))
def _expand(how: How, x: Tensor, sizes: list[int]) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(sizes)))  # type: ignore[no-untyped-call]


@operator("Tile", host=(1,))
def _tile(how: How, x: Tensor, repeats: list[int]) -> Tensor:
    return x.repeat(repeats)


@operator("Concat")
def _concat(how: How, *parts: Tensor) -> Tensor:
    return torch.cat(parts, how.attributes["axis"])


@operator("Split", host=(1,))
def _split(how: How, x: Tensor, sizes: Any = None) -> tuple[Tensor, ...]:
    axis, wanted = how.get("axis", 0), axes_of(how, sizes, "split")
    if wanted is None:
        count = how.attributes["num_outputs"]  # the plan fills it in where older versions leave it out
        each = -(-x.shape[axis] // count)
        return torch.split(x, each, axis)
    return torch.split(x, wanted, axis)


@operator("Slice", host=(1, 2, 3, 4))
def _slice(
    how: How, x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Tensor:
    """Negative steps turn the axis around, which torch's slices cannot."""
    first, last = axes_of(how, starts, "starts") or [], axes_of(how, ends, "ends") or []
    chosen = axes_of(how, axes) or list(range(len(first)))
    for axis, start, end, step in zip(chosen, first, last, steps or [1] * len(first), strict=True):
        places = range(*slice(start, _end(end, x.shape[axis], step), step).indices(x.shape[axis]))
        if step > 0:
            x = torch.ops.aten.slice.Tensor(x, axis, places.start, max(places.stop, places.start), step)
        else:
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))
    return x


def _end(end: int, size: int, step: int) -> int | None:
    """Counting down, an end before the first element means: to the very first, which Python writes as
    ``None``.
    """
    return None if step < 0 and end < -size else end


@operator("Pad", host=(1, 2, 3))
def _pad(how: How, x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
    amounts = axes_of(how, pads, "pads") or []
    chosen = [axis % x.ndim for axis in axes] if axes else list(range(x.ndim))
    both = {axis: (amounts[i], amounts[i + len(chosen)]) for i, axis in enumerate(chosen)}
    flat = [amount for axis in reversed(range(x.ndim)) for amount in both.get(axis, (0, 0))]
    mode = how.get("mode", "constant")
    if mode == "constant":
        number = how.get("value", 0.0) if value is None else value
        return F.pad(x, flat, value=number if x.dtype.is_floating_point else int(number))
    while len(flat) > 2 and flat[-2:] == [0, 0]:  # torch pads at most the last three axes otherwise
        flat = flat[:-2]
    return _padded_by_copy(x, flat, {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}[mode])


def _padded_by_copy(x: Tensor, flat: Sequence[int], mode: str) -> Tensor:
    """torch copies edges of inputs [batch, channels, ...] only."""
    extra = len(flat) // 2 + 2 - x.ndim
    padded = F.pad(x[(None,) * max(extra, 0)], list(flat), mode=mode)
    return padded[(0,) * max(extra, 0)]


@operator("Trilu", host=(1,))
def _trilu(how: How, x: Tensor, diagonal: Any = 0) -> Tensor:
    return torch.triu(x, diagonal or 0) if how.get("upper", 1) else torch.tril(x, diagonal or 0)


@operator("DepthToSpace")
def _depth_to_space(how: How, x: Tensor) -> Tensor:
    size = how.attributes["blocksize"]
    if how.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, size)
    batch, depth, height, width = x.shape
    split = x.reshape(batch, size, size, depth // size**2, height, width).permute(0, 3, 4, 1, 5, 2)
    return split.reshape(batch, depth // size**2, height * size, width * size)


@operator("SpaceToDepth")
def _space_to_depth(how: How, x: Tensor) -> Tensor:
    size = how.attributes["blocksize"]
    if how.get("mode", "DCR") == "CRD":
        return F.pixel_unshuffle(x, size)
    batch, depth, height, width = x.shape
    split = x.reshape(batch, depth, height // size, size, width // size, size).permute(0, 3, 5, 1, 2, 4)
    return split.reshape(batch, depth * size**2, height // size, width // size)


@operator("Upsample", host=(1,))
def _upsample(how: How, x: Tensor, scales: Any = None) -> Tensor:
    factors = list(how.get("scales") if scales is None else scales)
    mode = {"nearest": "nearest", "linear": _linear(x.ndim - 2), "bilinear": "bilinear"}[
        how.get("mode", "nearest")
    ]
    return F.interpolate(x, scale_factor=factors[2:], mode=mode)


def _linear(rank: int) -> str:
    return {1: "linear", 2: "bilinear", 3: "trilinear"}[rank]


@operator("Resize", host=(1, 2, 3))
def _resize(how: How, x: Tensor, region: Any = None, scales: Any = None, sizes: Any = None) -> Tensor:
    """Nearest, linear and cubic where torch places pixels as asked; any other way is refused."""
    if how.version < 11:
        region, scales = None, region
    _refuse_forms(how)
    mode, corners = how.get("mode", "nearest"), _placing(how) == "align_corners"
    factors = scales or [wanted / n for wanted, n in zip(sizes, x.shape, strict=True)]
    if mode == "nearest":
        _check_nearest(how, factors)
    elif _placing(how) not in ("align_corners", "half_pixel", "pytorch_half_pixel"):
        raise ValueError(f"resizing with {_placing(how)}")
    if corners and scales and any(n * s % 1 for n, s in zip(x.shape, scales, strict=True)):
        raise ValueError("resizing to a broken number of pixels with align_corners")
    if _placing(how) == "pytorch_half_pixel" and sizes and 1 in sizes[2:]:
        raise ValueError("resizing to one pixel with pytorch_half_pixel")
    kind = {"nearest": "nearest", "linear": _linear(x.ndim - 2), "cubic": "bicubic"}[mode]
    size, factor = (list(sizes[2:]), None) if sizes else (None, list(scales[2:]))
    return F.interpolate(x, size, factor, kind, corners if kind != "nearest" else None)


def _placing(how: How) -> str:
    found: str = how.get("coordinate_transformation_mode", "half_pixel" if how.version > 10 else "asymmetric")
    return found


def _refuse_forms(how: How) -> None:
    for name in ("axes", "antialias", "exclude_outside"):
        if how.get(name):
            raise ValueError(f"resizing with {name}")
    if how.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise ValueError("resizing that keeps the aspect ratio")


def _check_nearest(how: How, factors: Sequence[float]) -> None:
    """torch takes the pixel at or before; by a whole factor the nearest of pixels placed at halves is the
    same one.
    """
    rounding = how.get("nearest_mode", "round_prefer_floor" if how.version > 10 else "floor")
    whole = all(factor >= 1 and factor % 1 == 0 for factor in factors)
    if (_placing(how), rounding) == ("asymmetric", "floor"):
        return
    if not (whole and _placing(how).endswith("half_pixel") and rounding.startswith("round")):
        raise ValueError(f"nearest resizing with {_placing(how)} and {rounding}")


@operator("ConstantOfShape", "Range", "Shape", "Size", "Constant")
def _known_beforehand(how: How, *_: Any) -> Tensor:
    """Evaluated where the graph is planned; reached only where its arguments depend on data."""
    raise ValueError("its result depends on the data")
