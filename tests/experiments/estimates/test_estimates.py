"""The rules of thumb, worked by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.estimates import memory, parallel, parameters, tables, tiling, work
from experiments.hardware import library

GPT3 = 175_000_000_000
GB = 10**9


def test_gpt3_weights_and_adam():
    assert memory.weight_bytes(GPT3, 2) == 350 * GB
    assert memory.weight_bytes(GPT3, 4) == 700 * GB
    assert memory.adam_bytes(GPT3) == 2100 * GB


def test_training_keeps_what_its_precision_says():
    rows = {row.name: row for row in tables.estimate_model(GPT3)}
    each = {
        "fp32": 16,
        "bf16-pure": 8,
        "bf16-mixed": 16,
        "bf16-mixed-fp32-grads": 18,
        "bf16-mixed-both-grads": 20,
    }
    assert {name: rows[f"training state, {name}"].value for name in each} == {
        name: size * GPT3 for name, size in each.items()
    }
    formula = rows["training state, bf16-mixed-fp32-grads"].formula
    assert formula == "N x (2 weights + 4 gradients + 4 master weights + 8 optimizer state)"


def test_the_parameters_of_gpt2_small():
    assert parameters.attention_parameters(768) == 2_362_368
    assert parameters.mlp_parameters(768) == 4_722_432
    assert parameters.llm_parameters(hidden=768, layers=12, vocab=50257, sequence=1024) == 124_439_808


@given(st.integers(1, 512), st.integers(1, 200), st.integers(1, 10**5), st.integers(1, 10**4))
def test_parameters_follow_the_published_equation(hidden_64, layers, vocab, sequence):
    """12 L h^2 (1 + 13/(12h) + (V+s)/(12Lh)) of Narayanan et al., and the last layer norm that it
    leaves out.
    """
    h = 64 * hidden_64
    published = 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocab + sequence) / (12 * layers * h))
    assert parameters.llm_parameters(h, layers, vocab, sequence) == pytest.approx(published + 2 * h)


def test_gpt3_activations_at_layer_boundaries():
    one_layer = memory.boundary_activation_bytes(batch=3_200_000, sequence=1, hidden=12288, dtype_bytes=2)
    assert one_layer == 78_643_200_000
    assert 2 * one_layer == memory.boundary_activation_bytes(3_200_000, 1, 12288, 4)


def test_a_gpt3_layer_keeps_2_9_gb_per_sample():
    """s B h (34 + 5 a s / h) with s = 2048, B = 1, h = 12288, a = 96: 2048 x 12288 x 114."""
    assert memory.layer_activation_bytes(1, 2048, 12288, 96) == 2048 * 12288 * 114


@pytest.mark.parametrize(
    ("batch", "hidden", "heads", "none", "parallel", "selective", "full"),
    [
        # 22B: 5 a s / h = 320/3, t = 8; in units of s B h: 10 + 3 + 40/3, then (34 + 320/3) / 8.
        (4, 6144, 64, 10 + 3 + 40 / 3, (34 + 320 / 3) / 8, 34 / 8, 2),
        # 175B: 5 a s / h = 80, of which selective recomputation saves 80 of 114 on one device.
        (1, 12288, 96, 10 + 3 + 10, 114 / 8, 34 / 8, 2),
    ],
)
def test_activations_of_a_layer_on_eight_devices(batch, hidden, heads, none, parallel, selective, full):
    def layer(**options: object) -> float:
        return memory.layer_activation_bytes(batch, 2048, hidden, heads, tensor=8, **options)

    unit = 2048 * batch * hidden
    assert layer() == pytest.approx(none * unit, rel=1e-15)
    assert layer(sequence_parallel=True) == pytest.approx(parallel * unit, rel=1e-15)
    assert layer(sequence_parallel=True, recompute="selective") == selective * unit
    assert layer(recompute="full") == full * unit


def test_an_unknown_recomputation_is_refused():
    with pytest.raises(BadInput, match="'some'"):
        memory.layer_activation_bytes(1, 1, 1, 1, recompute="some")


def test_flops_of_gpt3_training():
    """300 billion tokens: 3.15e23 FLOPs."""
    assert work.training_flops(GPT3, 300 * GB) == 315 * 10**21
    assert work.inference_flops(GPT3, 1) == 350 * GB
    assert (
        work.attention_training_flops(layers=96, hidden=12288, sequence=2048, tokens=1)
        == 12 * 96 * 12288 * 2048
    )


def test_utilization():
    assert work.mfu(flops=1e12, seconds=10, peak_flops=1e13) == pytest.approx(0.01)
    assert work.hfu_with_full_recomputation(0.3) == pytest.approx(0.4)


def test_arithmetic_intensity():
    assert work.elementwise_intensity(operations=1, operands=3, dtype_bytes=1) == pytest.approx(1 / 3)
    assert work.elementwise_intensity(operations=3, operands=5, dtype_bytes=1) == pytest.approx(3 / 5)
    assert work.matmul_intensity(1024, 1024, 1024, 4) == pytest.approx(1024 / 6)


def test_matrix_product_traffic_by_tiling_level():
    n = 64
    assert tiling.untiled_reads(n) == 524_288
    assert tiling.cache_tiled_reads(n, b1=8) == 4096 + 32768
    assert tiling.cache_tile_elements(n, b1=8, b2=4) == 768
    assert tiling.register_tiled_reads(n, v1=4, v2=8) == 32768 + 65536
    assert tiling.register_tile_elements(4, 8, 2) == 8 + 16 + 32
    assert tiling.shared_memory_tiled_reads(n, block=16) == 32768


@given(st.integers(1, 512), st.integers(1, 512))
def test_larger_tiles_never_read_more(n, b):
    assert tiling.cache_tiled_reads(n, b + 1) < tiling.cache_tiled_reads(n, b)
    assert tiling.register_tiled_reads(n, 1, 1) == tiling.untiled_reads(n)
    assert tiling.shared_memory_tiled_reads(n, 1) == tiling.untiled_reads(n)


def test_bubble():
    assert parallel.pipeline_bubble(stages=4, microbatches=8) == pytest.approx(3 / 11)
    assert parallel.pipeline_bubble(stages=1, microbatches=8) == 0


def test_gradients_of_gpt2_over_nvlink_want_the_ring():
    link = library.link("nvlink-a100", "test")
    tree, ring, crossing = parallel.estimate_all_reduce(4 * 124_439_808, link, ranks=8)
    assert ring.value < tree.value
    assert crossing.value == pytest.approx(3.4e-6 * 300e9 * 4 / (3 - 7 / 8))


def test_the_card_of_a_language_model_names_a_source_and_a_formula_for_each_figure():
    rows = tables.estimate_llm(768, 12, 12, 50257, 1024, 8, 4)
    values = {row.name: row.value for row in rows}
    assert len(values) == len(rows)
    assert all(row.source and row.formula and row.unit in {"parameters", "bytes", "FLOP"} for row in rows)
    assert values["parameters"] == 124_439_808
    assert values["weights in 4 bytes"] == 497_759_232
    assert values["training step"] == 6 * 124_439_808 * 8192
    assert values["activations at layer boundaries"] == 12 * 8 * 1024 * 768 * 4
    assert values["recomputed training step"] == pytest.approx(4 / 3 * values["training step with attention"])
    assert json.loads(json.dumps([row.to_json() for row in rows]))[0]["formula"] == "4h^2 + 4h"


def test_without_tokens_only_what_the_parameter_count_says():
    with_tokens, without = tables.estimate_model(GPT3, tokens=1), tables.estimate_model(GPT3)
    assert [row.name for row in with_tokens[: len(without)]] == [row.name for row in without]
    assert {row.unit for row in without} == {"bytes"}
