"""Copies of KV between instances: one at a time for each pair of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.hardware.parts import Link
from experiments.serving.interface.phases import Instance, KvCopy


@dataclass(frozen=True)
class Fabric:
    """What joins instances: ``node_link`` inside a node, ``network`` between nodes.

    ``kv_bytes`` of a token in all ``layers``. Where every stage of one instance has its counterpart of the
    other in the same node, stages copy their layers at the same time over their nodes' links.
    """

    node_link: Link
    network: Link
    devices_per_node: int
    kv_bytes: float
    layers: int

    def seconds(self, source: Instance, goal: Instance, tokens: int) -> float:
        """Return the time of a copy alone: latency and bytes over the link's bandwidth."""
        link, parts = self._route(source, goal)
        return link.time(tokens * self.kv_bytes / parts)

    def last_layer(self, source: Instance, goal: Instance, tokens: int) -> float:
        """Return the time of the last layer's part, which cannot begin before the prompt is computed."""
        link, parts = self._route(source, goal)
        return link.time(tokens * self.kv_bytes / parts / self.layers)

    def _route(self, source: Instance, goal: Instance) -> tuple[Link, int]:
        here, there = (one.stage_nodes(self.devices_per_node) for one in (source, goal))
        if here == there:
            return self.node_link, len(here)
        return self.network, 1


class KvCopies:
    """The copies of one run."""

    def __init__(self, fabric: Fabric, instances: Sequence[Instance]) -> None:
        self.fabric, self.instances = fabric, instances
        self.done: list[KvCopy] = []
        self._free: dict[tuple[int, int], float] = {}

    def begin(self, request: int, source: int, goal: int, tokens: int, asked: float, now: float) -> float:
        """Copy the KV of a prompt that is done, behind the copies on the same way; return the end."""
        start = max(now, self._free.get((source, goal), 0.0))
        ways = (self.instances[source], self.instances[goal])
        return self._book(
            request, source, goal, tokens, asked, start, start + self.fabric.seconds(*ways, tokens)
        )

    def begin_early(
        self, request: int, source: int, goal: int, tokens: int, now: float, done: float
    ) -> float:
        """Copy layer by layer a prompt that is computed from ``now`` until ``done``; return the end.

        The first layer goes once it is computed, the last one behind all others.
        """
        asked = now + (done - now) / self.fabric.layers
        start = max(asked, self._free.get((source, goal), 0.0))
        ways = (self.instances[source], self.instances[goal])
        end = max(start + self.fabric.seconds(*ways, tokens), done + self.fabric.last_layer(*ways, tokens))
        return self._book(request, source, goal, tokens, asked, start, end)

    def _book(
        self, request: int, source: int, goal: int, tokens: int, asked: float, start: float, end: float
    ) -> float:
        self._free[source, goal] = end
        size = tokens * self.fabric.kv_bytes
        self.done.append(KvCopy(request, source, goal, size, asked, start, end))
        return end
