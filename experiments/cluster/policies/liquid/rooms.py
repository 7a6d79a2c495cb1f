"""What is left of devices and hosts while placements are tried, and what a placement is worth (section 5).

A placement's score is ``alpha`` x what crosses the network + ``beta`` x what it leaves idle, the less the
better. Of all pairs of a job's workers, those on different nodes of a rack count once, those in different
racks twice. Idle is the part of the nodes it uses that nobody has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.cluster.interface import Devices, Machines, Pool

#: Sums of shares are not exact.
SLACK = 1e-9
#: What each pair of workers costs, by where they are.
SAME_RACK, OTHER_RACK = 1.0, 2.0


class Want(NamedTuple):
    """What a job is given: ``gpus`` devices at ``share``, and processors and bytes of memory next to each."""

    gpus: int
    share: float
    cpus: float
    memory: float
    types: tuple[str, ...]


@dataclass
class Rooms:
    """The free part of each device, and what is free of hosts; ``alpha`` and ``beta`` weigh the score."""

    machines: Machines
    working: Sequence[int]
    free: list[float]
    cpus: list[float]
    memory: list[float]
    alpha: float
    beta: float

    @classmethod
    def of(cls, pool: Pool, alpha: float, beta: float) -> Rooms:
        free = [min(pool.left_of(device)) for device in range(pool.machines.devices)]
        return cls(pool.machines, pool.capacity, free, pool.cpus.copy(), pool.memory.copy(), alpha, beta)

    def copy(self) -> Rooms:
        return Rooms(
            self.machines,
            self.working,
            self.free.copy(),
            self.cpus.copy(),
            self.memory.copy(),
            self.alpha,
            self.beta,
        )

    def take(self, devices: Devices, want: Want, sign: int = -1) -> None:
        """Give a job its devices, or take them back."""
        for device in devices:
            node = self.machines.node_of[device]
            self.free[device] += sign * want.share
            self.cpus[node] += sign * want.cpus
            self.memory[node] += sign * want.memory

    def fits(self, devices: Devices, want: Want) -> bool:
        """Whether a job can have just these."""
        by_node = self.machines.by_node(devices)
        return all(self.free[device] + SLACK >= want.share for device in devices) and all(
            self.cpus[node] + SLACK >= want.cpus * count and self.memory[node] + SLACK >= want.memory * count
            for node, count in by_node
        )

    def best_fit(self, want: Want) -> Devices | None:
        """The devices of least score, the lowest numbers of equal ones; ``None`` where there are none."""
        found = list(self._on_one_node(want)) or list(self._on_several(want))
        return min(found, key=lambda devices: (self.score(devices, want), devices), default=None)

    def score(self, devices: Devices, want: Want) -> float:
        """What it costs to put a job on devices that are free."""
        by_node = self.machines.by_node(devices)
        taken = len(devices) * want.share
        return self.alpha * self.network(devices) + self.beta * self.idle(
            [node for node, _ in by_node], taken
        )

    def network(self, devices: Devices) -> float:
        """The mean cost of a pair of workers."""
        counts = self.machines.by_node(devices)
        pairs = len(devices) * (len(devices) - 1) / 2
        crossing = 0.0
        for place, (node, count) in enumerate(counts):
            for other, others in counts[:place]:
                together = self.machines[node].rack == self.machines[other].rack
                crossing += count * others * (SAME_RACK if together else OTHER_RACK)
        return crossing / pairs if pairs else 0.0

    def idle(self, nodes: Iterable[int], taken: float = 0.0) -> float:
        """The part of nodes' devices that is free, once ``taken`` of them is not."""
        listed = list(nodes)
        free = sum(self.free[device] for node in listed for device in self.machines.devices_of(node))
        return (free - taken) / sum(self.machines.sizes[node] for node in listed)

    def _offer(self, node: int, want: Want) -> Sequence[int]:
        """Devices of a node that a job could have, the fullest first."""
        if not self.working[node] or (want.types and self.machines[node].device not in want.types):
            return ()
        fits = [
            device for device in self.machines.devices_of(node) if self.free[device] + SLACK >= want.share
        ]
        most = len(fits)
        if want.cpus:
            most = min(most, int(min(1e9, self.cpus[node] / want.cpus + SLACK)))
        if want.memory:
            most = min(most, int(min(1e9, self.memory[node] / want.memory + SLACK)))
        return sorted(fits, key=lambda device: (self.free[device], device))[:most]

    def _on_one_node(self, want: Want) -> Iterator[Devices]:
        """Devices of each node that holds a job alone; of nodes in the same state those of the first."""
        seen = set[Hashable]()
        for node, first in enumerate(self.machines.first):
            free = tuple(self.free[first : first + self.machines.sizes[node]])
            state = (free, self.machines[node].device, self.cpus[node], self.memory[node])
            if state in seen or not self.working[node]:
                continue
            seen.add(state)
            offer = self._offer(node, want)
            if len(offer) >= want.gpus:
                yield tuple(sorted(offer[: want.gpus]))

    def _on_several(self, want: Want) -> Iterator[Devices]:
        """Devices of each node with those of its rack, then others, each time by what they offer."""
        offers = {node: found for node in range(len(self.machines)) if (found := self._offer(node, want))}
        if sum(map(len, offers.values())) < want.gpus:
            return
        order = sorted(offers, key=lambda node: (-len(offers[node]), node))
        for first in order:
            rack, taken = self.machines[first].rack, list[int]()
            near = [node for node in order if self.machines[node].rack == rack and node != first]
            far = [node for node in order if self.machines[node].rack != rack]
            for node in (first, *near, *far):
                taken += offers[node][: want.gpus - len(taken)]
                if len(taken) == want.gpus:
                    break
            yield tuple(sorted(taken))
