"""The rates of this device, from the prices of a few ops: what a roofline needs to speak of this host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from experiments.compilation.interface import OP, GraphNode, TensorType, contiguous
from experiments.compilation.live.costs import Bench, MeasuredPrices, NodeWork, Prices
from experiments.compilation.live.preparation import prepare
from experiments.compilation.live.report import rows
from experiments.compilation.live.types import Inference
from experiments.hardware.local import this_host
from experiments.hardware.parts import Device, Peaks
from experiments.hardware.roofline import op_time
from experiments.profiling.timing import device_name
from experiments.workloads.model import ModelSource

#: Rows of the square product and elements of the sum that are priced: enough to fill the device, and soon
#: done: what takes longer than a turn on a busy processor is never seen undisturbed.
PRODUCT = {"cpu": 256, "cuda": 8192}
SUM = {"cpu": 2**20, "cuda": 2**28}
DTYPES = ("float32", "bfloat16")


def calibrate_device(kind: str, prices: Prices | None = None) -> Device:
    """This host's ``cpu`` or ``cuda`` device.

    The FLOP rate of a square product in each type, the byte rate of a large sum (12 bytes an element), and
    what the smallest sum takes as the time between two ops.
    """
    host, prices = this_host().device, prices or MeasuredPrices(kind)
    side, elements = PRODUCT[kind], SUM[kind]
    gap = _seconds(prices, "aten.add.Tensor", _tensor(1), _tensor(1))
    peaks = {
        dtype: 2 * side**3 / _seconds(prices, "aten.mm.default", *[_tensor(side, side, dtype=dtype)] * 2)
        for dtype in DTYPES
    }
    stream = _seconds(prices, "aten.add.Tensor", _tensor(elements), _tensor(elements))
    return replace(
        host,
        name=device_name(kind),
        peak_flops=Peaks({**peaks, "float64": peaks["float32"] / 2}),
        memory_bandwidth=12 * elements / stream,
        compute_efficiency=1.0,
        memory_efficiency=1.0,
        kernels=replace(host.kernels, launch=gap),
        source="a product, a large sum and a small one, timed",
    )


def _tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype, contiguous(shape))


def _seconds(prices: Prices, target: str, *types: TensorType) -> float:
    node = GraphNode("probe", OP, target, outputs=types[:1])
    return prices.seconds(node, types, (("alpha", 1),) if "add" in target else (), NodeWork(0, 0))


def eager_rows(source: ModelSource) -> list[dict[str, Any]]:
    """Return the forward pass op by op, as it is, with what each op costs on this host.

    ``NoOneGraph`` where it has none.
    """
    task = prepare(source, training=False, seed=0)
    prices = MeasuredPrices(task.device)
    found = rows(task.graph, Bench(Inference(task.device), prices), task.graph)
    prices.keep()
    return found


def roofline_seconds(listed: Iterable[Mapping[str, Any]], device: Device) -> float:
    """Return seconds of the ops of a plan's graph by the device's rates.

    Views and what is computed once take none.
    """
    moving = [row for row in listed if "seconds" in row and not row["view"] and row["state"] != "once"]
    return sum(
        op_time(device, row["flops"], row["traffic"], row["dtype"]) + device.kernels.launch for row in moving
    )
