"""Dynamic tensor rematerialization (Kirisame et al., ICLR 2021): evict when memory is full, recompute when
missing.

Online: no op is looked at before it runs. The policy runs the step in the budget (op times are given, so its
decisions are those of a real run with these times) and returns what it did as drops and reruns. The score of
a resident storage is (cost + cost of its evicted neighborhood) / (bytes x staleness); the least leaves.
Neighborhoods:
- ``local`` counts none; ``full`` every evicted ancestor and descendant reachable through evicted ones;
- ``eq`` keeps evicted storages in classes that grow by union; a storage that returns takes its own cost
  out of its class and leaves it, the class is never split.
Storages under 1 % of the mean size are not considered (knob), as in the paper's prototype. A storage whose
last reference is gone is freed at once and can still be recomputed.

Not reproduced: sampling sqrt(N) storages per eviction, and the cost of the search itself. What the paper
leaves open: ops that update state; here what cannot be recomputed never leaves, see ``online``. The paper's
own logs record copies on write and the times of one GPU; the published overheads by log can be compared only
on those logs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, Lineage, MemoryPlan, MemoryPolicy
from experiments.memory.policies.dtr.online import OnlineRun, Relations, Valuation
from experiments.workloads.step import Step

SMALL = 0.01


class Local:
    """The storage's own cost."""

    def __init__(self, relations: Relations) -> None:
        self.relations = relations

    def price(self, tensor: int) -> float:
        return self.relations.cost[tensor]

    def note_departure(self, tensor: int) -> None: ...

    def note_return(self, tensor: int) -> None: ...


class Full(Local):
    """Its own cost and that of all evicted ancestors and descendants that touch it through evicted ones."""

    def __init__(self, relations: Relations) -> None:
        super().__init__(relations)
        self.absent: set[int] = set()

    def price(self, tensor: int) -> float:
        up = self._reach(tensor, self.relations.parents)
        down = self._reach(tensor, self.relations.children)
        return self.relations.cost[tensor] + sum(self.relations.cost[other] for other in sorted(up | down))

    def _reach(self, tensor: int, neighbors: list[list[int]]) -> set[int]:
        found: set[int] = set()
        todo = list(neighbors[tensor])
        while todo:
            other = todo.pop()
            if other in self.absent and other not in found:
                found.add(other)
                todo += neighbors[other]
        return found

    def note_departure(self, tensor: int) -> None:
        self.absent.add(tensor)

    def note_return(self, tensor: int) -> None:
        self.absent.discard(tensor)


class Classes(Local):
    """Its own cost and that of the classes of its evicted neighbors, each class once."""

    def __init__(self, relations: Relations) -> None:
        super().__init__(relations)
        self.member: dict[int, int] = {}
        self.above: list[int] = []
        self.total: list[float] = []

    def price(self, tensor: int) -> float:
        return self.relations.cost[tensor] + sum(self.total[root] for root in self._around(tensor))

    def _around(self, tensor: int) -> Collection[int]:
        """Roots of the classes of the evicted neighbors."""
        near = (*self.relations.parents[tensor], *self.relations.children[tensor])
        return dict.fromkeys(self._root(self.member[other]) for other in near if other in self.member)

    def _root(self, number: int) -> int:
        while self.above[number] != number:
            self.above[number] = self.above[self.above[number]]
            number = self.above[number]
        return number

    def note_departure(self, tensor: int) -> None:
        joined = len(self.above)
        self.above.append(joined)
        self.total.append(self.relations.cost[tensor])
        for root in self._around(tensor):
            self.above[root] = joined
            self.total[joined] += self.total[root]
        self.member[tensor] = joined

    def note_return(self, tensor: int) -> None:
        if tensor in self.member:
            root = self._root(self.member.pop(tensor))
            self.total[root] = max(0.0, self.total[root] - self.relations.cost[tensor])


HEURISTICS: dict[str, type[Local]] = {"eq": Classes, "full": Full, "local": Local}


@dataclass(frozen=True)
class Dtr(MemoryPolicy):
    """Evicts online by cost, size and staleness, and recomputes what is missing."""

    name: ClassVar[str] = "dtr"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    heuristic: str = knob("eq", "which evicted neighbors count", choices=("eq", "full", "local"))
    small: float = knob(SMALL, "storages below this share of the mean size never leave", low=0.0, high=1.0)
    limit: float = knob(2.0, "most time of a step, in units of its own compute", low=1.0, high=100.0)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        relations = Relations(step, Lineage(step))
        valuation: Valuation = HEURISTICS[self.heuristic](relations)
        sizes = step.tensors.bytes[~step.persistent]
        least = self.small * float(sizes.mean()) if len(sizes) else 0.0
        online = OnlineRun(step, device.capacity, relations, valuation, least, self.limit - 1)
        moves = online.run()
        return MemoryPlan(moves, notes={"overhead": 1 + online.spent / step.seconds if step.seconds else 1.0})
