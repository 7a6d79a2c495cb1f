"""Where unified memory keeps what the device has no free bytes for."""

from __future__ import annotations

from experiments.memory.interface import CACHED_STORAGE, MemoryMachine
from experiments.workloads.step import Step


def backing_of(step: Step, machine: MemoryMachine) -> str:
    """Return the host, where it holds what is live beyond the device; otherwise storage behind it."""
    return "host" if step.live_peak <= machine.host_bytes else CACHED_STORAGE
