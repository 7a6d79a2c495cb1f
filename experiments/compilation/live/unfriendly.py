"""Inputs on which a wrong rewrite shows: other numbers, other signs, tiny, large and zero ones."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from experiments.compilation.live.backends.base import Inputs

#: By what real numbers are multiplied: small enough for what is added to count, large enough to drown it.
SCALES = (1e-3, 1e4)
GIVEN, DRAWN_ANEW = "as given", "drawn anew"


def unfriendly(inputs: Inputs, seed: int) -> list[tuple[str, Inputs]]:
    """Return the inputs as given, drawn anew, negated, scaled by ``SCALES`` and zero.

    Drawn anew: real numbers change places, whole ones and truth values are drawn from the range that the
    given ones have, which lies within whatever table they are looked up in. Changed are real numbers alone.
    """
    generator = torch.Generator().manual_seed(seed)

    def real(change: Callable[[Tensor], Tensor]) -> Inputs:
        return tuple(change(x) if _is_real(x) else x for x in inputs)

    cases = [(GIVEN, inputs), (DRAWN_ANEW, tuple(_drawn_anew(x, generator) for x in inputs))]
    if any(_is_real(x) for x in inputs):
        cases += [("negated", real(torch.neg))]
        cases += [(f"times {scale:g}", real(functools.partial(torch.mul, other=scale))) for scale in SCALES]
        cases += [("zero", real(torch.zeros_like))]
    return cases


def _is_real(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _drawn_anew(x: Tensor, generator: torch.Generator) -> Tensor:
    if _is_real(x) or not x.numel():
        order = torch.randperm(x.numel(), generator=generator).to(x.device)
        return x.flatten()[order].reshape(x.shape)
    low, high = int(x.min()), int(x.max())
    return torch.randint(low, high + 1, x.shape, generator=generator).to(device=x.device, dtype=x.dtype)
