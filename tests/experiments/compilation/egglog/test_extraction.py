"""The cheapest selection of calls, against trying all of them; what is read twice is paid once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.policies.egglog.extraction import TermChoice, extract

Choices = Mapping[int, Sequence[TermChoice[str]]]


def cost_of(picked: Mapping[int, TermChoice[str]], root: int) -> float:
    """What ``picked`` costs from ``root`` on; infinite where it runs in a circle."""
    paid: dict[int, float] = {}

    def visit(owner: int, above: frozenset[int]) -> bool:
        if owner in above:
            return False
        paid[owner] = picked[owner].cost
        return all(visit(source, above | {owner}) for source in picked[owner].reads)

    return sum(paid.values()) if visit(root, frozenset()) else math.inf


def cheapest(choices: Choices, root: int) -> float:
    every = (dict(zip(choices, row, strict=True)) for row in itertools.product(*choices.values()))
    return min(cost_of(picked, root) for picked in every)


@st.composite
def graphs(draw: st.DrawFn) -> Choices:
    """Up to 6 classes of up to 3 calls, which may read any class (cycles included)."""
    size = draw(st.integers(1, 6))
    reads = st.lists(st.integers(0, size - 1), max_size=2).map(tuple)
    call = st.builds(TermChoice, st.just("call"), reads, st.integers(0, 5).map(float))
    return {owner: draw(st.lists(call, min_size=1, max_size=3)) for owner in range(size)}


@settings(max_examples=30)
@given(graphs())
def test_no_selection_is_cheaper(choices: Choices) -> None:
    best = cheapest(choices, 0)
    found = extract(choices, [0])
    if math.isinf(best):
        assert found is None
    else:
        assert found is not None and found.proved
        assert found.cost == pytest.approx(best) and cost_of(found.chosen, 0) == pytest.approx(best)


def test_what_two_readers_share_is_paid_once() -> None:
    """As a tree, two own calls of 3 beat a shared one of 4 read twice; as a graph the shared one wins."""
    choices: Choices = {
        0: [TermChoice("root", (1, 2), 0.0)],
        1: [TermChoice("own", (), 3.0), TermChoice("part", (3,), 0.0)],
        2: [TermChoice("own", (), 3.0), TermChoice("part", (3,), 0.0)],
        3: [TermChoice("shared", (), 4.0)],
    }
    found = extract(choices, [0])
    assert found is not None and found.cost == 4.0
    assert [found.chosen[owner].name for owner in found.chosen] == ["shared", "part", "part", "root"]
