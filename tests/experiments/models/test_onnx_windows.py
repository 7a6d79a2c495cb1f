"""Convolutions, pools and resizing of ONNX give what onnxruntime gives; what torch has not is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from tests.experiments.models.one_node import agrees, by_us, node_model, reals, whole  # noqa: E402

pytestmark = pytest.mark.torch

# --- windows --------------------------------------------------------------------------------------

pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
four = st.lists(st.integers(0, 2), min_size=4, max_size=4)
AUTOMATIC = ("SAME_UPPER", "SAME_LOWER", "VALID")


@settings(max_examples=25)
@given(pair, pair, pair, four, st.sampled_from([1, 2, 4]), st.booleans())
def test_convolutions(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: list[int],
    group: int,
    bias: bool,
) -> None:
    """Pads may differ at the two ends of an axis, which torch's own convolution does not know."""
    inputs = (reals(2, 4, 7, 9), reals(8, 4 // group, *kernel, seed=1), reals(8) if bias else None)
    agrees("Conv", *inputs, strides=strides, dilations=dilations, pads=pads, group=group)


@settings(max_examples=15)
@given(pair, pair, st.sampled_from(AUTOMATIC))
def test_convolutions_that_pad_themselves(
    kernel: tuple[int, int], strides: tuple[int, int], auto_pad: str
) -> None:
    agrees("Conv", reals(1, 2, 7, 8), reals(3, 2, *kernel), strides=strides, auto_pad=auto_pad)


@pytest.mark.parametrize("rank", [1, 3])
def test_convolutions_of_other_ranks(rank: int) -> None:
    size, kernel = (9, 7, 6)[:rank], (3, 2, 2)[:rank]
    attributes = {"strides": [2] * rank, "pads": [1] * rank + [0] * rank}
    agrees("Conv", reals(2, 3, *size), reals(4, 3, *kernel), **attributes)
    agrees("MaxPool", reals(2, 3, *size), kernel_shape=kernel, **attributes)
    agrees("AveragePool", reals(2, 3, *size), kernel_shape=kernel, **attributes)


@settings(max_examples=20)
@given(pair, st.tuples(st.integers(1, 3), st.integers(1, 3)), four, st.sampled_from([1, 2]), st.booleans())
def test_transposed_convolutions(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], group: int, extra: bool
) -> None:
    """``output_padding`` adds rows at the end, less than a stride of them; pads cut the result."""
    output_padding = [step - 1 for step in strides] if extra else [0, 0]
    sizes = [
        (size - 1) * step + width + more - pads[axis] - pads[axis + 2]
        for axis, (size, step, width, more) in enumerate(
            zip((4, 5), strides, kernel, output_padding, strict=True)
        )
    ]
    assume(min(sizes) > 0)
    inputs = reals(1, 4, 4, 5), reals(4, 3, *kernel, seed=1)
    agrees("ConvTranspose", *inputs, strides=strides, pads=pads, group=group, output_padding=output_padding)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolutions_to_a_wanted_size(auto_pad: str) -> None:
    """8 rows of a possible 9: one is cut, at the end or at the beginning."""
    inputs = reals(1, 2, 4, 4), reals(2, 3, 3, 3, seed=1)
    agrees("ConvTranspose", *inputs, strides=[2, 2], output_shape=[8, 8], auto_pad=auto_pad)


@settings(max_examples=25)
@given(st.tuples(st.integers(2, 4), st.integers(2, 4)), pair, four, st.booleans())
def test_maximum_pools(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], ceil: bool
) -> None:
    """Pads below half the window (torch's limit). Rounded up, no window may begin in the padding behind."""
    pads = [min(pad, kernel[axis % 2] // 2) for axis, pad in enumerate(pads)]
    agrees("MaxPool", reals(1, 2, 7, 9), kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=int(ceil))


def test_no_window_begins_in_the_padding_behind() -> None:
    """9 columns and one zero at each end by windows of 2 at every second place: the sixth would begin at
    the last zero.

    The rows are padded at one end only, so that all padding is made before the pool."""
    found = agrees(
        "MaxPool", reals(1, 2, 7, 9), kernel_shape=[2, 2], strides=[1, 2], pads=[0, 1, 1, 1], ceil_mode=1
    )
    assert found[0].shape == (1, 2, 7, 5)


@pytest.mark.parametrize("auto_pad", AUTOMATIC)
def test_pools_that_pad_themselves(auto_pad: str) -> None:
    for op in ("MaxPool", "AveragePool"):
        agrees(op, reals(1, 2, 7, 8), kernel_shape=[3, 2], strides=[2, 3], auto_pad=auto_pad)


def test_a_dilated_maximum() -> None:
    agrees("MaxPool", reals(1, 2, 9, 9), kernel_shape=[2, 3], dilations=[3, 2], pads=[1, 1, 1, 1])


@settings(max_examples=25)
@given(st.tuples(st.integers(2, 4), st.integers(2, 4)), pair, four, st.booleans())
def test_means_of_windows(
    kernel: tuple[int, int], strides: tuple[int, int], pads: list[int], count: bool
) -> None:
    """Zeros of the padding count or do not, also where the two ends are padded differently."""
    pads = [min(pad, kernel[axis % 2] // 2) for axis, pad in enumerate(pads)]
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "count_include_pad": int(count)}
    agrees("AveragePool", reals(1, 2, 7, 9), **attributes)


@pytest.mark.parametrize("count", [0, 1])
def test_means_of_windows_rounded_up(count: int) -> None:
    """7 by windows of 3 at every second place with one zero at each end, and 8, where the last window is
    short.
    """
    for size in (7, 8):
        attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": count}
        agrees("AveragePool", reals(1, 1, size, size), pads=[1, 1, 1, 1], **attributes)


def test_pools_of_everything() -> None:
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        agrees(op, reals(2, 3, 4, 5))
        agrees(op, reals(2, 3, 7))


# --- resizing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "placing", "scales"),
    [
        ("nearest", "asymmetric", (1, 1, 2, 1.5)),
        ("nearest", "asymmetric", (1, 1, 0.5, 0.7)),
        ("nearest", "half_pixel", (1, 1, 2, 3)),
        ("linear", "half_pixel", (1, 1, 2, 1.5)),
        ("linear", "half_pixel", (1, 1, 0.5, 0.5)),
        ("linear", "align_corners", (1, 1, 2, 1.5)),
        ("cubic", "half_pixel", (1, 1, 2, 1.5)),
    ],
)
def test_resizing_by_factors(mode: str, placing: str, scales: tuple[float, ...]) -> None:
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": placing}
    if mode == "nearest":
        attributes["nearest_mode"] = "floor" if placing == "asymmetric" else "round_prefer_floor"
    if mode == "cubic":
        attributes["cubic_coeff_a"] = -0.75
    agrees("Resize", reals(1, 2, 6, 6), None, np.array(scales, np.float32), **attributes)


def test_resizing_to_sizes() -> None:
    for mode, sizes in (("linear", (1, 2, 9, 4)), ("cubic", (1, 2, 12, 5))):
        agrees("Resize", reals(1, 2, 6, 6), None, None, whole(*sizes), mode=mode)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "ceil"},
        {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
        {"mode": "linear", "antialias": 1},
        {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
    ],
)
def test_resizing_in_ways_that_torch_has_not_is_refused(attributes: dict[str, Any]) -> None:
    inputs = (reals(1, 1, 6, 6), None, None, whole(1, 1, 9, 9))
    model = node_model("Resize", inputs, 21, **attributes)
    with pytest.raises(BadInput, match="resizing"):
        by_us(model, {"x0": inputs[0], "x3": inputs[3]}, "y0")  # type: ignore[dict-item]
