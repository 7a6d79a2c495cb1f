"""Dropout with the memory that it takes on a GPU, on every device: a mask of one byte for each value.

Torch's own on a CPU keeps a mask in the values' type. Attention by its formula (``attention`` math) has a
mask for every pair of tokens. A fused kernel draws inside and keeps none; torch's CPU kernel cannot, so that
there its dropout is left out, which takes the same memory.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class Dropout(nn.Module):
    """Dropout whose backward pass keeps a mask of one byte for each value."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def acts(self) -> bool:
        return self.training and self.rate > 0

    def forward(self, x: Tensor) -> Tensor:
        return torch.native_dropout(x, self.rate, True)[0] if self.acts else x


def keep_masks(model: nn.Module) -> None:
    """Carry out ``model`` within ``Masks``, from now on."""
    forward = model.forward

    def within(*args: Any, **kwargs: Any) -> Any:
        with Masks():
            return forward(*args, **kwargs)

    model.forward = within


class Masks(TorchFunctionMode):
    """Within it, torch's functions with dropout are those of this file."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is F.dropout:
            return _dropout(*args, **given)
        if func is F.scaled_dot_product_attention and given.get("dropout_p"):
            return _attention(*args, **given)
        return func(*args, **given)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, True)[0] if training and p else input


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch's own: the scale's root on queries and keys, the mask added, dropout on the weights."""
    fused: Any = torch.backends.cuda.flash_sdp_enabled
    if fused():
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    root = math.sqrt(scale or 1 / math.sqrt(query.shape[-1]))
    scores = (query * root) @ (key.transpose(-2, -1) * root)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -math.inf)
    scores = scores if attn_mask is None else scores + attn_mask
    return _dropout(scores.softmax(-1), dropout_p) @ value
