"""A schedule's peers: torch's eager operator, and the library with its weight packed beforehand."""

from __future__ import annotations

import pytest

from experiments.compilation.interface.tuning import Contraction, ScheduleSpace, TuningTask
from experiments.compilation.live.ratios import PLACEMENT
from experiments.compilation.live.timing import Rounds
from experiments.compilation.live.tuning.child import difference
from experiments.compilation.live.tuning.operators import conv2d, matmul
from experiments.compilation.live.tuning.prepacked import prepacked_call
from experiments.compilation.live.tuning.reference import operands_of
from experiments.compilation.live.tuning.rivals import figures_over, row_of

pytestmark = pytest.mark.torch

CONVOLUTIONS = (
    conv2d((2, 3, 9, 8), (8, 3, 3, 2), (2, 1), (1, 2)),
    conv2d((1, 16, 7, 7), (32, 16, 3, 3), (1, 1), (1, 1)),
    conv2d((1, 4, 7, 7), (16, 4, 3, 3), (1, 1), (0, 0), (2, 1)),
)


@pytest.mark.parametrize("nest", CONVOLUTIONS)
def test_a_convolution_on_a_packed_weight_is_the_reference_within_rounding(nest: Contraction) -> None:
    """With strides, padding and dilation of both axes; its weight is packed once and never laid out again."""
    data = operands_of(nest, seed=0)
    call = prepacked_call(nest, data.in0, data.in1)
    assert call is not None
    found = call()
    assert not found.is_mkldnn, "the result is plain, as a schedule's is"
    data.in1.zero_()
    assert not difference(call().numpy(), data.reference.numpy(), data.bound.numpy())


def test_a_product_has_no_packed_form_because_a_schedule_has_none_either() -> None:
    data = operands_of(matmul(4, 8, 3), seed=0)
    assert prepacked_call(matmul(4, 8, 3), data.in0, data.in1) is None


def rounds(**seconds: float) -> Rounds:
    """Nine rounds that all took the same."""
    return Rounds({name: [value] * 9 for name, value in seconds.items()}, seed=0)


def task(name: str, calls: float) -> TuningTask:
    return TuningTask(name, "conv2d", ScheduleSpace(()), calls, flops=10.0)


def test_a_library_is_the_faster_of_its_two_operators() -> None:
    """Two calls of 1 s against 3 (packed: 2) and one of 2 s against 4 (packed: 5, slower than unpacked).

    Over eager (2 x 3 + 4) / 4 = 2.5, over the library (2 x 2 + 4) / 4 = 2: a claim is held to the latter.
    """
    first = rounds(ours=1.0, torch=3.0, prepacked=2.0)
    second = rounds(ours=2.0, torch=4.0, prepacked=5.0)
    row = row_of(first)
    assert (row["speedup"], row["speedup_over_prepacked"]) == (3.0, 2.0)
    metrics, notes = figures_over((task("a", 2.0), task("b", 1.0)), (first, second), 0)
    assert metrics["speedup"] == 2.5
    assert metrics["speedup_over_library"] == 2.0
    assert metrics["speedup_over_library_low"] == 2.0 / (1 + PLACEMENT)
    assert metrics["latency"] == 4.0
    assert notes == {}


def test_a_task_without_a_packed_form_has_torchs_operator_as_its_library() -> None:
    alone = rounds(ours=1.0, torch=3.0)
    assert "prepacked_seconds" not in row_of(alone)
    metrics, _ = figures_over((task("a", 1.0),), (alone,), 0)
    assert metrics["speedup_over_library"] == metrics["speedup"] == 3.0
