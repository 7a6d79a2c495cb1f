"""Cards and plots of a workload: JSON, and the roof where a reader expects it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.core import jsonio
from experiments.hardware import resolve
from experiments.summaries import peak_bars, summary
from experiments.workloads.ragged import Ragged
from experiments.workloads.step import KINDS, PHASES, Ops, Step, Tensors


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


#: A step by hand: name, kind, bytes of each tensor; then module, phase, inputs and outputs of each op.
TENSORS = (
    ("lower", "parameter", 1),
    ("upper", "parameter", 2),
    ("upper.mean", "optimizer_state", 4),
    ("words", "input", 8),
    ("hidden", "activation", 16),
    ("logits", "activation", 32),
    ("log_softmax", "activation", 64),
    ("logits gradient", "temporary", 128),
    ("hidden gradient", "temporary", 256),
    ("upper gradient", "gradient", 512),
)
OPS = (
    ("block", "forward", ["lower", "words"], ["hidden"]),
    ("head", "forward", ["hidden", "upper"], ["logits"]),
    ("loss", "forward", ["logits"], ["log_softmax"]),
    ("loss", "backward", ["log_softmax"], ["logits gradient"]),
    ("head", "backward", ["logits gradient", "hidden"], ["upper gradient"]),
    ("block", "backward", ["hidden", "upper gradient"], ["hidden gradient"]),
    ("head", "optimizer", ["upper gradient", "upper.mean", "upper"], ["upper.mean", "upper"]),
)


def training_step(last: int) -> Step:
    """The first ``last`` ops of the step above, and its update."""
    rows, names = (*OPS[:last], OPS[-1]), [name for name, _, _ in TENSORS]
    count = len(rows)
    ops = Ops(
        name=tuple(f"op{number}" for number in range(count)),
        target=("aten.mm.default",) * count,
        module=tuple(module for module, _, _, _ in rows),
        phase=np.array([PHASES.index(phase) for _, phase, _, _ in rows], np.int8),
        seconds=np.full(count, np.nan),
        flops=np.zeros(count),
        bytes_moved=np.ones(count),
        workspace=np.zeros(count, np.int64),
        dtype=("float32",) * count,
        view=np.zeros(count, bool),
        random=np.zeros(count, bool),
    )
    tensors = Tensors(
        tuple(names),
        np.array([size for _, _, size in TENSORS], np.int64),
        ("float32",) * len(names),
        ((1,),) * len(names),
        np.array([KINDS.index(kind) for _, kind, _ in TENSORS], np.int8),
        np.full(len(names), np.nan),
    )
    read, made = ([[names.index(name) for name in row[place]] for row in rows] for place in (2, 3))
    return Step("by hand", ops, tensors, Ragged.of(read), Ragged.of(made), facts={"training": True})


def test_a_steps_peak_is_stacked_by_what_it_holds() -> None:
    (plot,) = peak_bars({"full": training_step(6), "to the head": training_step(5)})
    jsonio.canonical(plot)
    assert plot["stack"] and all(row["x"] == ["full", "to the head"] for row in plot["series"])
    assert {row["name"]: row["y"] for row in plot["series"]} == {
        "frozen weights": [1, 1],
        "trained weights": [2, 2],
        "gradients": [512, 512],
        "optimizer state": [4, 4],
        "activations": [16, 16],
        "loss": [0, 128],
        "temporaries and inputs": [256 + 8, 8],
    }


def test_a_step_without_training_has_no_such_bar() -> None:
    assert peak_bars({"full": step([np.nan])}) == []
