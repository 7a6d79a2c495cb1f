"""Attention and its rotary positions, as operators of their own since version 23."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.models.onnx_ops.table import How, operator

ATTRIBUTES = {
    *("is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap"),
    "softmax_precision",
}


@operator("Attention")
def _attention(how: How, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """[batch, heads, tokens, size], or [batch, tokens, heads x size] with the numbers of heads as attributes.

    Without a cache of earlier tokens, without a cap on scores, and without the scores as an output.
    """
    unknown = set(how.attributes) - ATTRIBUTES
    if unknown:
        raise ValueError(f"attention with {min(unknown)}")
    if how.get("softcap", 0.0) or how.get("qk_matmul_output_mode", 0):
        raise ValueError("attention with capped or returned scores")
    flat = query.ndim == 3
    if flat:
        query = _heads(query, how.attributes["q_num_heads"])
        key, value = (_heads(part, how.attributes["kv_num_heads"]) for part in (key, value))
    shared = query.shape[1] != key.shape[1]
    causal = bool(how.get("is_causal", 0))
    if mask is not None:
        mask = _combine(mask, query.shape[2], key.shape[2]) if causal else mask
        mask = mask if mask.dtype == torch.bool else mask.to(query.dtype)
    mixed = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=causal and mask is None,
        scale=how.get("scale"),
        enable_gqa=shared,
    )
    return mixed.transpose(1, 2).flatten(2) if flat else mixed


def _combine(mask: Tensor, rows: int, columns: int) -> Tensor:
    """A mask, of truth values or of numbers to add, with later tokens hidden as well."""
    earlier = torch.ones(rows, columns, dtype=torch.bool, device=mask.device).tril()
    return mask & earlier if mask.dtype == torch.bool else mask.masked_fill(~earlier, float("-inf"))


def _heads(x: Tensor, heads: int) -> Tensor:
    batch, tokens, width = x.shape
    return x.reshape(batch, tokens, heads, width // heads).transpose(1, 2)


@operator("RotaryEmbedding")
def _rotary(how: How, x: Tensor, cosine: Tensor, sine: Tensor, places: Tensor | None = None) -> Tensor:
    """Pairs of elements turned by the angle of their token; halves are paired, or neighbors
    (``interleaved``).
    """
    flat = x.ndim == 3
    x = _heads(x, how.attributes["num_heads"]) if flat else x
    if places is not None:
        cosine, sine = cosine[places], sine[places]
    size = how.get("rotary_embedding_dim", 0) or x.shape[-1]
    turning, rest = x[..., :size], x[..., size:]
    cosine, sine = (table[:, None, :, : size // 2] for table in (cosine, sine))
    if how.get("interleaved", 0):
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning.chunk(2, -1)
    parts = (first * cosine - second * sine, first * sine + second * cosine)
    turned = torch.stack(parts, -1).flatten(-2) if how.get("interleaved", 0) else torch.cat(parts, -1)
    whole = torch.cat((turned, rest), -1)
    return whole.transpose(1, 2).flatten(2) if flat else whole
