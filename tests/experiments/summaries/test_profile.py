"""Where a profile's time went: figures that can be worked out by hand from a few kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core import jsonio
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.readers.kineto_columns import timeline
from experiments.summaries import summary
from experiments.summaries.profile import report
from experiments.summaries.profile.intervals import Union
from experiments.summaries.step import live_by_kind
from tests.experiments.readers.kineto_traces import call, kernel, memory, node, note, on_a_gpu, trace

US = 1e-6


def launch(start: float, duration: float, correlation: int, name: str = "cudaLaunchKernel") -> Any:
    return call(name, start, duration, cat="cuda_runtime", correlation=correlation)


def module(name: str, start: float, duration: float) -> Any:
    return call(f"nn.Module: {name}", start, duration, cat="python_function")


def training() -> bytes:
    """On stream 7 two products of 100 and 60 us with 20 us between, launched in time; 60 us later a ReLU of
    10 us, launched late. Beside it on stream 20 a reduction of 80 us, half of it next to the second product,
    and 15 us of a copy, 5 next to the reduction.
    """
    return trace(
        call("aten::mm", 0, 40, External_id=1),
        launch(5, 4, 11),
        launch(20, 4, 12),
        call("aten::relu", 230, 20, External_id=2),
        launch(235, 30, 13),
        [*node("MmBackward0", 260, 20, 5, thread=1)],
        note("ProfilerStep#3", 0, 180),
        note("ProfilerStep#4", 180, 110),
        kernel("sgemm", 10, 100, correlation=11, External_id=1),
        kernel("sgemm", 130, 60, correlation=12, External_id=1),
        kernel("relu", 250, 10, correlation=13, External_id=2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 150, 80, stream=20),
        {**kernel("Memcpy HtoD (Pinned -> Device)", 225, 15, stream=21), "cat": "gpu_memcpy"},
        distributedInfo={"rank": 3, "world_size": 8},
        deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],
    )


def only(data: bytes) -> dict[str, Any]:
    found = report([timeline(data, "a.json")])
    jsonio.canonical(found)
    (rank,) = found["ranks"]
    return dict(rank)


def test_the_parts_of_a_devices_time_add_up_to_its_span() -> None:
    rank = only(training())
    (device,) = rank["devices"]
    parts = {
        name: round(device[name] / US, 6) for name in ("compute", "communication", "copies", "idle", "span")
    }
    assert parts == {"compute": 170, "communication": 40, "copies": 10, "idle": 30, "span": 250}
    assert device["communication_total"] == pytest.approx(80 * US)
    assert device["overlapped"] == pytest.approx(40 * US)
    assert (device["name"], rank["rank"], rank["world"]) == ("NVIDIA A100-SXM4-80GB", 3, 8)
    first, second = device["steps"]
    assert (first["step"], second["step"]) == ("3", "4")
    assert (first["compute"], second["compute"]) == pytest.approx((150 * US, 20 * US))


def test_idle_time_has_the_cause_that_the_launch_tells() -> None:
    """20 us is the price of a launch; the 60 us before the ReLU are the host's. One kernel has no gap."""
    streams = {row["stream"]: row for row in only(training())["idle"]}
    assert streams[7]["kernel wait"] == pytest.approx(20 * US)
    assert streams[7]["host wait"] == pytest.approx(60 * US)
    assert streams[7]["other"] == streams[20]["host wait"] == 0


def test_a_gap_of_thirty_microseconds_is_no_price_of_a_launch() -> None:
    """Exactly at the limit, at a clock where seconds cannot tell it from less."""
    rank = only(
        trace(
            call("aten::mm", 1e12, 5),
            launch(1e12, 1, 1),
            launch(1e12 + 2, 1, 2),
            kernel("a", 1e12 + 10, 10, correlation=1),
            kernel("b", 1e12 + 50, 10, correlation=2),
        )
    )
    assert (rank["idle"][0]["kernel wait"], rank["idle"][0]["other"]) == (0, pytest.approx(30 * US))


