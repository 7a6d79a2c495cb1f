"""FLOPs and bytes of one ATen op, from the shapes of its arguments.

FLOPs are those of matrix products, convolutions and attention (two for a multiply-add), by torch's own
registry; everything elementwise counts 0, as is usual for MFU. Attention counts all pairs of tokens, causal
or not, again as torch's registry does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten


def _products(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int]:
    """FLOPs of query x key and of weights x value; [batch, heads, tokens, size] each."""
    batch, heads, tokens, size = query.shape
    pairs = 2 * batch * heads * tokens * key.shape[2]
    return pairs * size, pairs * value.shape[3]


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> int:
    return sum(_products(query, key, value))


def _attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> int:
    """Scores again, then the gradients of weights, value, query and key."""
    scores, mixing = _products(query, key, value)
    return 3 * scores + 2 * mixing


def _matrix_vector(matrix: Tensor, vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _dot(left: Tensor, right: Tensor, **_: Any) -> int:
    return 2 * left.numel()


def _addmv(_: Tensor, matrix: Tensor, vector: Tensor, **__: Any) -> int:
    return 2 * matrix.numel()


def _grouped_flops(left: Tensor, right: Tensor, *_: Any, **__: Any) -> int:
    """Rows sorted by group: each row of ``left`` meets one matrix of ``right`` [groups, k, n], or, for the
    gradient of those matrices, ``left`` [k, rows] meets ``right`` [rows, n].
    """
    return 2 * left.shape[-2] * left.shape[-1] * right.shape[-1]


#: Where torch's registry has nothing: the CPU's fused attention and products with vectors.
OWN_FLOPS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._grouped_mm: _grouped_flops,
    aten.mv: _matrix_vector,
    aten.addmv: _addmv,
    aten.dot: _dot,
}

#: Ops that read only the rows they pick from their first argument (or write only those).
GATHERS = {aten.embedding, aten.index_select, aten.gather, aten.index, aten.take, aten._embedding_bag}
#: Ops that give memory without touching it.
ALLOCATIONS = {
    aten.empty,
    aten.empty_like,
    aten.new_empty,
    aten.empty_strided,
    aten.new_empty_strided,
    aten.empty_permuted,
}
#: In-place ops that write their first argument without reading it.
OVERWRITES = {aten.copy_, aten.zero_, aten.fill_}


def flops(target: Any, args: Any, kwargs: Any, out: Any) -> int:
    """FLOPs of ``target`` on (fake) tensors; 0 for ops that multiply no matrices."""
    packet = getattr(target, "overloadpacket", None)
    if packet in OWN_FLOPS:
        return OWN_FLOPS[packet](*args, **kwargs)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=out))
    return 0


def recomputed_flops(target: Any, args: Any) -> int:
    """FLOPs that a fused attention's backward spends on recomputing the scores.

    They are no part of the model's own FLOPs.
    """
    name = str(target)
    if "_scaled_dot_product" not in name or "backward" not in name:
        return 0
    return _products(*args[1:4])[0]


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def extent(value: Tensor) -> int:
    """Bytes of the elements that ``value`` shows; an expanded tensor shows its storage once."""
    return min(value.numel() * value.element_size(), value.untyped_storage().nbytes())


def _sum_distinct(values: Iterable[Tensor]) -> int:
    return sum(
        {(v.untyped_storage()._cdata, v.storage_offset(), v.shape): extent(v) for v in values}.values()
    )


def picks(target: Any) -> bool:
    """Whether ``target`` reads only what it picks from its first argument."""
    return getattr(target, "overloadpacket", None) in GATHERS


def count_bytes_moved(target: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Bytes read plus bytes written, each argument once; scattered reads count what they pick."""
    packet = getattr(target, "overloadpacket", None)
    if packet in ALLOCATIONS:
        return 0
    read = tensors((args, kwargs))
    written = _sum_distinct(tensors(out))
    if packet in OVERWRITES:
        return _sum_distinct(read[1:]) + written
    if picks(target):
        return _sum_distinct(read[1:]) + 2 * written
    return _sum_distinct(read) + written
