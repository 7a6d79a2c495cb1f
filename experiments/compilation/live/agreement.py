"""Whether one result is another, place by place: types, infinities, whole numbers, and real ones by slice.

A real number may be off by rounding of the reference's type, and by a few times what eager itself is off,
both measured in the smallest slice (a channel, a row, a sample) that the place lies in: what a channel a
million times larger is off by allows its neighbors nothing. Where numbers cancel that is too little, so a
place beyond it is judged once more by what rounding itself moves it by (``reference.InFloat64``), which is
asked for only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

#: Relative difference allowed for reordered arithmetic, by dtype of the reference (2e-2: 8 bits of bfloat16).
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
#: The candidate may also be this many times as far from float64 as eager itself is.
EAGER_ALLOWANCE = 4.0
#: And this many times as far as a draw moves the place, which is ``sides.LOUDER`` than rounding: a place that
#: is moved by less than a tenth of what is usual in all of the draws is one in sixty million.
ROUNDING_ALLOWANCE = 4.0
#: After so many draws only what looks like a bend is drawn again. Where rounding decides on which side of a
#: bend a number is (a ReLU and its gradient) a draw takes the other side at most half of the time, so that of
#: a hundred right programs one had a bend that eight draws missed.
USUAL_DRAWS = 8
#: A bend moves what hangs on one number, a slice or less; a share of places above this is no bend.
OF_A_BEND = 0.1
#: A slice this much smaller than what went into it is 0, and float64 was off by what is left.
NOTHING = 1e-13


@dataclass(frozen=True)
class Triple:
    """One result of eager in float64, of eager as it is, and of the candidate, by its name."""

    name: str
    truth: Tensor
    plain: Tensor
    own: Tensor


def mismatch(plain: Tensor, own: Tensor) -> str:
    """Return how shape or type differ; empty where they are the same."""
    if plain.shape != own.shape:
        return f"has shape {tuple(own.shape)} instead of {tuple(plain.shape)}"
    if plain.dtype != own.dtype:
        return f"has type {own.dtype} instead of {plain.dtype}".replace("torch.", "")
    return ""


def disagreement(of: Triple, magnitude: float, moved: Callable[[], Iterator[Tensor]]) -> str:
    """Return the place at which ``own`` is not what eager computes; empty where it is everywhere.

    ``magnitude`` is the largest number that went in. ``moved`` gives the truth as random rounding makes it,
    one draw after the other.
    """
    if torch.equal(of.own, of.plain):
        return ""
    tolerance = TOLERANCE.get(real(of.plain).dtype)
    if tolerance is None:
        return _disagreement_of_wholes(of, moved)
    own, truth, plain = (real(value).double() for value in (of.own, of.truth, of.plain))
    truth = torch.where(plain.isfinite() & ~truth.isfinite(), plain, truth)
    same = (own == plain) | (own == truth) | (own.isnan() & (plain.isnan() | truth.isnan()))
    # What overflows in eager alone is right or overflows; what is infinite in float64 too stays so.
    may_overflow = ~plain.isfinite() & truth.isfinite() & ~own.isfinite()
    asked = ~same & ~may_overflow
    if not asked.any():
        return ""
    error = _off(own, truth)
    scale, floor = by_slice(truth), torch.finfo(real(of.plain).dtype)
    allowed = tolerance * scale + EAGER_ALLOWANCE * by_slice(_off(plain, truth).nan_to_num(0, 0))
    allowed += floor.tiny + EAGER_ALLOWANCE * floor.eps * magnitude * (scale <= NOTHING * magnitude)
    wrong = asked & ~(error <= allowed)
    for number, draw in enumerate(moved() if wrong.any() else (), 1):
        noise = _off(real(draw).double(), truth).nan_to_num(torch.inf)
        allowed = torch.maximum(allowed, ROUNDING_ALLOWANCE * by_slice(noise))
        wrong &= ~(error <= allowed)
        if _is_decided(wrong, number):
            break
    return _place(of, error, allowed, wrong)


def _disagreement_of_wholes(of: Triple, moved: Callable[[], Iterator[Tensor]]) -> str:
    """Return the same for whole numbers and truth values.

    They are equal, but for places at which eager itself, or rounding, gives others: one of those, then.
    """
    low, high = torch.minimum(of.plain, of.truth), torch.maximum(of.plain, of.truth)
    wrong = (of.own < low) | (of.own > high)
    for number, draw in enumerate(moved() if wrong.any() else (), 1):
        low, high = torch.minimum(low, draw), torch.maximum(high, draw)
        wrong &= (of.own < low) | (of.own > high)
        if _is_decided(wrong, number):
            break
    own, truth = of.own.double(), of.truth.double()
    return _place(of, _off(own, truth), (high.double() - low.double()), wrong)


def _is_decided(wrong: Tensor, draws: int) -> bool:
    """Return whether more draws than these can change nothing: all is right, or too much is wrong."""
    left = float(wrong.double().mean())
    return left == 0 or (draws >= USUAL_DRAWS and left > OF_A_BEND)


def _off(value: Tensor, truth: Tensor) -> Tensor:
    """Return the distance of each place; 0 where both are the same infinity or not a number."""
    same = (value == truth) | (value.isnan() & truth.isnan())
    return (value - truth).abs().masked_fill(same, 0)


def _place(of: Triple, error: Tensor, allowed: Tensor, wrong: Tensor) -> str:
    if not wrong.any():
        return ""
    worst = int(torch.where(wrong, error.nan_to_num(torch.inf), -1.0).argmax())
    own, truth = (real(value).flatten()[worst].item() for value in (of.own, of.truth))
    least = float(allowed.flatten()[worst])
    return f"element {worst} is {own:.6g} instead of {truth:.6g}, allowed difference {least:.3g}"


def real(value: Tensor) -> Tensor:
    """Return complex numbers as pairs of real ones, anything else as it is."""
    return torch.view_as_real(value) if value.is_complex() else value


def by_slice(value: Tensor) -> Tensor:
    """Return for each place the largest finite magnitude in the smallest of the slices that it lies in."""
    sizes = value.abs().nan_to_num(0, 0, 0)
    if value.dim() < 2 or not value.numel():
        return sizes
    least = torch.full_like(sizes, torch.inf)
    for kept in range(value.dim()):
        others = [place for place in range(value.dim()) if place != kept]
        least = torch.minimum(least, sizes.amax(others, keepdim=True))
    return least


def largest(values: Iterable[Tensor]) -> float:
    """Return the largest finite magnitude among real and complex numbers; 0 where there is none."""
    found = (real(x).abs().nan_to_num(0, 0, 0).max() for x in values if x.numel() and _counts(x))
    return max(map(float, found), default=0.0)


def _counts(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
