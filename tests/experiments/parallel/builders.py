"""Small models and clusters whose figures a reader can work out."""

from __future__ import annotations

import numpy as np

from experiments.hardware import Device, Hardware, Link, NodeGroup, resolve
from experiments.hardware.parts import Node, Peaks
from experiments.parallel.interface import PlanningEstimate, model_estimate
from experiments.parallel.simulator import evaluate
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged

NO_WAIT = Link("free", 1e30, 0.0, True, "test")


def chain(
    layers: int,
    forward: float = 1.0,
    backward: float = 2.0,
    *,
    batch: int = 1,
    parameter_bytes: float = 0.0,
    output_bytes: float = 0.0,
    stash_bytes: float = 0.0,
    flops: float = 1.0,
) -> LayerGraph:
    """Equal layers in a row; seconds, FLOPs, output and stash bytes are for each sample, all
    dtypes float32.
    """
    column = np.ones(layers)
    return LayerGraph(
        name="chain",
        layer=tuple(f"layer{i}" for i in range(layers)),
        kind=("linear",) * layers,
        forward_seconds=column * forward * batch,
        backward_seconds=column * backward * batch,
        forward_flops=column * flops * batch,
        backward_flops=column * 2 * flops * batch,
        parameter_bytes=column * parameter_bytes,
        output_bytes=column * output_bytes * batch,
        stash_bytes=column * stash_bytes * batch,
        predecessors=Ragged.of([[i - 1] if i else [] for i in range(layers)]),
        batch=batch,
    )


def cluster(
    nodes: int = 1, per_node: int = 4, *, memory: int = 10**15, link: Link = NO_WAIT, network: Link = NO_WAIT
) -> Hardware:
    """Devices of 1 FLOP/s with memory bandwidth without bound, so that updates take no time."""
    base = resolve("a100-80g").node
    device = Device(
        name="unit",
        vendor="test",
        year=2020,
        memory_bytes=memory,
        memory_bandwidth=1e300,
        peak_flops=Peaks({"float32": 1.0, "float64": 1.0, "float16": 1.0}),
        host_link=link,
        peer_link=link,
        source="test",
    )
    node = Node(device, per_node, link, base.host, base.storage)
    return Hardware("test", (NodeGroup(nodes, node),), network)


def estimate(
    model: LayerGraph, hardware: Hardware, dtype: str = "float32", optimizer: str = "adam"
) -> PlanningEstimate:
    return model_estimate(model, hardware, evaluate, dtype, optimizer)
