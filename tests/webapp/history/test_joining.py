"""Blocks that are looked at together hold what each of them holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from webapp.history.segments import columns
from webapp.history.segments.columns import Block, Key, canonical, column_of, numbers_of
from webapp.history.segments.joining import join_blocks

ABSENT = object()
BATCH, LOSS = ("knob", "batch"), ("metric", "loss")
floats = st.one_of(st.just(ABSENT), st.floats(allow_nan=False))
anything = st.one_of(
    st.just(ABSENT),
    st.integers(-3, 12),
    st.sampled_from([1.0, 0.5, 2**60, True, False, None, "", "1", "many", [1], {"a": 1}]),
)
numbers = st.one_of(st.just(ABSENT), st.integers(-3, 12), st.sampled_from([1.0, 0.5]))
#: What the runs of a block have as knob and as figure.
of_a_block = st.one_of(
    st.lists(st.tuples(numbers, floats), min_size=1, max_size=9),
    st.lists(st.tuples(anything, floats), min_size=1, max_size=9),
)


def block_of(runs: Sequence[tuple[Any, Any]]) -> Block:
    found = {}
    for place, (key, column) in enumerate(((BATCH, column_of), (LOSS, numbers_of))):
        rows = [row for row, run in enumerate(runs) if run[place] is not ABSENT]
        if rows:
            found[key] = column([runs[row][place] for row in rows], rows, len(runs))  # type: ignore[operator]
    return Block(len(runs), found)


def values_of(block: Block, key: Key) -> list[Any]:
    """The value of each row."""
    column = block.columns.get(key)
    if column is None:
        return [ABSENT] * block.size
    codes, words = column.codes(block.size)
    return [ABSENT if code == len(words) else canonical(words[code]) for code in codes.tolist()]


@given(st.lists(of_a_block, min_size=1, max_size=6), st.integers(1, 60))
def test_each_row_has_its_values(histories: list[list[tuple[Any, Any]]], together: int) -> None:
    """So do those whose field is words in one block and many different numbers in another."""
    with mock.patch.object(columns, "FEW", 3):
        blocks = [block_of(runs) for runs in histories]
        few = list(join_blocks(blocks, together))
        wanted = [run[0] if run[0] is ABSENT else canonical(run[0]) for runs in histories for run in runs]
        assert [value for block in few for value in values_of(block, BATCH)] == wanted
        figures = [block.columns[LOSS].numbers(block.size) for block in few if LOSS in block.columns]
        assert np.concatenate([[], *(values[there] for values, there in figures)]).tolist() == [
            run[1] for runs in histories for run in runs if run[1] is not ABSENT
        ]
    assert all(block.size <= together or block.size in map(len, histories) for block in few)


def test_blocks_of_few_words_are_one() -> None:
    blocks = [block_of([(value, 0.5)]) for value in ("a", "b", "a")]
    (one,) = join_blocks(blocks)
    assert one.columns[BATCH].words == ("a", "b") and one.columns[BATCH].values.tolist() == [0, 1, 0]
    assert one.columns[LOSS].rows is None
