"""G10 (Zhang et al., MICRO 2023): tensors leave in the gaps where that frees most memory above the capacity
for longest.

The gaps of every tensor are known ahead. The one with the largest benefit, bytes times the time by which
memory is over the capacity while the tensor would be away, is taken as long as memory is short: to storage,
or to the host where storage's write lane is full; bandwidth is booked slot by slot, and prefetches move as
early as memory allows. ``g10-gds`` has storage only, ``g10-host`` both; neither shares an address space with
the device, so their tensors need contiguous ranges (first fit, those that leave at the upper end), while
``g10`` moves pages.

``preset=artifact`` plans and carries out by the rules of the published release, oddities and hand-tuned
factors included (``planning.g10.release_rules``, ``simulator.g10_release``): its runs of g10-gds and g10-host
have an allocator of four times the device's memory, and their reported peak shows how much of it they use.
``preset=paper`` plans with the device's real size and the links' latencies and is carried out by the
simulator of all policies. Left open by the paper, and chosen there: storage counts as full when it would take
the tensor later than if nothing else were written, or have it back too late (the release: when all slots are
full, which many short ops never are); a gap's benefit is that of the better tier; a copy that takes longer to
begin than to pass is not made; where memory is still short when no gap pays any more, the largest tensor idle
at the fullest op leaves; what comes back keeps to the order of need where a trial step is faster so; where
contiguous ranges do not fit, planning starts again with a lower target; a gap that begins with the step is
not used; nothing is paged in on a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.memory.interface import (
    DeviceView,
    MemoryPlan,
    MemoryPolicy,
    PagingRelease,
    Release,
    WaitingRelease,
)
from experiments.memory.interface.paged import PagedStep
from experiments.memory.planning.g10.load import load_until_fits
from experiments.memory.planning.g10.migrations import MigrationPlanner
from experiments.memory.planning.g10.priority import TIE_ORDERS
from experiments.memory.planning.g10.release_rules import block_bytes, release_rules, target_factor
from experiments.memory.policies.g10.real_migrations import migrations
from experiments.memory.policies.g10.release_hints import announcements, moves_of, shed
from experiments.workloads.step import Step


@dataclass(frozen=True)
class Migrating(MemoryPolicy):
    """What the three have in common; ``uses_host`` and ``paged`` tell them apart."""

    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    uses_host: ClassVar[bool] = True
    paged: ClassVar[bool] = False

    preset: str = knob(
        "paper", "real capacities, or the published release's rules", choices=("paper", "artifact")
    )
    tie_order: str = knob(
        "artifact",
        "order of equal gaps in the release's rules: its unstable sort, or stable",
        choices=TIE_ORDERS,
    )
    loosen: float | None = knob(
        None, "factor on the release's target for memory; none: its own choice", low=0.1, high=10.0
    )

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if self.preset == "artifact":
            return self._by_the_release(step, device)
        return migrations(step, device, uses_host=self.uses_host, paged=self.paged)

    def _by_the_release(self, step: Step, device: DeviceView) -> MemoryPlan:
        machine, paged = device.machine, PagedStep(step)
        factor = target_factor(step, self.name, machine) if self.loosen is None else self.loosen
        rules = release_rules(machine, factor, machine.host_bytes if self.uses_host else 0, self.tie_order)
        load = load_until_fits(paged, rules.target)
        planner = MigrationPlanner(paged, rules, load.bytes)
        planner.select()
        planner.prefetch()
        ahead, after = (announcements(load), []) if self.paged else ([], shed(planner))
        notes = {
            "target_bytes": rules.target,
            "picked": len(planner.moved) + len(planner.looped),
            "extra": len(after),
        }
        return MemoryPlan(
            moves_of(ahead + planner.hints + after, planner), notes=notes, space=self.rules(step)
        )

    def rules(self, step: Step) -> Release:
        """How the release carries the plan out."""
        raise NotImplementedError


@dataclass(frozen=True)
class G10(Migrating):
    """Gaps by benefit over cost, in one address space with the device.

    Tensors go to storage first and then to the host.
    """

    name: ClassVar[str] = "g10"
    mechanism: ClassVar[str] = "offload"
    paged: ClassVar[bool] = True

    def rules(self, step: Step) -> Release:
        return PagingRelease(keeps_dead=True, block_bytes=block_bytes(step))


@dataclass(frozen=True)
class SeparateSpaces:
    """What the variants without a common address space add to a migrating policy."""

    space_factor: float = knob(4.0, "capacities that the release's allocator spans", low=1.0, high=64.0)

    def rules(self, step: Step) -> Release:
        return WaitingRelease(space_factor=self.space_factor)


@dataclass(frozen=True)
class G10Gds(SeparateSpaces, Migrating):
    """G10's migrations between the device and storage only."""

    name: ClassVar[str] = "g10-gds"
    mechanism: ClassVar[str] = "offload"
    uses_host: ClassVar[bool] = False


@dataclass(frozen=True)
class G10Host(SeparateSpaces, Migrating):
    """G10's migrations to storage and to the host, tensor by tensor."""

    name: ClassVar[str] = "g10-host"
    mechanism: ClassVar[str] = "offload"
