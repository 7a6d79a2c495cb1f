"""A parallel plan on its cluster: devices in their nodes, colored by stage, the groups that
compute together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from webapp.runs.parallel_names import layers_in_words
from webapp.runs.plan_names import Named

#: Nodes and devices of a node that are drawn.
MOST_NODES, MOST_IN_A_NODE = 32, 16
#: Stages have the hues of plots in turn; the number on the device tells those apart that share one.
HUES = 8


@dataclass(frozen=True)
class Spot:
    """A device: the stages of its worker, and whether the next device of the node belongs to the
    same worker.
    """

    device: int
    stages: tuple[int, ...]
    worker: int | None
    joined: bool

    @property
    def hue(self) -> int:
        """1 to ``HUES``; 0 for a device that the plan leaves idle."""
        return self.stages[0] % HUES + 1 if self.stages else 0

    @property
    def label(self) -> str:
        return ", ".join(map(str, self.stages)) if len(self.stages) <= 2 else f"{self.stages[0]}..."

    @property
    def words(self) -> str:
        if not self.stages:
            return f"device {self.device}: idle"
        stages = ", ".join(map(str, self.stages))
        return (
            f"device {self.device}: stage{'s' if len(self.stages) > 1 else ''} {stages}, worker {self.worker}"
        )


@dataclass(frozen=True)
class NodeBox:
    number: int
    device: str
    spots: tuple[Spot, ...]
    more: int


@dataclass(frozen=True)
class StageRow:
    """A stage in words: its layers, how many replicas it has and on which devices."""

    number: int
    layers: Named
    replicas: int
    devices_each: int
    on_nodes: str

    @property
    def hue(self) -> int:
        return self.number % HUES + 1


@dataclass(frozen=True)
class Nodes:
    """The first device of every node: devices are numbered node by node."""

    starts: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.starts)

    def of(self, device: int) -> int:
        """The number of the device's node."""
        return bisect_right(self.starts, device) - 1


@dataclass(frozen=True)
class Topology:
    nodes: tuple[NodeBox, ...]
    node_count: int
    stages: tuple[StageRow, ...]


def topology_of(outcome: Mapping[str, Any]) -> Topology | None:
    """``None`` for an outcome without a parallel plan or its cluster."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    groups = ((outcome.get("provenance") or {}).get("hardware") or {}).get("groups")
    if not groups or not plan.get("stages") or not plan.get("workers"):
        return None
    names: Mapping[str, str] = ((outcome.get("provenance") or {}).get("names") or {}).get("layers") or {}
    nodes, described = nodes_of(outcome), described_nodes(outcome)
    worker_of = {device: w for w, row in enumerate(plan["workers"]) for device in row["devices"]}
    stages_of: dict[int, list[int]] = {}
    for stage, row in enumerate(plan["stages"]):
        for worker in row["workers"]:
            stages_of.setdefault(worker, []).append(stage)
    drawn = zip(described[:MOST_NODES], nodes.starts, strict=False)
    boxes = [_box(n, node, start, worker_of, stages_of) for n, (node, start) in enumerate(drawn)]
    return Topology(tuple(boxes), nodes.count, tuple(_stage_rows(plan, nodes, names)))


def described_nodes(outcome: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every node of the outcome's cluster, as it was described."""
    groups = ((outcome.get("provenance") or {}).get("hardware") or {}).get("groups") or ()
    return [group["node"] for group in groups for _ in range(group["count"])]


def nodes_of(outcome: Mapping[str, Any]) -> Nodes:
    counts = [int(node["device_count"]) for node in described_nodes(outcome)]
    return Nodes(tuple(accumulate(counts[:-1], initial=0)) if counts else ())


def _box(
    number: int,
    node: Mapping[str, Any],
    start: int,
    worker_of: Mapping[int, int],
    stages_of: Mapping[int, list[int]],
) -> NodeBox:
    count = int(node["device_count"])
    spots = []
    for device in range(start, start + min(count, MOST_IN_A_NODE)):
        worker = worker_of.get(device)
        last = device == start + count - 1
        joined = worker is not None and not last and worker_of.get(device + 1) == worker
        spots.append(
            Spot(device, tuple(stages_of.get(worker, ())) if worker is not None else (), worker, joined)
        )
    return NodeBox(number, str(node["device"]["name"]), tuple(spots), max(0, count - MOST_IN_A_NODE))


def _stage_rows(plan: Mapping[str, Any], all_nodes: Nodes, names: Mapping[str, str]) -> Iterator[StageRow]:
    for number, row in enumerate(plan["stages"]):
        workers = row["workers"]
        devices = [device for worker in workers for device in plan["workers"][worker]["devices"]]
        nodes = sorted({all_nodes.of(device) for device in devices})
        some = ", ".join(map(str, nodes[:8])) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
        layers = layers_in_words(row["begin"], row["end"], names)
        yield StageRow(number, layers, len(workers), len(plan["workers"][workers[0]]["devices"]), some)
