"""First-touch placement between two memories, as an operating system does it (a baseline of AutoTM, 2020).

A page is resident for life where there was free memory when it was first written: in DRAM until that is full,
then in the memory beyond it (``remote``), which ops use in place. A framework takes its memory from one heap
and uses addresses again, so it is addresses that have a place: those below DRAM's capacity were touched
first. Nothing moves.

Left open by the paper or ours: the heap is served in the step's order by the smallest hole that fits
(``fit``), what persists first; a tensor that reaches beyond DRAM's last address counts as outside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.in_place import uses_in_place
from experiments.memory.planning.offsets import online, pool_bytes, stays_of
from experiments.workloads.step import Step


@dataclass(frozen=True)
class FirstTouch(MemoryPolicy):
    """Addresses of one heap are in DRAM until it is full, then in the memory beyond it."""

    name: ClassVar[str] = "first_touch"
    mechanism: ClassVar[str] = "other memory"
    modes: ClassVar[tuple[str, ...]] = ("simulated",)

    fit: str = knob("best_fit", "which hole of the heap a tensor takes", choices=("first_fit", "best_fit"))

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        machine = device.machine
        if not machine.remote_bytes:
            raise Infeasible("needs memory that ops can use in place (a node with remote)", "first_touch")
        addresses = online(stays_of(step), machine.capacity + machine.remote_bytes, self.fit)
        beyond = {stay.tensor for stay, start in addresses.items() if start + stay.bytes > device.capacity}
        notes = {"heap_bytes": pool_bytes(addresses), "tensors_beyond": len(beyond)}
        return MemoryPlan(tuple(uses_in_place(step, machine, beyond)), notes=notes)
