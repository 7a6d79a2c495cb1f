"""Cards and plots of a workload: JSON, and the roof where a reader expects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.core import jsonio
from experiments.hardware import resolve
from experiments.summaries import summary
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import Ops, Step, Tensors


def step(seconds: list[float], timing: str = "none", timed_on: str = "") -> Step:
    """Two matrix products of 1 GFLOP: one of 1 byte per FLOP, one of 1,000 FLOPs per byte."""
    two = len(seconds)
    ops = Ops(
        name=("thin", "thick")[:two],
        target=("aten.mm.default",) * two,
        module=("",) * two,
        phase=np.zeros(two, np.int8),
        seconds=np.array(seconds),
        flops=np.full(two, 1e9),
        bytes_moved=np.array([1e9, 1e6])[:two],
        workspace=np.zeros(two, np.int64),
        dtype=("float32",) * two,
        view=np.zeros(two, bool),
        random=np.zeros(two, bool),
    )
    one = np.array([4], np.int64)
    tensors = Tensors(("x",), one, ("float32",), ((1,),), np.zeros(1, np.int8), np.full(1, np.nan))
    return Step("two products", ops, tensors, Ragged.of([[0]] * two), Ragged.of([[]] * two), timing, timed_on)


def roofline(of: Step) -> dict[str, Any]:
    found = summary(of)
    jsonio.canonical(found)
    return next(plot for plot in found["plots"] if "roof" in plot["title"])


def test_an_untimed_op_stands_on_the_roof_of_the_usual_device() -> None:
    plot = roofline(step([np.nan, np.nan]))
    device = resolve("a100-40g").device
    roof, forward = plot["series"]
    assert roof["mode"] == "lines"
    assert forward["x"] == [1.0, 1000.0]
    assert forward["y"] == pytest.approx([device.memory_bandwidth, device.peak("float32")])
    assert max(roof["y"]) == device.peak("float32")


def test_a_timed_op_stands_at_its_rate_under_the_roof_of_the_device_it_ran_on() -> None:
    plot = roofline(step([0.5, 0.1], "measured", "NVIDIA H200"))
    assert plot["title"] == "Ops under the roof of h200-141g"
    assert plot["series"][1]["y"] == [2e9, 1e10]
