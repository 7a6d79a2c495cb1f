"""Virtual clusters: the cells that a tenant owns, what it runs in them, and where they are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from experiments.cluster.interface import Devices
from experiments.cluster.policies.hived.cells import Cell, Chain, Level
from experiments.core.errors import BadInput, Infeasible

#: How many cells of each level each tenant owns.
Quotas = Mapping[str, Mapping[Level, int]]


def quotas_of(words: str, knob: str = "virtual_clusters") -> Quotas:
    """Read ``a:4x2, b:1x3@V100``: two cells of four GPUs for a, three of one V100 for b."""
    found: dict[str, dict[Level, int]] = {}
    for word in filter(None, (part.strip() for part in words.split(","))):
        tenant, colon, rest = word.rpartition(":")
        cells, of_type, device = rest.partition("@")
        size, times, count = cells.partition("x")
        numbers = (size, count)
        if not (
            colon
            and times
            and bool(of_type) == bool(device)
            and all(one.isascii() and one.isdigit() and 0 < int(one) < 10**6 for one in numbers)
        ):
            raise BadInput(
                f"{word!r} is no cell of a tenant",
                f"knobs.{knob}",
                "name:GPUsxcells, ... or name:GPUsxcells@type",
            )
        owned = found.setdefault(tenant, {})
        level = Level(int(size), device)
        owned[level] = owned.get(level, 0) + int(count)
    return found


@dataclass
class VirtualCell:
    """``jobs`` are the devices of what runs in it; ``bound`` is where it is while something does."""

    chain: Chain
    size: int
    bound: Cell | None = None
    jobs: dict[int, Devices] = field(default_factory=dict)

    def free(self) -> set[int]:
        """Its devices that nobody has."""
        assert self.bound is not None
        return set(self.bound.devices).difference(*self.jobs.values())

    def nearest(self, gpus: int) -> Devices | None:
        """Free devices below the lowest common ancestor, where the fewest are left over."""
        if self.bound is None:
            return None
        free = self.free()
        for size in reversed([size for size in self.chain.levels if gpus <= size <= self.size]):
            blocks = [
                range(one, one + size) for one in range(self.bound.first, self.bound.first + self.size, size)
            ]
            fits = [left for block in blocks if len(left := sorted(free.intersection(block))) >= gpus]
            if fits:
                return tuple(min(fits, key=lambda left: (len(left), left))[:gpus])
        return None


@dataclass
class VirtualCluster:
    """The cells of one tenant, the smallest first."""

    cells: list[VirtualCell] = field(default_factory=list)

    def gpus(self, types: Sequence[str] = ()) -> int:
        """How many GPUs it owns, of one of ``types`` where any are named."""
        return sum(cell.size for cell in self.cells if not types or cell.chain.device in types)

    def choose(
        self, gpus: int, bind: Callable[[VirtualCell], bool], suits: Callable[[Cell], bool]
    ) -> dict[int, Devices] | None:
        """Devices for a job by the places of its cells; ``bind`` gives an unused cell its physical one.

        Cells that are bound already are used where that ``suits``.
        """
        return self._in_one(gpus, bind, suits) or self._in_several(gpus, bind)

    def _in_one(
        self, gpus: int, bind: Callable[[VirtualCell], bool], suits: Callable[[Cell], bool]
    ) -> dict[int, Devices] | None:
        """Best fit: the bound cell with the fewest devices left, else the smallest unused one."""
        used = [
            (cell, place)
            for place, cell in enumerate(self.cells)
            if cell.bound is not None and suits(cell.bound)
        ]
        for cell, place in sorted(used, key=lambda one: (len(one[0].free()), one[1])):
            if (devices := cell.nearest(gpus)) is not None:
                return {place: devices}
        for place, cell in enumerate(self.cells):
            if cell.bound is None and cell.size >= gpus and bind(cell):
                return {place: cell.nearest(gpus) or ()}
        return None

    def _in_several(self, gpus: int, bind: Callable[[VirtualCell], bool]) -> dict[int, Devices] | None:
        """Whole unused cells, the largest first."""
        found: dict[int, Devices] = {}
        for place in reversed(range(len(self.cells))):
            cell = self.cells[place]
            if gpus and cell.bound is None and bind(cell):
                assert cell.bound is not None
                found[place] = tuple(cell.bound.devices)[:gpus]
                gpus -= len(found[place])
        if not gpus:
            return found
        for place in found:
            unbind(self.cells[place])
        return None


def unbind(cell: VirtualCell) -> None:
    """Give the physical cell of an unused one back."""
    assert cell.bound is not None and not cell.jobs
    cell.chain.release(cell.bound)
    cell.bound = None


def owners(
    quotas: Quotas, chains: Mapping[Level, Chain], knob: str = "virtual_clusters"
) -> dict[str, VirtualCluster]:
    """The virtual clusters, each cell in the chain of the smallest nodes that has room for it.

    ``Infeasible`` names the level that lacks cells, and how many. Cells of a type choose first, then larger
    ones.
    """
    _refuse_unknown(quotas, chains, knob)
    found = {tenant: VirtualCluster() for tenant in quotas}
    wanted: dict[Level, dict[int, int]] = {node: {} for node in chains}
    asked = [
        (level, tenant) for tenant, cells in quotas.items() for level in cells for _ in range(cells[level])
    ]
    asked.sort(key=lambda one: (not one[0].device, -one[0].size, one[1], one[0].device))
    missing: list[Level] = []
    for level, tenant in asked:
        node = next((node for node in chains if _has_room(level, chains[node], wanted[node])), None)
        if node is None:
            missing.append(level)
            continue
        wanted[node][level.size] = wanted[node].get(level.size, 0) + 1
        found[tenant].cells.insert(0, VirtualCell(chains[node], level.size))
    if missing:
        lacks = (f"{missing.count(level)} of {level}" for level in sorted(set(missing), reverse=True))
        what = f"the cells of the tenants do not fit the cluster, which lacks {', '.join(lacks)}"
        raise Infeasible(what, f"knobs.{knob}", sum(level.size for level in missing))
    for cluster in found.values():
        cluster.cells.sort(key=lambda cell: cell.size)
    return found


def _refuse_unknown(quotas: Quotas, chains: Mapping[Level, Chain], knob: str) -> None:
    """``Infeasible`` names a tenant whose cells are of a level that no node has."""
    for tenant, cells in quotas.items():
        for level in cells:
            if not any(_has_level(level, chain) for chain in chains.values()):
                missing = cells[level] * level.size
                has = ", ".join(f"{node} in {chains[node].levels}" for node in chains)
                what = (
                    f"{tenant} owns cells of {level}, and no node has such cells: it lacks {cells[level]} of "
                )
                raise Infeasible(f"{what}{level}; nodes have {has}", f"knobs.{knob}", missing)


def _has_level(level: Level, chain: Chain) -> bool:
    return level.size in chain.levels and level.device in ("", chain.device)


def _has_room(level: Level, chain: Chain, wanted: Mapping[int, int]) -> bool:
    more = {**wanted, level.size: wanted.get(level.size, 0) + 1}
    return _has_level(level, chain) and chain.lack(more) is None


def reserved(clusters: Iterable[VirtualCluster], chain: Chain) -> dict[int, int]:
    """How many cells of each size of ``chain`` are owned and not bound."""
    counts: dict[int, int] = {}
    for cluster in clusters:
        for cell in cluster.cells:
            if cell.chain is chain and cell.bound is None:
                counts[cell.size] = counts.get(cell.size, 0) + 1
    return counts
