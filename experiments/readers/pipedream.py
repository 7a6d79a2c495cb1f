"""``pipedream``: a measured layer profile in the graph text of PipeDream's profiler (SOSP'19, section 3.1;
released code).

A line for each layer, ``ID -- description -- forward_compute_time=MS, backward_compute_time=MS,
activation_size=BYTES, parameter_size=BYTES`` with an optional fourth part ``stage_id=N``, then a line for
each edge: a tab, ``ID -- ID``. A size may be a list, ``[1.0; 2.0]``: the layer has several outputs, which are
added up.

Inputs and sinks that only pick an entry of a result (``__getitem__``) are no layers and are left out, as the
released planner does. Times, output and stash are those of one profiled mini-batch. Its samples are not in
the file: they are the rows of the classifier that ends an image model, otherwise the whole mini-batch counts
as one sample.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reader, Reading
from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged

FIELDS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
MOST_LAYERS, MOST_EDGES = 20_000, 200_000
#: No time in milliseconds and no size in bytes of a real layer is larger.
LARGEST = 1e15
LINE = "ID -- description -- " + ", ".join(f"{name}=NUMBER" for name in FIELDS)
FLOAT32 = 4


@dataclass(frozen=True)
class _Node:
    """A layer as written: milliseconds and bytes of one mini-batch."""

    id: str
    description: str
    forward: float
    backward: float
    activation: float
    parameters: float


@dataclass
class _Profile:
    nodes: dict[str, _Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], str] = field(default_factory=dict)

    def without(self, dropped: set[str]) -> _Profile:
        nodes = {key: node for key, node in self.nodes.items() if key not in dropped}
        edges = {pair: where for pair, where in self.edges.items() if dropped.isdisjoint(pair)}
        return _Profile(nodes, edges)


def _recognizes(head: bytes, name: str) -> bool:
    return b" -- forward_compute_time=" in head and head.lstrip()[:1] not in (b"{", b"[")


def _read(data: bytes, name: str, options: WorkloadOptions) -> Reading:
    profile = _parse(data, name)
    sources = {key for key, node in profile.nodes.items() if node.description.startswith("Input")}
    sources -= {target for _, target in profile.edges}
    kept = profile.without(sources)
    used = {source for source, _ in kept.edges}
    kept = kept.without(
        {k for k, node in kept.nodes.items() if k not in used and node.description.startswith("__getitem__")}
    )
    if not kept.nodes:
        raise BadInput("no layers", name, "at least one besides inputs")
    graph, rows = _graph(kept, name)
    assumed = [
        "times, outputs and activations are of one profiled mini-batch of float32",
        "FLOPs are not in the file, so MFU is not known",
        f"{rows} samples a mini-batch: the rows of the last layer"
        if rows
        else "the samples of a mini-batch are not known: one sample is one mini-batch",
    ]
    if left := len(profile.nodes) - len(kept.nodes):
        assumed.append(f"{left} inputs and unused results are no layers")
    return Reading(graph, tuple(assumed), _warnings(graph))


def _parse(data: bytes, name: str) -> _Profile:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"byte {error.start} is not UTF-8", name, "text") from None
    profile = _Profile()
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{name}: line {number}"
        if not line.strip():
            continue
        if line.startswith("\t"):
            _add_edge(profile, line.strip(), where)
        else:
            _add_node(profile, line.strip(), where)
    for pair, where in profile.edges.items():
        for end in pair:
            if end not in profile.nodes:
                raise BadInput(f"edge names {end!r:.80}, which is no layer", where, "a layer of the file")
    return profile


def _add_edge(profile: _Profile, line: str, where: str) -> None:
    ends = line.split(" -- ")
    if len(ends) != 2 or len(profile.edges) == MOST_EDGES:
        raise BadInput(f"{line!r:.80} is not an edge", where, f"ID -- ID, at most {MOST_EDGES} of them")
    profile.edges.setdefault((ends[0], ends[1]), where)


def _add_node(profile: _Profile, line: str, where: str) -> None:
    parts = line.split(" -- ")
    if not 3 <= len(parts) <= 4 or len(profile.nodes) == MOST_LAYERS:
        raise BadInput(f"{line!r:.80} is not a layer", where, f"{LINE}, at most {MOST_LAYERS} of them")
    if parts[0] in profile.nodes:
        raise BadInput(f"layer {parts[0]!r:.80} appears twice", where, "each layer once")
    if any(not character.isprintable() for part in parts for character in part):
        raise BadInput("control characters", where, LINE)
    figures = dict(entry.partition("=")[::2] for entry in parts[2].split(", "))
    if tuple(figures) != FIELDS:
        raise BadInput(f"{parts[2]!r:.80}", where, LINE)
    values = (_number(figures[key], f"{where}: {key}") for key in FIELDS)
    profile.nodes[parts[0]] = _Node(parts[0], parts[1], *values)


def _number(text: str, where: str) -> float:
    """A number, or the sum of ``[a; b; ...]``."""
    entries = text[1:-1].split("; ") if text.startswith("[") and text.endswith("]") else [text]
    try:
        total = sum(float(entry) for entry in entries)
    except ValueError:
        raise BadInput(f"{text!r:.80} is not a number", where, f"0 to {LARGEST:g}") from None
    if not (math.isfinite(total) and all(0 <= float(entry) <= LARGEST for entry in entries)):
        raise BadInput(f"{text!r:.80}", where, f"0 to {LARGEST:g}")
    return total


def _order(profile: _Profile, name: str) -> Iterator[str]:
    """Layer ids in topological order; of several that are ready the first of the file comes first."""
    place = {key: index for index, key in enumerate(profile.nodes)}
    keys = list(place)
    targets: dict[str, list[str]] = {key: [] for key in keys}
    missing = dict.fromkeys(keys, 0)
    for source, target in profile.edges:
        targets[source].append(target)
        missing[target] += 1
    ready = [index for index, key in enumerate(keys) if not missing[key]]
    made = 0
    while ready:
        key = keys[heapq.heappop(ready)]
        made += 1
        yield key
        for target in targets[key]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, place[target])
    if made < len(keys):
        stuck = next(key for key in keys if missing[key])
        raise BadInput(f"layer {stuck!r:.80} is on a cycle or behind one", name, "a graph without cycles")


def _graph(profile: _Profile, name: str) -> tuple[LayerGraph, int]:
    """The layers, and the samples of the mini-batch (0: not known)."""
    nodes = [profile.nodes[key] for key in _order(profile, name)]
    index = {node.id: i for i, node in enumerate(nodes)}
    reads: list[list[int]] = [[] for _ in nodes]
    for source, target in profile.edges:
        reads[index[target]].append(index[source])

    def column(what: str, scale: float = 1.0) -> Any:
        return np.array([getattr(node, what) for node in nodes], np.float64) * scale

    rows = _rows(nodes)
    graph = LayerGraph(
        name=name,
        layer=tuple(node.id for node in nodes),
        kind=tuple(node.description for node in nodes),
        forward_seconds=column("forward", 1e-3),
        backward_seconds=column("backward", 1e-3),
        forward_flops=np.zeros(len(nodes)),
        backward_flops=np.zeros(len(nodes)),
        parameter_bytes=column("parameters"),
        output_bytes=column("activation"),
        stash_bytes=column("activation"),
        predecessors=Ragged.of(sorted(row) for row in reads),
        batch=rows or 1,
        timing="trace",
        timed_on="the profile's device",
        facts={"dtype": "float32", "batch": rows or None},
    )
    return graph, rows


def _rows(nodes: list[_Node]) -> int:
    """Of an image model (it has convolutions) that ends in a linear layer: the rows of its output; otherwise
    0.
    """
    found = re.match(r"Linear\(.*out_features=(\d{1,9})\b", nodes[-1].description)
    if not found or int(found[1]) == 0 or not any(node.description.startswith("Conv") for node in nodes):
        return 0
    rows = nodes[-1].activation / (FLOAT32 * int(found[1]))
    return int(rows) if rows.is_integer() and 1 <= rows <= 2**24 else 0


def _warnings(graph: LayerGraph) -> tuple[str, ...]:
    unmeasured = [
        graph.layer[i]
        for i in np.flatnonzero(
            (graph.parameter_bytes > 0) & (graph.forward_seconds + graph.backward_seconds == 0)
        )
    ]
    if not unmeasured:
        return ()
    return (f"{len(unmeasured)} layers with parameters take no time (the first: {unmeasured[0]})",)


READER = Reader("pipedream", "layers", "a measured layer profile of PipeDream's profiler", _recognizes, _read)
