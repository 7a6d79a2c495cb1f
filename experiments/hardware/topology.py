"""The channels of a cluster: what a transfer from device to device crosses, and how fast each channel is.

Each device has a way out of it and a way into it on its node's link; each rail of a node the same on the
network; each leaf switch a way up to the spine and a way down. Devices of a node are joined all to all. A
transfer to another node leaves and arrives by the rail of its target; where that is not the sender's own, it
first crosses the sender's node link to the rail's first device. With one rail a node's devices share its
adapter, and their node link is not used. A link that is not duplex has one channel for both ways. Where a
device's sheet says what share of their bandwidth its links reach (``KernelRates``), channels are that much
slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.hardware.parts import Hardware

#: Where a channel is.
NODE, LEAF = "node", "leaf"
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Flows:
    """Transfers at once, all of one shape: ``parts`` of a vector from ``sources`` to ``targets``."""

    sources: Ints
    targets: Ints
    parts: Floats


@dataclass(frozen=True)
class Round:
    """``steps`` transfers one after another along each of the flows.

    The flows' parts are for all steps together. Steps wait for the slowest flow, unless only so many of them
    are ``crossings`` from node to node, as of what travels around a ring; the others stay in a node.
    """

    steps: int
    flows: Iterable[Flows]
    crossings: int | None = None

    def latency(self, inside: float, between: float) -> float:
        """Seconds of all steps, of flows with such latencies in a node and between nodes (0: there are none).

        Source: NCCL 2.8 to 2.19, src/graph/tuning.cc, of rings.
        """
        if self.crossings is None or not inside or not between:
            return self.steps * max(inside, between)
        return (self.steps - self.crossings) * inside + self.crossings * between


@dataclass(frozen=True)
class Cost:
    """Rounds on a topology: ``latency`` + ``slope`` x size seconds.

    ``loads`` has for each channel used the share of the vector that crosses it, ``sent`` the largest share
    that a device sends.
    """

    latency: float
    slope: float
    sent: float
    loads: dict[int, float]

    def seconds(self, size: float) -> float:
        return self.latency + self.slope * size


class Topology:
    """The channels between devices: of devices, of the rails of nodes and of the rails of leaves.

    They are numbered: devices, then the rails of each node, then the rails of each leaf; even numbers lead
    out (up), odd ones in (down). ``rate`` is bytes/s of each; those below ``adapters`` are devices', those
    from ``uplinks`` on are leaves'.
    """

    def __init__(self, cluster: Hardware) -> None:
        nodes, self._switch = cluster.nodes, cluster.switch
        self._networks = [node.network or cluster.network for node in nodes]
        counts = np.array([node.device_count for node in nodes])
        self._rails, self._each = cluster.rails, counts // cluster.rails
        self.node = np.repeat(np.arange(len(nodes)), counts)
        self._first = np.cumsum(counts) - counts
        self.rail = (np.arange(len(self.node)) - self._first[self.node]) // self._each[self.node]
        self._leaf = np.arange(len(nodes)) // (self._switch.nodes if self._switch else len(nodes))
        self.adapters = 2 * len(self.node)
        self.uplinks = self.adapters + 2 * len(nodes) * self._rails
        self._duplex = np.array([node.link.duplex for node in nodes])
        self._two_ways = np.array([link.duplex for link in self._networks])
        self._delay = np.array([link.latency for link in self._networks])
        self._latency = np.array([node.link.latency for node in nodes])
        self._steps = np.maximum(self._latency, [node.host.network_step for node in nodes])
        rates = [node.device.kernels for node in nodes]
        reached = np.array([rate.collective_efficiency for rate in rates])
        self._bandwidth = np.array([node.link.bandwidth for node in nodes]) * reached
        self._reached = min(rate.network_efficiency for rate in rates)
        self.rate = np.repeat(np.concatenate([self._bandwidth[self.node], *self._network_rates()]), 2)

    def _network_rates(self) -> tuple[Floats, Floats]:
        """Bytes/s of each rail of each node, and of each rail of each leaf."""
        rails = np.array([link.bandwidth for link in self._networks]) * self._reached / self._rails
        taper = self._switch.oversubscription if self._switch else 1.0
        fastest = rails.max()
        under = np.bincount(self._leaf, rails / fastest) * fastest / taper
        return np.repeat(rails, self._rails), np.repeat(under, self._rails)

    def leaf(self, node: int) -> int:
        """The leaf switch of a node."""
        return int(self._leaf[node])

    def within(self, device: int) -> int:
        """The number of a device in its node."""
        return device - int(self._first[self.node[device]])

    def place(self, channel: int) -> tuple[str, int, int]:
        """``NODE`` or ``LEAF``, its number, and the channel's number there."""
        if channel < self.adapters:
            node = int(self.node[channel // 2])
            return NODE, node, channel - 2 * int(self._first[node])
        ways = 2 * self._rails
        if channel < self.uplinks:
            node, own = divmod(channel - self.adapters, ways)
            return NODE, node, 2 * int(self._each[node]) * self._rails + own
        leaf, own = divmod(channel - self.uplinks, ways)
        return LEAF, leaf, own

    def cost(self, rounds: Iterable[Round]) -> Cost:
        """Rounds follow each other; in each the busiest channel sets the pace. Nothing sent costs nothing."""
        latency = slope = 0.0
        loads, sent = np.zeros(len(self.rate)), np.zeros(len(self.node))
        for a_round in rounds:
            load = np.zeros(len(self.rate))
            latency += a_round.latency(*self._carry_all(load, a_round))
            slope += float((load / self.rate).max())
            loads += load
            for flows in a_round.flows:
                _put(sent, flows.sources.ravel(), flows.parts.ravel())
        used = np.flatnonzero(loads)
        return Cost(
            latency, slope, float(sent.max()), dict(zip(used.tolist(), loads[used].tolist(), strict=True))
        )

    def _carry_all(self, load: Floats, a_round: Round) -> tuple[float, float]:
        """Adds all flows of a round to what each channel carries: the latencies as ``_carry`` has them."""
        within = between = 0.0
        starts = self._steps if a_round.crossings else self._latency
        for flows in a_round.flows:
            here, there = self._carry(load, flows, starts)
            within, between = max(within, here), max(between, there)
        return within, between

    def _carry(self, load: Floats, flows: Flows, starts: Floats) -> tuple[float, float]:
        """Adds the flows to what each channel carries: the latency of the slowest in a node and between.

        ``starts`` are the seconds with which a transfer starts inside each node.
        """
        sources, targets, parts = flows.sources.ravel(), flows.targets.ravel(), flows.parts.ravel()
        inside = self.node[sources] == self.node[targets]
        within = between = 0.0
        if inside.any():
            self._inside(load, sources[inside], targets[inside], parts[inside])
            within = float(starts[self.node[sources[inside]]].max())
        if not inside.all():
            between = self._between(load, sources[~inside], targets[~inside], parts[~inside])
        return within, between

    def _inside(self, load: Floats, sources: Ints, targets: Ints, parts: Floats) -> None:
        _put(load, 2 * sources, parts)
        _put(load, 2 * targets + self._duplex[self.node[targets]], parts)

    def _between(self, load: Floats, sources: Ints, targets: Ints, parts: Floats) -> float:
        """From node to node: the latency of the slowest flow."""
        start, end, rail = self.node[sources], self.node[targets], self.rail[targets]
        _put(load, self.adapters + 2 * (start * self._rails + rail), parts)
        _put(load, self.adapters + 2 * (end * self._rails + rail) + self._two_ways[end], parts)
        other = self.rail[sources] != rail
        self._inside(
            load, sources[other], (self._first[start] + rail * self._each[start])[other], parts[other]
        )
        up, down = self._leaf[start], self._leaf[end]
        across = up != down
        _put(load, self.uplinks + 2 * (up * self._rails + rail)[across], parts[across])
        way_down = int(self._two_ways.all())
        _put(load, self.uplinks + 2 * (down * self._rails + rail)[across] + way_down, parts[across])
        spine = self._switch.latency if self._switch and across.any() else 0.0
        return float(max(self._delay[start].max(), self._delay[end].max())) + spine


def _put(load: Floats, channels: Ints, parts: Floats) -> None:
    if len(channels):
        load += np.bincount(channels, parts, len(load))
