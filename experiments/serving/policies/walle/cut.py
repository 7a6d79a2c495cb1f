"""The cheapest division of a graph, as a minimum cut.

What the source's side has runs on the device. An operator's edges to both ends carry its seconds on the other
side; an output is sent once to all its readers, so it has a node of its own for either direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.serving.interface.splitting import Split
from experiments.workloads.split_task import LinkState, SplitTask

if TYPE_CHECKING:
    from networkx import DiGraph

DEVICE, CLOUD = "device", "cloud"


def cheapest_cut(task: SplitTask, device: Sequence[float], link: LinkState) -> Split:
    """Return the operators of the cloud where a round trip costs nothing."""
    import networkx  # takes a while

    graph = networkx.DiGraph()
    for place, (one, seconds) in enumerate(zip(task.operators, device, strict=True)):
        graph.add_edge(place, CLOUD, capacity=seconds)
        graph.add_edge(DEVICE, place, capacity=math.inf if one.stays else one.cloud)
        for source in one.inputs:
            _join(graph, DEVICE if source < 0 else source, place)
    for place in task.sinks:
        _join(graph, place, "result")
    graph.add_edge(DEVICE, "result", capacity=math.inf)
    _price(graph, task, link)
    _, (_, cloud) = networkx.minimum_cut(graph, DEVICE, CLOUD)
    return frozenset(node for node in cloud if isinstance(node, int))


def _join(graph: DiGraph, source: object, reader: object) -> None:
    """``reader`` takes the output of ``source``, up or down as the cut has it."""
    graph.add_edge(("up", source), reader, capacity=math.inf)
    graph.add_edge(reader, ("down", source), capacity=math.inf)


def _price(graph: DiGraph, task: SplitTask, link: LinkState) -> None:
    """The copies of all outputs, once each; the result's is that of the task."""
    results = set(task.sinks)
    for node in list(graph):
        if not isinstance(node, tuple):
            continue
        way, source = node
        if source == DEVICE:
            size = task.input
        else:
            size = task.output / len(results) if source in results else task.operators[source].bytes
        if way == "up":
            graph.add_edge(source, node, capacity=size / link.up)
        else:
            graph.add_edge(node, source, capacity=size / link.down)
