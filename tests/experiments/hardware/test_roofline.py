"""Roofline: the longer of arithmetic and traffic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import hardware
from experiments.core.errors import BadInput
from experiments.hardware import roofline

A100 = hardware.resolve("a100-80g").device  # 312 TFLOP/s in float16, 19.5 in float32, 2,039 GB/s
WORK = st.floats(0, 1e18)


def test_a_square_matmul_is_bound_by_compute_and_an_addition_by_memory():
    n = 8192
    assert roofline.op_time(A100, 2 * n**3, 3 * n**2 * 2, "float16") == 2 * n**3 / 312e12
    assert roofline.bound(A100, 2 * n**3, 3 * n**2 * 2, "float16") == "compute"
    assert roofline.op_time(A100, n, 3 * n * 4, "float32") == 3 * n * 4 / 2039e9
    assert roofline.bound(A100, n, 3 * n * 4, "float32") == "memory"


def test_the_ridge_is_where_both_bounds_meet():
    ridge = roofline.ridge_point(A100, "float16")
    assert ridge == pytest.approx(153.02, abs=0.01)
    assert roofline.attainable(A100, [ridge / 2, ridge, 2 * ridge], "float16") == pytest.approx(
        [156e12, 312e12, 312e12]
    )
    assert roofline.intensity(6.0, 3.0) == 2.0
    assert roofline.intensity(1.0, 0.0) == float("inf")


def test_efficiencies_scale_the_roofs():
    tuned = dataclasses.replace(
        A100, compute_efficiency=0.5, memory_efficiency=0.8, efficiency_source="a test"
    )
    assert roofline.op_time(tuned, 156e12, 0, "float16") == pytest.approx(1.0)
    assert roofline.op_time(tuned, 0, 0.8 * 2039e9, "float16") == pytest.approx(1.0)


def test_an_op_without_flops_needs_no_rate_for_its_type():
    assert roofline.op_time(A100, 0, 2039e9, "complex64") == 1.0
    assert roofline.op_times(A100, [0.0], [2039e9], ["complex64"]) == [1.0]
    with pytest.raises(BadInput, match="complex64"):
        roofline.op_time(A100, 1, 0, "complex64")
    with pytest.raises(BadInput, match="complex64"):
        roofline.op_times(A100, [0.0, 1.0], [0.0, 0.0], "complex64")


@given(
    st.lists(st.tuples(WORK, WORK, st.sampled_from(["float16", "float32", "int64"])), min_size=1, max_size=9)
)
def test_many_ops_at_once_are_the_same_as_one_by_one(ops):
    flops, bytes, dtypes = (list(column) for column in zip(*ops, strict=True))
    together = roofline.op_times(A100, flops, bytes, dtypes)
    assert together.tolist() == [roofline.op_time(A100, *op) for op in ops]
    assert together.dtype == np.float64


@given(WORK, WORK, st.sampled_from(sorted(A100.peak_flops)))
def test_time_is_never_below_either_bound_and_equals_one(flops, bytes, dtype):
    time = roofline.op_time(A100, flops, bytes, dtype)
    bounds = flops / A100.peak(dtype), bytes / A100.memory_bandwidth
    assert time >= bounds[0]
    assert time >= bounds[1]
    assert time in bounds


@given(WORK, WORK, st.floats(0, 1e15), st.floats(0, 1e15))
def test_more_work_never_takes_less_time(flops, bytes, more_flops, more_bytes):
    less = roofline.op_time(A100, flops, bytes, "float32")
    assert roofline.op_time(A100, flops + more_flops, bytes + more_bytes, "float32") >= less
