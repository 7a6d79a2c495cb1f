"""Linear layers whose frozen weight is held in 8 or 4 bits, and made whole for one product at a time.

``nf4`` is QLoRA's (Dettmers et al., NeurIPS'23, section 3): 4-bit codes of 16 normal-float values, scaled by
the largest magnitude of each block of 64 weights. ``nf4-double`` holds those scales in 8 bits, with a float32
factor for 256 of them; the paper takes their mean away first, here the codes are unsigned to the same end.
``int8`` has a float32 scale for each output. On a GPU one kernel makes a weight whole again, so it is one op
of the step here, without temporaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Weights of one scale, scales of one factor, and what is made whole at a time.
BLOCK, GROUP = 64, 256
_PIECE = 2**14 * BLOCK

#: QLoRA, appendix E: the quantiles of a normal distribution, 0 among them.
NORMAL_FLOAT = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
    *(0.7229568362236023, 1.0),
)

Parts = dict[str, Tensor]


@torch.library.custom_op(
    "lab::dequantize_int8",
    mutates_args=(),
    schema="(Tensor codes, Tensor scales, ScalarType dtype) -> Tensor",
)
def _dequantize_int8(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    return (codes * scales).to(dtype)


@_dequantize_int8.register_fake
def _(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    return codes.new_empty(codes.shape, dtype=dtype)


@torch.library.custom_op(
    "lab::dequantize_nf4",
    mutates_args=(),
    schema="(Tensor codes, Tensor scales, SymInt[] shape, ScalarType dtype) -> Tensor",
)
def _dequantize_nf4(codes: Tensor, scales: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return _scaled_codes(codes, scales, shape, dtype)


@_dequantize_nf4.register_fake
def _(codes: Tensor, scales: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return codes.new_empty(shape, dtype=dtype)


@torch.library.custom_op(
    "lab::dequantize_nf4_double",
    mutates_args=(),
    schema="(Tensor codes, Tensor scales, Tensor factors, SymInt[] shape, ScalarType dtype) -> Tensor",
)
def _dequantize_nf4_double(
    codes: Tensor, scales: Tensor, factors: Tensor, shape: Sequence[int], dtype: torch.dtype
) -> Tensor:
    return _scaled_codes(codes, scales * factors.repeat_interleave(GROUP)[: len(scales)], shape, dtype)


@_dequantize_nf4_double.register_fake
def _(codes: Tensor, scales: Tensor, factors: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return codes.new_empty(shape, dtype=dtype)


def _scaled_codes(codes: Tensor, scales: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Two codes lie in a byte, the earlier weight's in its lower half. Piece by piece."""
    out = torch.empty(shape, dtype=dtype, device=codes.device)
    flat, values = out.view(-1), torch.tensor(NORMAL_FLOAT, device=codes.device)
    for start in range(0, out.numel(), _PIECE):
        packed = codes[start // 2 : (start + _PIECE) // 2]
        pairs = torch.stack((packed & 15, packed >> 4), 1).flatten()
        scale = scales[start // BLOCK : (start + _PIECE) // BLOCK].repeat_interleave(BLOCK)
        piece = flat[start : start + _PIECE]
        count = piece.numel()
        piece.copy_(values[pairs[:count].int()] * scale[:count])
    return out


def _int8(weight: Tensor, outputs: int) -> Parts:
    largest = weight.abs().amax(1 - outputs, keepdim=True)
    scales = torch.where(largest == 0, 1.0, largest / 127)
    return {"codes": (weight / scales).round().to(torch.int8), "scales": scales}


def _nf4(weight: Tensor, _: int) -> Parts:
    flat = weight.flatten()
    blocks = F.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(1)
    values = torch.tensor(NORMAL_FLOAT, device=weight.device)
    borders = (values[1:] + values[:-1]) / 2
    shares = blocks / torch.where(scales == 0, 1.0, scales)[:, None]
    pairs = torch.bucketize(shares, borders, out_int32=True).to(torch.uint8).view(-1, 2)
    codes = pairs[:, 0] | pairs[:, 1] << 4
    return {"codes": codes[: (flat.numel() + 1) // 2].clone(), "scales": scales}


def _nf4_double(weight: Tensor, outputs: int) -> Parts:
    whole = _nf4(weight, outputs)
    scales = whole["scales"]
    groups = F.pad(scales, (0, -scales.numel() % GROUP)).view(-1, GROUP)
    factors = groups.amax(1) / 255
    codes = (groups / torch.where(factors == 0, 1.0, factors)[:, None]).round().to(torch.uint8).flatten()
    return {"codes": whole["codes"], "scales": codes[: scales.numel()].clone(), "factors": factors}


#: How a float32 weight is held in each form, by the dimension of its outputs.
FORMS: dict[str, Callable[[Tensor, int], Parts]] = {"int8": _int8, "nf4": _nf4, "nf4-double": _nf4_double}


class QuantizedLinear(nn.Module):
    """``linear`` with its weight held in ``form``; nothing of it is trained.

    ``outputs`` is the dimension of the weight's outputs: 0, or 1 where it multiplies from the right.
    """

    def __init__(self, linear: Any, form: str, outputs: int) -> None:
        super().__init__()
        self.form, self.shape, self.outputs = form, tuple(linear.weight.shape), outputs
        for name, value in FORMS[form](linear.weight.detach().float(), outputs).items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))
        self.bias = linear.bias

    @property
    def own_dtypes(self) -> dict[str, torch.dtype]:
        """Types that the step's own does not replace."""
        return dict.fromkeys(("scales", "factors"), torch.float32)

    @property
    def weight_counts(self) -> dict[str, int]:
        """Weights that each parameter holds, where those are not its elements."""
        counts = {"codes": self.shape[0] * self.shape[1], "scales": 0, "factors": 0}
        return {name: count for name, count in counts.items() if hasattr(self, name)}

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """Return the weight in ``dtype``."""
        return _whole(self._weight_tensors, self.form, self.shape, dtype)

    @property
    def _weight_tensors(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name) for name in self.weight_counts)

    def forward(self, x: Tensor) -> Tensor:
        return self._multiply(x, self.bias)

    def product(self, x: Tensor) -> Tensor:
        """Return the layer's output without its bias."""
        return self._multiply(x, None)

    def _multiply(self, x: Tensor, bias: Tensor | None) -> Tensor:
        apply: Any = _Product.apply
        out: Tensor = apply(x, bias, self.form, self.shape, self.outputs, *self._weight_tensors)
        return out


def _whole(held: Sequence[Tensor], form: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if form == "int8":
        return torch.ops.lab.dequantize_int8(*held, dtype)  # type: ignore[no-any-return]
    if form == "nf4":
        return torch.ops.lab.dequantize_nf4(*held, shape, dtype)  # type: ignore[no-any-return]
    return torch.ops.lab.dequantize_nf4_double(*held, shape, dtype)  # type: ignore[no-any-return]


class _Product(torch.autograd.Function):
    """``x`` by a weight that is made whole for it, and again for the gradient; only what is held is saved."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        form: str,
        shape: tuple[int, ...],
        outputs: int,
        *held: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(*held)
        ctx.form, ctx.shape, ctx.outputs = form, shape, outputs
        weight = _whole(held, form, shape, x.dtype)
        return F.linear(x, weight if outputs == 0 else weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        weight = _whole(ctx.saved_tensors, ctx.form, ctx.shape, gradient.dtype)
        made = gradient.matmul(weight if ctx.outputs == 0 else weight.t())
        return made, *(None for _ in range(4 + len(ctx.saved_tensors)))
