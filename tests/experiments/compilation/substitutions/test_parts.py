"""Where graphs are cut: chains that a reader can follow."""

from __future__ import annotations

from experiments.compilation.planning.substitutions.parts import (
    capacities,
    dominated_parts,
    flow_parts,
    minimum_cut,
    post_dominators,
    window,
)

CHAIN = {1: (), 2: (1,), 3: (2,), 4: (3,), 5: (4,), 6: (5,)}
MATCHES = ({1, 2, 3}, {4, 5, 6})


def test_a_chain_is_cut_between_its_matches() -> None:
    capacity = capacities(CHAIN, MATCHES)
    assert capacity == {1: 0, 2: 1, 3: 0, 4: 0, 5: 1, 6: 0}
    assert minimum_cut(list(CHAIN), CHAIN, capacity) == ([3], 0)
    assert flow_parts(list(CHAIN), CHAIN, capacity, threshold=3) == [[1, 2, 3], [4, 5, 6]]
    assert flow_parts(list(CHAIN), CHAIN, capacity, threshold=6) == [[1, 2, 3, 4, 5, 6]]


def test_a_cut_that_leaves_less_than_a_fifth_is_not_taken() -> None:
    crowded = dict.fromkeys(CHAIN, 1) | {1: 0}
    assert minimum_cut(list(CHAIN), CHAIN, crowded) == ([1], 0)
    assert flow_parts(list(CHAIN), CHAIN, crowded, threshold=3) == [[1, 2, 3, 4, 5, 6]]


def test_two_branches_are_cut_across_both() -> None:
    diamond = {1: (), 2: (1,), 3: (1,), 4: (2,), 5: (3,), 6: (4, 5)}
    capacity = {1: 5, 2: 5, 3: 1, 4: 1, 5: 5, 6: 5}
    assert minimum_cut(list(diamond), diamond, capacity) == ([3, 4], 2)


def test_post_dominators_and_what_crosses_them() -> None:
    diamond = {1: (), 2: (1,), 3: (1,), 4: (2, 3), 5: (4,)}
    assert post_dominators(list(diamond), diamond) == [1, 4, 5]
    assert dominated_parts(list(diamond), diamond, [{2, 4}, {4, 5}], threshold=4) == [[1], [2, 3, 4, 5]]
    assert dominated_parts(list(diamond), diamond, [{2, 4}], threshold=4) == [[1, 2, 3, 4], [5]]
    assert dominated_parts(list(diamond), diamond, [{1, 2}, {4, 5}], threshold=4) == [[1, 2, 3, 4, 5]]


def test_a_window_reaches_two_hops() -> None:
    readers = {node: [n for n, sources in CHAIN.items() if node in sources] for node in CHAIN}
    assert window([3], CHAIN, readers, 2) == {1, 2, 3, 4, 5}
