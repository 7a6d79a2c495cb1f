"""Which layout each embedding table gets: proposals are placed and the slowest device is relieved until
nothing helps.

Source: Mudigere et al., ISCA'22, section 4.2, leaves the search to heuristics; this is greedy descent over
tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.core.budget import Budget
from experiments.parallel.policies.neo_4d.embedding_tables import (
    EmbeddingTable,
    Loads,
    Machines,
    Shard,
    place,
    shards,
)

Names = tuple[str, ...]


@dataclass(frozen=True)
class LayoutProposal:
    """A layout for each table, its shards and the loads that follow."""

    layouts: Names
    shards: tuple[Shard, ...]
    loads: Loads

    @property
    def slowest(self) -> float:
        return self.loads.slowest

    def on_slowest(self) -> list[int]:
        """Return the tables with a shard on the slowest device, the most expensive there first."""
        device = self.loads.seconds.index(self.slowest)
        dear: dict[int, float] = {}
        for shard, home in zip(self.shards, self.loads.homes, strict=True):
            if device in home:
                dear[shard.table] = dear.get(shard.table, 0.0) + shard.seconds
        return sorted(dear, key=lambda table: (-dear[table], table))


@dataclass
class LayoutSearch:
    """A search for the layouts of all tables; ``run`` gives the best proposal found.

    ``None`` where no layout of ``allowed`` fits in ``capacity`` bytes a device.
    ``budget`` bounds the proposals.
    """

    tables: Sequence[EmbeddingTable]
    samples: int
    machines: Machines
    capacity: float
    allowed: Sequence[str]
    budget: Budget = field(default_factory=lambda: Budget(sys.maxsize))
    proposals: int = 0
    offered: list[dict[str, list[Shard]]] = field(init=False)

    def __post_init__(self) -> None:
        every = [
            {name: shards(i, table, name, self.samples, self.machines) for name in self.allowed}
            for i, table in enumerate(self.tables)
        ]
        self.offered = [{name: found for name, found in row.items() if found} for row in every]

    def run(self) -> LayoutProposal | None:
        tried = [self._propose(start) for start in self._starts()]
        best = min((p for p in tried if p is not None), key=lambda p: p.slowest, default=None)
        while best is not None:
            better = self._relieve(best)
            if better is None:
                break
            best = better
        return best

    def _starts(self) -> list[Names]:
        """What is cheapest for each table alone, then each layout for all tables that can have it."""
        alone = tuple(min(row, key=lambda name: max(s.seconds for s in row[name])) for row in self.offered)
        same = (
            tuple(name if name in row else next(iter(row)) for row in self.offered) for name in self.allowed
        )
        return list(dict.fromkeys((alone, *same)))

    def _propose(self, layouts: Names) -> LayoutProposal | None:
        if not self.budget.take():
            return None
        self.proposals += 1
        found = [shard for row, name in zip(self.offered, layouts, strict=True) for shard in row[name]]
        loads = place(found, self.machines, self.capacity)
        return None if loads is None else LayoutProposal(layouts, tuple(found), loads)

    def _relieve(self, best: LayoutProposal) -> LayoutProposal | None:
        """The first table of the slowest device, the most expensive first, that another layout makes the
        whole faster.
        """
        for table in best.on_slowest():
            others = (name for name in self.offered[table] if name != best.layouts[table])
            tried = [
                self._propose((*best.layouts[:table], name, *best.layouts[table + 1 :])) for name in others
            ]
            better = min((p for p in tried if p is not None), key=lambda p: p.slowest, default=None)
            if better is not None and better.slowest < best.slowest * (1 - 1e-9):
                return better
        return None
