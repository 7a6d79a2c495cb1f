"""Quantized weights by hand: codes, zero points, sizes and the order of granularities."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.compilation.planning.numerics.quantization import Scheme, quantize, sqnr
from experiments.core.errors import BadInput


def test_an_affine_byte_from_minus_one_to_two_has_its_zero_at_85() -> None:
    # s = 3/255; -1 -> 0, 0 -> 85, 2 and (clipped with it) the largest -> 255.
    found = quantize([-1.0, 0.0, 2.0, 0.5], Scheme(granularity="tensor", symmetric=False))
    assert found.scales.item() == pytest.approx(3 / 255)
    assert found.zeros.item() == 85
    assert found.codes.ravel().tolist()[:3] == [0, 85, 255]
    # 0.5 / s = 42.5 rounds to the even 42 before the zero point comes on top: 127, where torch says 128.
    assert found.codes.ravel().tolist()[3] == 127


def test_symmetric_bytes_by_hand() -> None:
    found = quantize([-6.35, 2.54, 0.07], Scheme(granularity="tensor"))
    assert found.scales.item() == pytest.approx(0.05)
    assert found.codes.ravel().tolist() == [-127, 51, 1]


def test_a_tenth_of_noise_is_twenty_decibels() -> None:
    assert sqnr([1.0, -1.0], [0.9, -1.1]) == pytest.approx(20.0)
    assert sqnr([1.0, -1.0], [1.0, -1.0]) == math.inf
    assert sqnr([0.0], [1.0]) == -math.inf


def test_a_range_above_zero_is_widened_to_zero() -> None:
    found = quantize([1.0, 3.0], Scheme(granularity="tensor", symmetric=False))
    assert (found.scales.item(), found.zeros.item()) == (pytest.approx(3 / 255), 0)


def test_zero_channels_keep_a_scale_of_one_and_stay_zero() -> None:
    weight = np.array([[0.0, 0.0], [1.0, -2.0]])
    for symmetric in (True, False):
        found = quantize(weight, Scheme(symmetric=symmetric))
        assert found.scales.ravel()[0] == 1.0
        assert found.values[0].tolist() == [0.0, 0.0]


def test_an_outlier_row_costs_the_tensor_most_and_its_group_least() -> None:
    generator = np.random.default_rng(0)
    weight = generator.normal(size=(256, 256))
    weight[7] *= 100
    weight[7, ::64] *= 5

    def inliers(bits: int, granularity: str) -> float:
        kept = quantize(weight, Scheme(bits, granularity, 32)).values
        return sqnr(np.delete(weight, 7, 0), np.delete(kept, 7, 0))

    def all_rows(granularity: str) -> float:
        return sqnr(weight, quantize(weight, Scheme(8, granularity, 32)).values)

    assert all_rows("tensor") < all_rows("channel") < all_rows("group")
    assert inliers(8, "tensor") < inliers(8, "channel") < inliers(8, "group")
    # With 4 bits for the whole tensor every other row becomes zero: noise as strong as the signal.
    assert inliers(4, "tensor") == pytest.approx(0.0, abs=0.01)


def test_sizes_count_scales_and_zero_points_and_padding() -> None:
    four = Scheme(4, "group", 128, scale="float16")
    assert four.bytes(4096, 4096) == 8.25 * 2**20, "4.125 bits a weight"
    assert Scheme(8, "tensor").bytes(10, 10) == 100 + 4
    assert Scheme(8, "channel", symmetric=False).bytes(10, 10) == 100 + 10 * 5
    # 100 weights in groups of 32 are four groups, the last with 28 zeros: 128 codes of half a byte, 4 scales
    # of 4.
    ragged = Scheme(4, "group", 32)
    assert ragged.blocking(1, 100).padding == 28
    assert ragged.bytes(1, 100) == 64 + 16
    # Three bits lie in four, five in eight.
    assert (Scheme(3).stored_bits, Scheme(5).stored_bits, Scheme(2).stored_bits) == (4, 8, 2)


def test_channels_of_a_transposed_convolution_are_its_second_axis() -> None:
    weight = np.zeros((2, 3, 1, 1))
    weight[:, 1] = 100.0
    weight[:, 2] = 0.01
    kept = quantize(weight, Scheme(8, "channel"), axis=1)
    assert kept.scales.shape == (3, 1, 1)
    np.testing.assert_allclose(kept.values, weight)


def test_not_a_number_is_refused() -> None:
    with pytest.raises(BadInput, match="NaN"):
        quantize([1.0, math.nan], Scheme())


@pytest.mark.parametrize("largest", [1.1e-44, 1e-40, 1e-300])
@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_too_small_for_a_scale_stay_within_half_a_step(largest: float, symmetric: bool) -> None:
    found = quantize([0.0, largest], Scheme(3, symmetric=symmetric))
    assert (np.abs(found.values - [0.0, largest]) <= found.steps / 2).all()


@settings(max_examples=60)
@given(
    weight=st.integers(1, 5).flatmap(
        lambda rows: st.lists(
            st.lists(st.floats(-1e3, 1e3), min_size=7, max_size=7), min_size=rows, max_size=rows
        )
    ),
    bits=st.integers(2, 8),
    granularity=st.sampled_from(("tensor", "channel", "group")),
    symmetric=st.booleans(),
)
def test_no_weight_moves_by_more_than_half_a_step(
    weight: list[list[float]], bits: int, granularity: str, symmetric: bool
) -> None:
    found = quantize(weight, Scheme(bits, granularity, 3, symmetric))
    assert found.values.shape == np.shape(weight)
    bound = found.steps / 2 * (1 + 2**-20) + np.abs(weight) * 2**-20  # scales are float32
    assert (np.abs(found.values - np.asarray(weight)) <= bound).all()
    assert found.codes.min() >= found.scheme.lowest and found.codes.max() <= found.scheme.highest
