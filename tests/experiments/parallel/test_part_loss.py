"""Parts of products that are narrower than a tile take longer than an equal share."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.hardware import Link
from experiments.hardware.products import tile_seconds
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.planning.operators.operator_costs import OperatorCosts
from experiments.parallel.planning.operators.part_loss import PartLoss
from experiments.parallel.planning.operators.sharded_plan import sharded_plan
from experiments.parallel.policies.flexflow import FlexFlow
from experiments.parallel.policies.optcnn import OptCnn
from experiments.parallel.simulator import simulate
from experiments.workloads.einsum import Operand, Operator
from tests.experiments.parallel.builders import chain, cluster, estimate
from tests.experiments.parallel.test_optcnn import convolutions

ROWS = 81920


def product(rows: int, columns: int, inner: int) -> Operator:
    """Rows of a batch and a sequence times a weight of float32."""
    return Operator(
        name="product",
        kind="einsum",
        layer=0,
        sizes=(("batch", rows), ("out", columns), ("in", inner)),
        output=("batch", "out"),
        operands=(
            Operand(("batch", "in"), 4.0 * rows * inner),
            Operand(("out", "in"), 4.0 * columns * inner, parameter=0),
        ),
        output_bytes=4.0 * rows * columns,
    )


def computing(seconds: float) -> PlanningEstimate:
    """An estimate of one layer that takes so long, on a device whose peak is 1 FLOP/s."""
    return estimate(chain(1, seconds, 0.0), cluster(1, 2))


def tiles(rows: float, columns: float, inner: float) -> float:
    """Seconds of the tiles of the three products of a step."""
    device = cluster(1, 2).device
    passes = ((rows, columns, inner), (rows, inner, columns), (inner, columns, rows))
    return sum(tile_seconds(device, *sides, 1, "float32") for sides in passes)


def test_sixty_four_columns_in_sixty_four_parts_are_hardly_faster_than_one() -> None:
    """A part with one of 64 columns takes forward, and for its weight gradient, as long as the whole: it
    has as many tiles. The gradient of what it reads has an inner loop of 1 + 64 terms instead of 64 + 64.
    """
    forward = tile_seconds(cluster(1, 2).device, ROWS, 64, 64, 1, "float32")
    weight = tile_seconds(cluster(1, 2).device, 64, 64, ROWS, 1, "float32")
    found = PartLoss(computing(1.0), 1)(product(ROWS, 64, 64), {"out": 64})
    assert found == pytest.approx((forward * (1 + 65 / 128) + weight) / tiles(ROWS / 64, 64, 64))
    assert found > 40


def test_samples_and_wide_parts_lose_nothing() -> None:
    loss = PartLoss(computing(1.0), 1)
    assert loss(product(ROWS, 64, 64), {"batch": 64}) == 1.0
    assert loss(product(64, 65536, 4096), {"out": 2}) == 1.0
    assert loss(product(ROWS, 64, 64), {"batch": 1, "out": 1}) == 1.0
    assert loss(replace(product(ROWS, 64, 64), kind="softmax"), {"out": 64}) == 1.0


def test_where_data_move_longer_than_tiles_take_they_are_hidden() -> None:
    """A layer that takes ten times as long as its arithmetic loses a tenth of it."""
    operator = product(ROWS, 64, 64)
    flops = 3 * 2.0 * ROWS * 64 * 64
    whole = PartLoss(computing(flops), 1)(operator, {"out": 64})
    assert PartLoss(computing(10 * flops), 1)(operator, {"out": 64}) == pytest.approx(whole / 10)
    assert PartLoss(computing(1000 * flops), 1)(operator, {"out": 64}) == 1.0


@given(
    rows=st.integers(1, 2**14),
    columns=st.integers(1, 12),
    inner=st.integers(1, 12),
    parts=st.lists(st.integers(0, 6), min_size=2, max_size=2),
)
@settings(max_examples=60)
def test_a_part_takes_between_an_equal_share_and_all(
    rows: int, columns: int, inner: int, parts: list[int]
) -> None:
    operator = product(64 * rows, 2**columns, 2**inner)
    division = {"batch": 2 ** parts[0], "out": 2 ** min(parts[1], columns)}
    found = PartLoss(computing(1.0), 1)(operator, division)
    assert 1.0 <= found <= math.prod(division.values()) * 1.001


def test_a_convolution_of_few_channels_is_not_divided_by_them() -> None:
    """Sixteen channels on sixteen devices: what a division by channels gains on transfers, small tiles take
    away, in the costs and in the simulated step of the same plan.
    """
    hardware = cluster(1, 16, link=Link("link", 1e30, 0.0, True, "test"))
    model = convolutions(16, 16, image=64, seconds=1e9, batch=64)
    costs = OperatorCosts(estimate(model, hardware), 64)
    by_samples, by_channels = ((16, 1, 1, 1), (1, 1, 1, 16))
    assert costs.compute(1, by_channels) > 4 * costs.compute(1, by_samples)
    asked = estimate(model, hardware)
    steps = [
        simulate(sharded_plan(costs, [choice] * 2, {}), asked).step_time
        for choice in (by_samples, by_channels)
    ]
    assert steps[1] > 4 * steps[0]
    for policy in (OptCnn(), FlexFlow(budget=40)):
        plan = policy.place(model, hardware, 64, asked)
        assert simulate(plan, asked).step_time == pytest.approx(steps[0], rel=0.05)
