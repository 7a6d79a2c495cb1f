"""Many blocks as few: numpy takes as long for eight thousand rows as for some tens of thousands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webapp.history.segments.columns import Block, Column, Floats, Key, canonical, is_exact, narrow

#: Rows that are looked at together: a column of numbers of them fits into the caches of a core.
TOGETHER = 2**17
#: A column with the rows of its block and the row from which on they stand in the joined one.
Piece = tuple[Column, int, int]


class Mixed(Exception):
    """A field is words in one block and too many different numbers in another."""


def join_blocks(blocks: Sequence[Block], together: int = TOGETHER) -> Iterator[Block]:
    """The same rows in the same order."""
    for few in _batches(blocks, together):
        try:
            yield _join(few)
        except Mixed:
            yield from few


def _batches(blocks: Sequence[Block], together: int) -> Iterator[list[Block]]:
    few: list[Block] = []
    for block in blocks:
        if few and sum(one.size for one in few) + block.size > together:
            yield few
            few = []
        few.append(block)
    if few:
        yield few


def _join(blocks: Sequence[Block]) -> Block:
    pieces: dict[Key, list[Piece]] = {}
    size = 0
    for block in blocks:
        for key, column in block.columns.items():
            pieces.setdefault(key, []).append((column, block.size, size))
        size += block.size
    return Block(size, {key: _column(of_key, size) for key, of_key in pieces.items()})


def _column(pieces: Sequence[Piece], size: int) -> Column:
    columns = [column for column, _, _ in pieces]
    rows = _rows(pieces, size)
    if all(column.words is not None for column in columns):
        return _of_words(columns, rows)
    return Column(np.concatenate([_as_numbers(column) for column in columns]), None, rows)


def _rows(pieces: Sequence[Piece], size: int) -> NDArray[np.uint32] | None:
    """``None`` where all rows have a value."""
    if sum(len(column.values) for column, _, _ in pieces) == size:
        return None
    of_each = [
        np.arange(begins, begins + rows, dtype=np.uint32)
        if column.rows is None
        else column.rows + np.uint32(begins)
        for column, rows, begins in pieces
    ]
    return np.concatenate(of_each)


def _of_words(columns: Sequence[Column], rows: NDArray[np.uint32] | None) -> Column:
    """Words by their codes in all blocks; those that JSON takes to be equal are one, as in one block."""
    told = [word for column in columns for word in column.words or ()]
    words, codes = _code_numbers(told) if all(map(is_exact, told)) else _code_words(told)
    ends = np.cumsum([len(column.words or ()) for column in columns])
    tables = np.split(codes.astype(narrow(len(words))), ends[:-1])
    values = [table[column.values] for table, column in zip(tables, columns, strict=True)]
    return Column(np.concatenate(values), tuple(words), rows)


def _code_words(told: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    places: dict[Any, int] = {}
    codes = [places.setdefault(canonical(word), len(places)) for word in told]
    return [told[row] for row in np.unique(codes, return_index=True)[1]], np.array(codes)


def _code_numbers(told: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    _, first, codes = np.unique(np.array(told, np.float64), return_index=True, return_inverse=True)
    return [told[row] for row in first], codes


def _as_numbers(column: Column) -> Floats:
    numbers: Floats = column.values
    if column.words is not None:
        if not all(map(is_exact, column.words)):
            raise Mixed
        numbers = np.array(column.words, np.float64)[column.values]
    return numbers