def test_launches_tell_delays_and_kernels_too_short_to_pay() -> None:
    """From the end of each call to the kernel's start: 1, 106 and 0 us; the ReLU is shorter than its call."""
    told = only(training())["launches"]
    assert (told["count"], told["short"], told["long_calls"], told["long_delays"]) == (3, 1, 0, 1)
    assert told["delay_seconds"] == pytest.approx(107 * US)


def test_kernels_and_operators_stand_by_the_time_they_took() -> None:
    rank = only(training())
    assert [(row["name"], row["count"]) for row in rank["kernels"][:2]] == [
        ("sgemm", 2),
        ("ncclDevKernel_AllReduce_Sum_f32", 1),
    ]
    assert rank["kernels"][0]["seconds"] == pytest.approx(160 * US)
    assert rank["kernels"][0]["most"] == pytest.approx(100 * US)
    assert rank["kernels"][1]["kind"] == "communication"
    mm, relu = rank["operators"][:2]
    assert (mm["name"], relu["name"]) == ("aten::mm", "aten::relu")
    assert (mm["seconds"], mm["host"]) == pytest.approx((160 * US, 40 * US))


def test_a_kernel_without_a_number_belongs_to_the_innermost_operator_that_launched_it() -> None:
    rank = only(
        trace(
            call("aten::linear", 0, 50),
            call("aten::addmm", 10, 30),
            launch(20, 5, 1),
            kernel("sgemm", 60, 7, correlation=1),
        )
    )
    assert {row["name"]: round(row["seconds"] / US, 6) for row in rank["operators"]} == {
        "aten::addmm": 7,
        "aten::linear": 0,
    }


def test_a_module_has_the_time_of_its_backward_pass_too() -> None:
    """Forward 10 us inside Linear_0, inside Net_0; of backward only the node has its number."""
    rank = only(
        trace(
            module("Net_0", 0, 60),
            module("Linear_0", 10, 20),
            call("aten::addmm", 12, 10, Sequence_number=5),
            call("aten::relu", 40, 8, Sequence_number=6),
            [*node("AddmmBackward0", 100, 30, 5)],
            call("aten::mm", 105, 20, thread=2),
        )
    )
    assert {row["name"]: round(row["host"] / US, 6) for row in rank["modules"]} == {
        "Net_0.Linear_0": 40,
        "Net_0": 8,
    }


def test_without_a_device_the_host_is_told() -> None:
    rank = only(trace(call("aten::mm", 0, 30), call("aten::add", 50, 50), memory(20, 1, 64, 64, cuda=False)))
    assert rank["devices"] == []
    assert rank["host"] == pytest.approx({"span": 100 * US, "operators": 80 * US, "between": 20 * US})
    assert rank["peaks"] == [{"device": -1, "allocated": 64, "reserved": 0}]
    assert rank["memory"][0]["series"][0]["y"] == [64]


def test_unions_are_what_counting_moments_gives() -> None:
    """Against a grid of whole numbers, with touching and nested intervals."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        first, second = (rng.integers(0, 40, (2, 6)) for _ in range(2))
        spans = [(rows.min(0).astype(float), rows.max(0).astype(float)) for rows in (first, second)]
        grids = [
            np.any([(start <= t) & (t < end) for start, end in zip(*span, strict=True)], axis=0)
            for span in spans
            for t in [np.arange(40)]
        ]
        one, other = (Union.of(*span) for span in spans)
        assert (one.seconds, (one | other).seconds) == (grids[0].sum(), (grids[0] | grids[1]).sum())
        assert one.overlap(other) == (grids[0] & grids[1]).sum()
        assert one.within(10, 20).seconds == grids[0][10:20].sum()


def test_memory_by_kind_adds_up_to_what_is_live(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    path.write_bytes(on_a_gpu())
    step = open_file(path, "auto", WorkloadOptions()).reading.value
    kinds = live_by_kind(step)
    assert {"parameter", "gradient", "activation"} <= set(kinds)
    assert np.array_equal(sum(kinds.values()), step.live_bytes)
    title = "Memory live while each op runs, by kind"
    drawn = next(plot for plot in summary(step)["plots"] if plot["title"] == title)
    assert [row["name"] for row in drawn["series"]] == list(kinds)
