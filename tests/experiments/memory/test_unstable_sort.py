"""The order that GNU's ``std::sort`` leaves: golden orders are the output of a C++ program."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.memory.planning.g10.priority import order_by
from experiments.memory.planning.g10.unstable_sort import gnu_order, ranks, sorted_as_gnu


def test_twenty_equal_elements_do_not_stay_in_order():
    assert gnu_order(np.zeros(20, np.int64)) == [
        10,
        19,
        18,
        17,
        16,
        15,
        14,
        13,
        12,
        11,
        0,
        9,
        8,
        7,
        6,
        5,
        4,
        3,
        2,
        1,
    ]


def test_ties_of_three_values_fall_as_in_the_library():
    assert gnu_order(np.array([3, 1, 2] * 8)) == [
        1,
        22,
        4,
        19,
        7,
        16,
        10,
        13,
        23,
        20,
        17,
        14,
        11,
        8,
        5,
        2,
        12,
        9,
        15,
        6,
        18,
        3,
        21,
        0,
    ]


def test_sixteen_elements_are_only_insertion_sorted_which_is_stable():
    keys = [2, 1] * 8
    assert gnu_order(np.array(keys)) == sorted(range(16), key=lambda i: keys[i])


def test_a_sequence_that_defeats_the_median_is_heap_sorted():
    half = 500
    killer = [0] * (2 * half)
    for i in range(half):
        killer[i] = i + 1 if i % 2 == 0 else half + i
        killer[half + i] = 2 * (i + 1)
    assert [killer[i] for i in gnu_order(np.array(killer))] == sorted(killer)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=200))
def test_it_sorts(keys):
    order = gnu_order(np.array(keys, np.int64))
    assert sorted(order) == list(range(len(keys)))
    assert [keys[i] for i in order] == sorted(keys)


def test_ranks_compare_column_by_column():
    first, second = np.array([1.0, 0.0, 1.0, 0.0]), np.array([5.0, 7.0, 4.0, 7.0])
    assert ranks([first, second]).tolist() == [2, 0, 1, 0]


def test_items_follow_their_keys_in_either_order():
    items = [f"i{k}" for k in range(20)]
    assert order_by(items, [0.0] * 20, "stable") == items
    assert order_by(items, [0.0] * 20, "artifact") == sorted_as_gnu(items, [0.0] * 20) != items
