"""Seconds of a layer on a device whose rates are round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments import hardware
from experiments.hardware.parts import Peaks
from experiments.workloads.kernel_times import PassSeconds, layer_seconds, timed_by_kernels, work_seconds
from experiments.workloads.kernels import WHOLE, Cut, Product, Work
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import OPERATORS, transformer_layers

_A100 = hardware.resolve("a100-40g").device
#: 100 bytes and 1,000 FLOPs a second, one multiprocessor, tiles without start or end; a second between
#: kernels.
SLOW = replace(
    _A100,
    memory_bandwidth=100.0,
    peak_flops=Peaks({"float16": 1000.0, "float32": 500.0}),
    kernels=replace(
        _A100.kernels,
        multiprocessors=1,
        product_efficiency=1.0,
        fill=0.0,
        stream_efficiency=1.0,
        attention_efficiency=0.5,
        launch=1.0,
    ),
)
#: One tile of 64 x 64: 2 x 64 x 64 x 10 FLOPs at 0.6 of 1,000 a second.
TILE = 81920 / 600


def test_a_stream_is_its_bytes_and_its_launches() -> None:
    """300 bytes by two kernels: 3 s and 2 s; backward 500 bytes."""
    work = Work(forward_traffic=300.0, backward_traffic=500.0, launches=2)
    assert work_seconds(SLOW, work, 1, WHOLE, "float16") == PassSeconds(5.0, 7.0, 0.0)


def test_half_a_stream_is_half_its_bytes_but_all_of_its_launches() -> None:
    work = Work(forward_traffic=300.0, backward_traffic=500.0, launches=2)
    assert work_seconds(SLOW, work, 2, Cut(4, outputs=4), "float16") == PassSeconds(3.5, 4.5, 0.0)


def test_a_fused_kernel_runs_half_of_a_causal_matrix_and_five_products_for_two() -> None:
    """2 x 10 x 10 x 5 FLOPs twice are 2,000; half of them at 500 a second is 2 s, backward 2.5 times that."""
    product = Product(10, 10, 5, weight=False)
    causal = Work((product, product), fused=True, causal=True)
    assert work_seconds(SLOW, causal, 1, WHOLE, "float16") == PassSeconds(1 + 2, 1 + 5, 0.0)
    whole = replace(causal, causal=False)
    assert work_seconds(SLOW, whole, 1, WHOLE, "float16") == PassSeconds(1 + 4, 1 + 10, 0.0)


def test_a_product_pays_for_whole_tiles() -> None:
    """One row and one column cost a tile as 64 and 64 do; 65 rows cost two."""
    small, full, over = (
        Work((Product(rows, 10, columns),)) for rows, columns in ((1, 1), (64, 64), (65, 64))
    )
    seconds = [work_seconds(SLOW, work, 1, WHOLE, "float16").forward for work in (small, full, over)]
    assert seconds[0] == seconds[1] == pytest.approx(1 + TILE)
    # Two tiles of 64 x 64 at 0.6, or one of 128 x 64 at 0.8: the library takes the faster.
    assert seconds[2] == pytest.approx(1 + 2 * 81920 / 800)


def test_gradients_are_added_by_each_device_for_its_part_of_the_weight() -> None:
    """600 bytes for each micro-batch, whatever the samples: cut by columns and rows, not by tokens."""
    work = Work((Product(64, 10, 64),), gradient_traffic=600.0)
    bare = replace(work, gradient_traffic=0.0)

    def added(samples: float, cut: Cut) -> float:
        of_both = (work_seconds(SLOW, one, samples, cut, "float16").weight for one in (work, bare))
        return next(of_both) - next(of_both)

    assert added(1, WHOLE) == pytest.approx(1 + 6)
    assert added(5, WHOLE) == pytest.approx(1 + 6)
    assert added(1, Cut(8, outputs=2, inputs=2)) == pytest.approx(1 + 1.5)


def test_a_work_has_a_type_of_its_own() -> None:
    """float32 runs at half the rate, and a product that is float16 does not."""
    product = Product(64, 10, 64)
    slow, fast = (
        work_seconds(SLOW, Work((product,), dtype=dtype), 1, WHOLE, "float32") for dtype in ("", "float16")
    )
    assert slow.forward - 1 == pytest.approx(2 * (fast.forward - 1))


def test_operators_of_a_layer_run_one_after_another() -> None:
    norm = Work(forward_traffic=300.0, backward_traffic=500.0, launches=2)
    linear = Work((Product(64, 10, 64),))
    parts = [work_seconds(SLOW, one, 1, WHOLE, "float16") for one in (norm, linear)]
    both = layer_seconds(SLOW, (norm, linear), 1, WHOLE, "float16")
    assert both == PassSeconds(*(a + b for a, b in zip(*parts, strict=True)))


def test_a_graph_is_timed_row_by_row_and_says_where() -> None:
    model = Transformer("tiny", 1, 8, 2, 4, 32, 4, 2)
    graph = transformer_layers(model, batch=2, dtype="float16", granularity=OPERATORS)
    timed = timed_by_kernels(graph, SLOW)
    assert (timed.timing, timed.timed_on) == ("kernels", SLOW.name)
    # Norm: 4 bytes forward and 10 backward for each of 2 x 4 x 8 values, one launch.
    assert (timed.forward_seconds[0], timed.backward_seconds[0]) == (1 + 2.56, 1 + 6.4)
    assert graph.forward_seconds[0] != graph.forward_seconds[0], "the graph itself stays without times"
