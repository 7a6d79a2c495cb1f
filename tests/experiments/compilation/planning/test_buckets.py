"""Sizes 1 to 64 in powers of two, worked out by hand, and what holds of any buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.compilation.interface.buckets import bucket_of, powers_of_two, sizes_from, waste
from experiments.compilation.live.padding.axes import Leak, PaddedAxis, reshape_axes
from experiments.core.errors import BadInput


def test_sizes_1_to_64_need_seven_buckets_and_waste_31_percent() -> None:
    """Bucket 2^k takes the 2^(k-1) sizes above 2^(k-1): P = 1 + sum of 2^k 2^(k-1) for k = 1..6 = 2731, U =
    2080.
    """
    sizes = range(1, 65)
    buckets = powers_of_two(sizes)
    assert buckets == (1, 2, 4, 8, 16, 32, 64)
    spent = waste(sizes, buckets)
    assert (spent.useful, spent.padded) == (2080, 2731)
    assert spent.of_useful == pytest.approx(0.313, abs=5e-4)


def test_a_finer_list_of_eleven_wastes_less() -> None:
    """1, 2, 4, then every eighth size: P = 1 + 2 + 2 4 + 4 8 + 8 (16 + 24 + ... + 64) = 2283."""
    buckets = (1, 2, 4, *range(8, 65, 8))
    assert len(buckets) == 11
    spent = waste(range(1, 65), buckets)
    assert (spent.useful, spent.padded) == (2080, 2283)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20))
def test_a_size_goes_into_the_smallest_bucket_that_holds_it(sizes: list[int]) -> None:
    buckets = powers_of_two(sizes)
    for size in sizes:
        bucket = bucket_of(size, buckets)
        assert size <= bucket < 2 * size
    assert 0 <= waste(sizes, buckets).of_useful < 1


def test_sizes_are_read_from_words() -> None:
    assert sizes_from("8, 1-3,2", "x") == (1, 2, 3, 8)
    for bad in ("0-3", "5-2", "a", "", "1,,2"):
        with pytest.raises(BadInput, match="x: "):
            sizes_from(bad, "x")
    with pytest.raises(BadInput, match="size 9 fits no bucket"):
        bucket_of(9, (4, 8))


def test_a_view_carries_the_axis_along() -> None:
    """[2, 5, 4] with the 5 padded, merged to [10, 4]: two runs of 5. Back again, and split where it cannot
    be.
    """
    axes = (None, PaddedAxis(), None)
    merged = reshape_axes((2, 5, 4), axes, (10, 4), 5)
    assert merged == (PaddedAxis(outer=2), None)
    assert reshape_axes((10, 4), merged, (2, 5, 2, 2), 5) == (None, PaddedAxis(), None, None)
    assert reshape_axes((2, 5, 4), axes, (2, 20), 5) == (None, PaddedAxis(inner=4))
    with pytest.raises(Leak, match="splits"):
        reshape_axes((2, 5, 4), axes, (4, 10), 5)
