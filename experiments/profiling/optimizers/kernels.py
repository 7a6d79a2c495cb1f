"""Operations that torch has for numbers known before they run, with the number as a tensor of the step.

``torch.optim`` reads its step count with ``.item()`` and gives what follows from it to its operations as a
Python number, which a trace would freeze. These operations take the number as a tensor, read it when they run
and call torch's own.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op(
    "lab::lerp_", mutates_args=("value",), schema="(Tensor(a!) value, Tensor end, Tensor weight) -> ()"
)
def lerp_(value: Tensor, end: Tensor, weight: Tensor) -> None:
    """``value.lerp_(end, weight)`` by a number."""
    value.lerp_(end, weight.item())


@torch.library.custom_op(
    "lab::add_scaled_", mutates_args=("value",), schema="(Tensor(a!) value, Tensor other, Tensor scale) -> ()"
)
def add_scaled_(value: Tensor, other: Tensor, scale: Tensor) -> None:
    """``value.add_(other, alpha=scale)`` by a number."""
    value.add_(other, alpha=scale.item())


@torch.library.custom_op(
    "lab::foreach_addcdiv_",
    mutates_args=("values",),
    schema="(Tensor(a!)[] values, Tensor[] dividends, Tensor[] divisors, Tensor scale) -> ()",
)
def foreach_addcdiv_(
    values: list[Tensor], dividends: list[Tensor], divisors: list[Tensor], scale: Tensor
) -> None:
    """``torch._foreach_addcdiv_`` with one number for all."""
    torch._foreach_addcdiv_(values, dividends, divisors, scale.item())


for kernel in (lerp_, add_scaled_, foreach_addcdiv_):
    kernel.register_fake(lambda *arguments: None)
