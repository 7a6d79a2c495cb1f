"""Dynamic tensor rematerialization (Kirisame et al., ICLR 2021): evict when memory is full, recompute when
missing.

Online: no op is looked at before it runs. The policy runs the step in the budget (op times are given, so its
decisions are those of a real run with these times) and returns what it did as drops and reruns. The score of
a resident storage is (cost + cost of its evicted neighborhood) / (bytes x staleness); the least leaves.
The neighborhoods ``eq``, ``full`` and ``local`` and the run are in ``planning.eviction``. A storage whose
last reference is gone is evicted at once and can still be recomputed; what is made of it pays for it. Made
again, it stays until it is chosen, as in the paper's simulator, which wastes room where memory is tight; with
``unreferenced`` = leave it leaves once it has been read.
Storages under 1 % of the mean size are not considered (knob), as in the paper's prototype.

Not reproduced: sampling sqrt(N) storages per eviction, and the cost of the search itself. A view comes back
with its storage, which in the paper's simulator costs the view's op again. What the paper leaves open: ops
that update state; here what cannot be recomputed never leaves, see ``planning.eviction.online``. The paper's
own logs (``dtr-log``) write copies where an op changes a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.eviction.neighborhood import Classes, Full, Local
from experiments.memory.planning.eviction.online import SMALL, EvictionRules, evict_online
from experiments.workloads.step import Step

HEURISTICS: dict[str, type[Local]] = {"eq": Classes, "full": Full, "local": Local}


@dataclass(frozen=True)
class Dtr(MemoryPolicy):
    """Evicts online by cost, size and staleness, and recomputes what is missing."""

    name: ClassVar[str] = "dtr"
    mechanism: ClassVar[str] = "recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")

    heuristic: str = knob("eq", "which evicted neighbors count", choices=("eq", "full", "local"))
    small: float = knob(SMALL, "storages below this share of the mean size never leave", low=0.0, high=1.0)
    limit: float = knob(2.0, "most time of a step, in units of its own compute", low=1.0, high=100.0)

    unreferenced: str = knob(
        "stay",
        "what was recomputed for others and nobody refers to: evicted like others, or leaves once read",
        choices=("stay", "leave"),
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        valuation, stay = HEURISTICS[self.heuristic], self.unreferenced == "stay"
        return evict_online(step, device.capacity, EvictionRules(valuation, self.small, self.limit, stay))
