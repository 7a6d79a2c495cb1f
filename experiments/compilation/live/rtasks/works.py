"""A graph's ops as a scheduling policy sees them, and the rates that one lane of this host has."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from experiments.compilation.interface import OP, Graph, GraphNode, Ref
from experiments.compilation.interface.architecture import UnitShare
from experiments.compilation.interface.blocks import DividedAxis, OperatorWork
from experiments.compilation.live.costs import Bench
from experiments.compilation.live.rates import calibrate_device
from experiments.compilation.live.rtasks.division import divisions_of
from experiments.compilation.live.rtasks.lanes import one_core

#: Streams that stand for the units of a GPU where a run does not say how many.
STREAMS = 4


def works_of(graph: Graph, bench: Bench) -> list[OperatorWork]:
    """Return the ops that compute, each with what it reads (through views too) and how it can be divided."""
    return [_work(node, graph, bench) for node in graph.computing]


def _work(node: GraphNode, graph: Graph, bench: Bench) -> OperatorWork:
    flops, traffic = bench.work(node, graph)
    kinds = [kind for kind in node.outputs if kind is not None]
    elements = max((math.prod(kind.shape) for kind in kinds), default=1)
    reads = dict.fromkeys(name for ref in node.refs for name in makers(ref, graph))
    return OperatorWork(
        node.name,
        node.target,
        float(flops),
        float(traffic),
        max(elements, 1),
        float(node.bytes),
        tuple(reads),
        members=(node.name,),
        axes=tuple(_divided_axes(node, graph)),
    )


def _divided_axes(node: GraphNode, graph: Graph) -> Iterator[DividedAxis]:
    """Yield the axes, each with the results that are read as they were made and divided at the same axis."""
    for axis, places in sorted(divisions_of(node, graph).items()):
        same = {node.arguments[place] for place, of in places.items() if of == axis}
        whole = {value for place, value in enumerate(node.arguments) if place not in places}
        along = [ref.node for ref in same - whole if isinstance(ref, Ref) and _computes(ref, graph)]
        yield DividedAxis(axis, node.shape[axis], tuple(sorted(along)))


def _computes(ref: Ref, graph: Graph) -> bool:
    maker = graph.by_name[ref.node]
    return maker.kind == OP and not maker.views and not maker.once and not ref.output


def makers(ref: Ref, graph: Graph) -> Iterator[str]:
    """Yield the ops that compute a result, behind the views that show it."""
    node = graph.by_name[ref.node]
    if node.kind == OP and node.views:
        for source in node.refs:
            yield from makers(source, graph)
    elif node.kind == OP and not node.once:
        yield node.name


def lane_share(device: str, lanes: int, dtype: str, latency: float, wait: float) -> UnitShare:
    """Return the rates of one of ``lanes``, from a product, a large sum and a small one timed on it.

    A thread has a core's rates, a stream its share of the GPU's. A block takes what the smallest op takes.
    """
    if device == "cuda":
        found, sharing = calibrate_device(device), lanes
    else:
        with one_core():
            found, sharing = calibrate_device(device), 1
    least = max(latency, found.kernels.launch)
    return UnitShare(lanes, found.peak(dtype) / sharing, found.memory_bandwidth / sharing, least, wait)


def lanes_of(device: str, wanted: int) -> int:
    """Return how many lanes a run has: as many as it asks for, or torch's threads, or ``STREAMS``."""
    return wanted or (STREAMS if device == "cuda" else torch.get_num_threads())
