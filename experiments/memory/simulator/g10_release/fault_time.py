"""How long page faults hold a kernel up, by the release's model of profiled fault times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.interface.paged import PagedStep
from experiments.memory.simulator.g10_release.batches import CYCLES_PER_SECOND, decimal

#: Microseconds: handling of a fault by the host, and what storage adds to it.
SYSTEM_LATENCY, STORAGE_LATENCY = 45, 20
#: Bytes per second of a kernel whose profile shows no cost of faults.
UNLIMITED = 1.0630044e12


@dataclass
class Faults:
    """Bytes missing when an op begins, in what it only writes (1) and in its other tensors (0)."""

    storage: list[int] = field(default_factory=lambda: [0, 0])
    other: list[int] = field(default_factory=lambda: [0, 0])


def new_outputs(paged: PagedStep, op: int) -> set[int]:
    """What ``op`` writes and does not read."""
    return set(paged.step.outputs[op].tolist()) - set(paged.step.inputs[op].tolist())


class FaultTimes:
    """``rates[op]``: bytes per second at which faults on inputs and on outputs are served by the host."""

    def __init__(self, paged: PagedStep, machine: MemoryMachine) -> None:
        self.link, self.storage = decimal(machine.back.bandwidth), decimal(machine.read.bandwidth)
        profile = paged.step.facts.get("g10", {})
        self.rates = [_profiled_rates(paged, profile, op) for op in range(paged.ops)]

    def of(self, op: int, faults: Faults) -> float:
        """Seconds that the missing bytes cost beyond the op's own time: storage and host overlap.

        Where storage is as fast as the link, the host has none of it while storage is used, and is not
        counted.
        """
        share = SYSTEM_LATENCY / (SYSTEM_LATENCY + STORAGE_LATENCY)
        storage = [
            min(rate * share, self.storage) if size else 0.0
            for rate, size in zip(self.rates[op], faults.storage, strict=True)
        ]
        rest = self.link - max(storage)
        from_storage = sum(size / rate for size, rate in zip(faults.storage, storage, strict=True) if size)
        if rest <= 0:
            return from_storage
        from_host = sum(
            size / min(rate, rest) for size, rate in zip(faults.other, self.rates[op], strict=True) if size
        )
        return max(from_storage, from_host)


def _profiled_rates(paged: PagedStep, profile: Mapping[str, Any], op: int) -> tuple[float, float]:
    """From the times with faults on everything, on outputs only and on nothing, each cut to whole seconds."""
    if not profile:
        return UNLIMITED, UNLIMITED
    none = int(paged.seconds[op])
    everything = max(int(profile["fault_cycles"][op] / CYCLES_PER_SECOND), none)
    outputs = min(max(int(profile["input_fault_cycles"][op] / CYCLES_PER_SECOND), none), everything)
    read = sum(paged.bytes[t] for t in set(paged.step.inputs[op].tolist()))
    written = sum(paged.bytes[t] for t in new_outputs(paged, op))
    return _rate(read, everything - outputs), _rate(written, outputs - none)


def _rate(size: int, seconds: int) -> float:
    return size / seconds if seconds else UNLIMITED
