"""Quantized weights on graph records.

Nodes that make the codes once, and nodes that turn them back in every call.

The codes are made in float64 by the arithmetic of ``quantization``, so both give the same ones. They lie as a
matrix of one row for each output channel: a byte each for 5 to 8 bits, packed into bytes for 2 to 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.compilation.interface import Draft, Ref, Symbol
from experiments.compilation.planning.numerics.quantization import Blocking, Scheme

FLOAT64 = Symbol("dtype", "float64")
FLOAT32 = Symbol("dtype", "float32")


@dataclass(frozen=True)
class StoredWeight:
    """A quantized weight as it is stored.

    - ``codes``: [channels, bytes of a row].
    - ``scales`` and, where affine, ``zeros``: [channels or 1, blocks of a row].
    - ``shape``: the weight's with the axis of channels first.
    - ``order``: the permutation that puts it there.
    """

    scheme: Scheme
    codes: Ref
    scales: Ref
    zeros: Ref | None
    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str

    @property
    def width(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def blocking(self) -> Blocking:
        return self.scheme.blocking(self.shape[0], self.width)

    @property
    def packed(self) -> bool:
        return self.scheme.stored_bits < 8


def store(draft: Draft, weight: Ref, scheme: Scheme, axis: int) -> StoredWeight:
    """Nodes, all computed once, that quantize a constant."""
    kind = draft.type(weight)
    order = (axis, *(number for number in range(len(kind.shape)) if number != axis))
    shape = tuple(kind.shape[number] for number in order)
    blocks = _blocks(draft, weight, scheme, shape, order)
    scales = _scales(draft, blocks, scheme)
    rounded = _once(draft, "round.default", _once(draft, "div.Tensor", blocks, _wide(draft, scales)))
    zeros = None if scheme.symmetric else _zeros(draft, blocks, scales, scheme)
    if zeros is not None:
        rounded = _once(draft, "add.Tensor", rounded, zeros)
    codes = _once(draft, "clamp.default", rounded, scheme.lowest, scheme.highest)
    codes = _laid(draft, codes, scheme, shape)
    per_row = scheme.blocking(shape[0], math.prod(shape[1:])).per_row
    scales = _once(draft, "reshape.default", scales, (-1, per_row))
    if zeros is not None:
        zeros = _once(draft, "reshape.default", _cast(draft, zeros, "uint8", once=True), (-1, per_row))
    return StoredWeight(scheme, codes, scales, zeros, shape, order, kind.dtype)


def _once(draft: Draft, op: str, *arguments: object) -> Ref:
    return draft.op(f"aten.{op}", *arguments, once=True)  # type: ignore[arg-type]


def _cast(draft: Draft, value: Ref, dtype: str, once: bool = False) -> Ref:
    if draft.type(value).dtype == dtype:
        return value
    return draft.op("aten._to_copy.default", value, dtype=Symbol("dtype", dtype), once=once)


def _wide(draft: Draft, value: Ref) -> Ref:
    return _cast(draft, value, "float64", once=True)


def _blocks(draft: Draft, weight: Ref, scheme: Scheme, shape: tuple[int, ...], order: tuple[int, ...]) -> Ref:
    """Return the weight in float64 as [rows, blocks of a row, weights of a block], padded with zeros."""
    width = math.prod(shape[1:])
    blocking = scheme.blocking(shape[0], width)
    matrix = _once(draft, "permute.default", _wide(draft, weight), order)
    matrix = _once(draft, "reshape.default", matrix, (shape[0], width))
    if blocking.padding:
        matrix = _once(draft, "constant_pad_nd.default", matrix, (0, blocking.padding), 0.0)
    return _once(draft, "reshape.default", matrix, (blocking.rows, blocking.per_row, blocking.size))


def _scales(draft: Draft, blocks: Ref, scheme: Scheme) -> Ref:
    if scheme.symmetric:
        spread = _once(draft, "amax.default", _once(draft, "abs.default", blocks), (-1,), True)
    else:
        above = _once(draft, "clamp_min.default", _once(draft, "amax.default", blocks, (-1,), True), 0)
        spread = _once(draft, "sub.Tensor", above, _below(draft, blocks))
    steps = scheme.highest - (0 if scheme.symmetric else scheme.lowest)
    scales = _cast(draft, _once(draft, "div.Scalar", spread, steps), scheme.scale, once=True)
    scales = _once(draft, "clamp_min.default", scales, scheme.smallest_scale)
    return _once(draft, "where.ScalarOther", _once(draft, "gt.Scalar", spread, 0), scales, 1.0)


def _below(draft: Draft, blocks: Ref) -> Ref:
    return _once(draft, "clamp_max.default", _once(draft, "amin.default", blocks, (-1,), True), 0)


def _zeros(draft: Draft, blocks: Ref, scales: Ref, scheme: Scheme) -> Ref:
    lowest = _once(draft, "div.Tensor", _below(draft, blocks), _wide(draft, scales))
    zeros = _once(draft, "rsub.Scalar", _once(draft, "round.default", lowest), scheme.lowest)
    return _once(draft, "clamp.default", zeros, scheme.lowest, scheme.highest)


def _laid(draft: Draft, codes: Ref, scheme: Scheme, shape: tuple[int, ...]) -> Ref:
    """Return codes as [channels, bytes of a row].

    Packed ones count from 0, the first of a byte in its lowest bits.
    """
    codes = _once(draft, "reshape.default", codes, (shape[0], -1))
    if scheme.stored_bits == 8:
        return _cast(draft, codes, "int8" if scheme.symmetric else "uint8", once=True)
    per_byte = 8 // scheme.stored_bits
    if scheme.lowest:
        codes = _once(draft, "sub.Scalar", codes, scheme.lowest)
    missing = -draft.type(codes).shape[1] % per_byte
    if missing:
        codes = _once(draft, "constant_pad_nd.default", codes, (0, missing), 0.0)
    codes = _once(draft, "reshape.default", codes, (shape[0], -1, per_byte))
    packed = _once(draft, "select.int", codes, 2, 0)
    for place in range(1, per_byte):
        moved = _once(
            draft, "mul.Scalar", _once(draft, "select.int", codes, 2, place), 1 << place * scheme.stored_bits
        )
        packed = _once(draft, "add.Tensor", packed, moved)
    return _cast(draft, packed, "uint8", once=True)


def unpack(draft: Draft, rows: Ref, stored: StoredWeight) -> Ref:
    """Return codes [n, bytes of a row] as [n, padded width], one to a byte.

    Where symmetric they are counted from zero.
    """
    scheme, blocking = stored.scheme, stored.blocking
    if not stored.packed:
        return rows
    mask = (1 << scheme.stored_bits) - 1
    parts = []
    for place in range(8 // scheme.stored_bits):
        moved = (
            draft.op("aten.bitwise_right_shift.Tensor_Scalar", rows, place * scheme.stored_bits)
            if place
            else rows
        )
        parts.append(draft.op("aten.bitwise_and.Scalar", moved, mask))
    codes = draft.op(
        "aten.reshape.default",
        draft.op("aten.stack.default", tuple(parts), -1),
        (draft.type(rows).shape[0], -1),
    )
    width = stored.width if scheme.granularity == "tensor" else blocking.per_row * blocking.size
    if draft.type(codes).shape[1] > width:
        codes = draft.op("aten.slice.Tensor", codes, 1, 0, width)
    if scheme.symmetric:
        codes = draft.op("aten.sub.Tensor", _cast(draft, codes, "int8"), scheme.highest)
    return codes


def values(draft: Draft, codes: Ref, scales: Ref, zeros: Ref | None, stored: StoredWeight) -> Ref:
    """Return ``scales (codes - zeros)`` of some rows as [n, width] in the weight's type."""
    wide = "float64" if stored.dtype == "float64" else "float32"
    rows = draft.type(codes).shape[0]
    per_row = draft.type(scales).shape[1]
    found = _cast(draft, unpack(draft, codes, stored), wide)
    found = draft.op("aten.reshape.default", found, (rows, per_row, -1))
    if zeros is not None:
        beside = draft.op("aten.unsqueeze.default", _cast(draft, zeros, wide), -1)
        found = draft.op("aten.sub.Tensor", found, beside)
    by_block = draft.op("aten.unsqueeze.default", _cast(draft, scales, wide), -1)
    found = draft.op("aten.reshape.default", draft.op("aten.mul.Tensor", found, by_block), (rows, -1))
    if draft.type(found).shape[1] > stored.width:
        found = draft.op("aten.slice.Tensor", found, 1, 0, stored.width)
    return _cast(draft, found, stored.dtype)


def whole(draft: Draft, stored: StoredWeight) -> Ref:
    """Return the weight that the codes stand for, in its own shape."""
    found = values(draft, stored.codes, stored.scales, stored.zeros, stored)
    found = draft.op("aten.reshape.default", found, stored.shape)
    back = tuple(stored.order.index(number) for number in range(len(stored.order)))
    return found if back == tuple(range(len(back))) else draft.op("aten.permute.default", found, back)


def looked_up(draft: Draft, stored: StoredWeight, indices: Ref) -> Ref:
    """Return rows of an embedding table.

    Codes and scales are looked up, only what was found is turned back.
    """

    def rows(table: Ref) -> Ref:
        found = draft.op("aten.embedding.default", table, indices)
        return draft.op("aten.reshape.default", found, (-1, draft.type(table).shape[1]))

    each = draft.type(stored.scales).shape[0] > 1 or stored.shape[0] == 1
    scales = rows(stored.scales) if each else stored.scales
    zeros = None if stored.zeros is None else rows(stored.zeros) if each else stored.zeros
    found = values(draft, rows(stored.codes), scales, zeros, stored)
    return draft.op("aten.reshape.default", found, (*draft.type(indices).shape, stored.width))
