"""Free devices by node, and the rules that choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from experiments.cluster.interface.allocation import Devices, Gang


class Pool:
    """Devices that are free on each node.

    Copy it to plan a decision; nothing is taken until the simulator does.
    """

    def __init__(self, capacity: Sequence[int], free: Sequence[float] | None = None) -> None:
        self.capacity = tuple(capacity)
        self.free: list[float] = list(capacity if free is None else free)
        self.total: float = sum(self.free)

    def copy(self) -> Pool:
        return Pool(self.capacity, self.free)

    def take(self, gang: Gang) -> None:
        """Give devices to ``gang``; ``ValueError`` names the node that has not enough."""
        if lack := self.lack(gang):
            raise ValueError(f"job {gang.job} {lack}")
        self._add(gang, -1)

    def lack(self, gang: Gang) -> str:
        """Why ``gang`` cannot have its devices now, naming the node; empty when it can."""
        for node, count in gang.devices:
            if not 0 <= node < len(self.free):
                return f"is given devices on node {node}, and the nodes are 0 to {len(self.free) - 1}"
            if count * gang.share > self.free[node] + 1e-9:
                free = f"{self.free[node]:g} of {self.capacity[node]} devices are free"
                return f"is given {count} devices on node {node}, where {free}"
        return ""

    def give_back(self, gang: Gang) -> None:
        self._add(gang, +1)

    def _add(self, gang: Gang, sign: int) -> None:
        for node, count in gang.devices:
            self.free[node] += sign * count * gang.share
            self.total += sign * count * gang.share

    def place(self, job: int, gpus: int, rule: str) -> Gang | None:
        """Return a gang of ``gpus`` free devices by a rule of ``PLACEMENTS``, or ``None`` without one."""
        if gpus > self.total:
            return None
        order = PLACEMENTS[rule](self, gpus)
        return None if order is None else Gang(job, self._fill(order, gpus))

    def _fill(self, order: Iterator[int] | Sequence[int], gpus: int) -> Devices:
        taken = []
        for node in order:
            count = min(gpus, int(self.free[node]))
            if count:
                taken.append((node, count))
                gpus -= count
            if not gpus:
                break
        return tuple(sorted(taken))


def _first_fit(pool: Pool, gpus: int) -> Sequence[int]:
    """Any free devices, lowest node first: only their number decides ("counting GPUs only")."""
    return range(len(pool.free))


def _pack(pool: Pool, gpus: int) -> Sequence[int]:
    """Best fit: the fullest node that holds all; else as few nodes as possible, emptiest first."""
    nodes = range(len(pool.free))
    holding = [node for node in nodes if pool.free[node] >= gpus]
    if holding:
        return [min(holding, key=lambda node: (pool.free[node], node))]
    return sorted(nodes, key=lambda node: (-pool.free[node], node))


def _consolidate(pool: Pool, gpus: int) -> Sequence[int] | None:
    """As ``pack``, but the job waits until it fits on the fewest nodes that could ever hold it."""
    order = _pack(pool, gpus)
    most, fewest, left = sorted(pool.capacity, reverse=True), 0, gpus
    while left > 0:
        left -= most[fewest]
        fewest += 1
    return order if sum(int(pool.free[node]) for node in order[:fewest]) >= gpus else None


def _spread(pool: Pool, gpus: int) -> Sequence[int]:
    """Emptiest nodes first."""
    return sorted(range(len(pool.free)), key=lambda node: (-pool.free[node], node))


PLACEMENTS: dict[str, Callable[[Pool, int], Sequence[int] | None]] = {
    "count": _first_fit,
    "pack": _pack,
    "consolidate": _consolidate,
    "spread": _spread,
}
