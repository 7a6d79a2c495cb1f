"""Autocast (Micikevicius et al., ICLR 2018): weights in float32, products in a 16-bit type.

As ``torch.autocast``: the 16-bit copy of a trained weight is made once in a forward pass and held until the
pass ends, whoever uses it; what the backward pass needs of it lives on. Frozen weights are copied for each
use. Float16 gradients are not scaled: a scaler changes no bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.core.errors import BadInput
from experiments.core.precision import FULL

NONE = "none"


def refuse_narrow(autocast: str, dtype: str, precision: str) -> None:
    """Raise ``BadInput`` where there is no float32 weight to cast."""
    if autocast != NONE and (precision != FULL or dtype != "float32"):
        what = f"autocast {autocast!r} with dtype {dtype!r} and precision {precision!r}"
        raise BadInput(what, "options.autocast", f"dtype float32 and precision {FULL}")


class CastWatcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the copies that autocast makes of ``weights``."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights = {id(weight) for weight in weights}
        self.copies: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and id(args[0]) in self.weights:
            self.copies.append(out)
        return out


@contextlib.contextmanager
def casting(autocast: str, weights: Sequence[Tensor]) -> Iterator[None]:
    """Run what follows under autocast; copies of trained ``weights`` live until it ends."""
    if autocast == NONE:
        yield
        return
    device, dtype = weights[0].device.type, getattr(torch, autocast)
    watcher = CastWatcher([weight for weight in weights if weight.requires_grad])
    with torch.autocast(device, dtype=dtype, cache_enabled=True), watcher:
        yield
        with torch.no_grad():
            for copy in watcher.copies:
                copy.view(copy.shape)
