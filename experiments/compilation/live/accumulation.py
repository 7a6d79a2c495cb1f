"""Rounding inside a sum of many terms: which axes an op adds up, and how the order of adding moves its terms.

A sum of n terms added one after the other rounds each partial sum once, so term j is as if it were
multiplied by all roundings behind it: by one plus a random walk of n - j steps. Of terms that cancel (a mean
near zero of numbers near one) this is the square root of n times what rounding the terms themselves moves
the sum by. Eager adds some sums in blocks or in more bits; a compiler need not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Normalizations over all axes but the channels, forward and backward.
BATCH_NORMS = frozenset(
    (
        *(
            "native_batch_norm",
            "native_batch_norm_backward",
            "_native_batch_norm_legit",
            "batch_norm_backward",
        ),
        *(
            "_native_batch_norm_legit_functional",
            "_batch_norm_with_update",
            "_batch_norm_with_update_functional",
        ),
        *("cudnn_batch_norm", "cudnn_batch_norm_backward"),
    )
)


def axes_added_up(op: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the axes of its first tensors over which an op sums; none where it is no such op."""
    first = args[0] if args else None
    if not isinstance(first, Tensor):
        return ()
    if op._schema.name.removeprefix("aten::") in BATCH_NORMS:
        return tuple(axis for axis in range(first.dim()) if axis != 1)
    if torch.Tag.reduction not in op.tags:
        return ()
    place = next((n for n, one in enumerate(op._schema.arguments) if one.name == "dim"), None)
    given = keywords.get("dim") if place is None or place >= len(args) else args[place]
    named = [given] if isinstance(given, int) else given
    return tuple(axis % max(first.dim(), 1) for axis in named) if named else tuple(range(first.dim()))


def random_walk(steps: Tensor, axes: Sequence[int]) -> Tensor:
    """Return sums of ``steps`` from each place to the last along ``axes``, taken together in order."""
    kept = [axis for axis in range(steps.dim()) if axis not in axes]
    order = [*kept, *axes]
    sizes = [steps.shape[axis] for axis in order]
    rows = steps.permute(order).reshape(*sizes[: len(kept)], math.prod(sizes[len(kept) :]))
    walk = rows.flip(-1).cumsum(-1).flip(-1).reshape(sizes)
    return walk.permute([order.index(axis) for axis in range(steps.dim())])
