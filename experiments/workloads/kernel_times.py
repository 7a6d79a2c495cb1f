"""Seconds of a layer's operators on a device, for so many samples and divided so."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from experiments.core.units import DTYPE_BYTES
from experiments.hardware.parts import Device
from experiments.hardware.products import attention_seconds, product_seconds, stream_seconds
from experiments.workloads.kernels import BACKWARD, FORWARD, WEIGHT, WHOLE, Cut, Work, shapes
from experiments.workloads.layers import LayerGraph

#: A fused attention kernel's backward pass: five products where the forward pass has two.
FUSED_BACKWARD = 2.5
#: Bytes that a further step of attention reads and writes for each value of its output, (forward, backward):
#: its own result and the float32 sum so far; backward so for the gradients of query, key and value (PyTorch's
#: ring attention, torch/distributed/tensor/experimental/_attention.py, with its additions fused).
MERGE = (10.0, 30.0)
#: What a kernel that skips the masked half of a causal matrix computes of it.
CAUSAL_SHARE = 0.5


class PassSeconds(NamedTuple):
    """Of one micro-batch: forward, the inputs' gradient, the weights' gradient."""

    forward: float
    backward: float
    weight: float


def layer_seconds(
    device: Device, work: tuple[Work, ...], samples: float, cut: Cut, dtype: str
) -> PassSeconds:
    """All operators of a layer, one after another."""
    parts = [work_seconds(device, one, samples, cut, dtype) for one in work]
    return PassSeconds(*(sum(column) for column in zip(*parts, strict=True)))


@functools.lru_cache(maxsize=65536)
def work_seconds(device: Device, work: Work, samples: float, cut: Cut, dtype: str) -> PassSeconds:
    if work.fused:
        return _fused_seconds(device, work, samples / cut.parts, cut.steps, dtype)
    forward, backward, weight = (
        sum(_product(device, work, i, samples, cut, what, dtype) for i in range(len(work.products)))
        for what in (FORWARD, BACKWARD, WEIGHT)
    )
    share = samples / cut.parts
    if work.launches:
        forward += stream_seconds(device, work.forward_traffic * share, work.launches)
        backward += stream_seconds(device, work.backward_traffic * share, work.launches)
    if work.gradient_traffic:
        count = max((product.count for product in work.products), default=1)
        weight += stream_seconds(device, work.gradient_traffic / cut.weights(count))
    return PassSeconds(forward, backward, weight)


def _product(
    device: Device, work: Work, index: int, samples: float, cut: Cut, what: str, dtype: str
) -> float:
    shape = shapes(work.products[index], samples, cut, what)
    kind = work.dtype or dtype
    return product_seconds(device, shape.m, shape.n, shape.k, shape.count, kind, DTYPE_BYTES[kind])


def _fused_seconds(device: Device, work: Work, share: float, steps: int, dtype: str) -> PassSeconds:
    computed = (CAUSAL_SHARE if work.causal else 1.0) / work.rate
    forward = attention_seconds(device, work.forward_flops * share * computed, dtype)
    backward = attention_seconds(device, work.forward_flops * share * computed * FUSED_BACKWARD, dtype)
    merged = (steps - 1) * share * work.outputs
    if merged:
        # A launch of its own for each further kernel, another for merging.
        forward += stream_seconds(device, MERGE[0] * merged, 2 * (steps - 1))
        backward += stream_seconds(device, MERGE[1] * merged, 2 * (steps - 1))
    return PassSeconds(forward, backward, 0.0)


def timed_by_kernels(graph: LayerGraph, device: Device) -> LayerGraph:
    """``graph`` with the times of its operators on one whole ``device``."""
    dtype = str(graph.facts["dtype"])
    found = [layer_seconds(device, row, graph.batch, WHOLE, dtype) for row in graph.work]
    return replace(
        graph,
        forward_seconds=np.array([seconds.forward for seconds in found]),
        backward_seconds=np.array([seconds.backward + seconds.weight for seconds in found]),
        timing="kernels",
        timed_on=device.name,
    )
