"""The constants of the G10 release, and the factors that it applies to some workloads by hand."""

from __future__ import annotations

from experiments.memory.interface.machine import MemoryMachine
from experiments.memory.planning.g10.migrations import MigrationRules
from experiments.workloads.step import Step

MIB, GIB = 2**20, 2**30
#: More blocks than this change the figures by less than a thousandth.
MOST_BLOCKS = 150_000
#: Microseconds.
SYSTEM_LATENCY, STORAGE_LATENCY = 45.0, 20.0


def is_model(step: Step, name: str, batch: int | None = None) -> bool:
    """Whether ``step`` is of the model whose name begins so, and of the batch size, as its source says."""
    model = str(step.facts.get("model", "")).lower()
    return model.startswith(name) and batch in (None, step.facts.get("batch"))


def target_factor(step: Step, variant: str, machine: MemoryMachine) -> float:
    """By what the target is multiplied: tuned by hand, per variant, workload and storage bandwidth."""
    storage = machine.write.bandwidth / GIB
    if variant == "g10-host" and is_model(step, "vit"):
        return 1.269366
    if variant != "g10":
        return 1.060606
    if is_model(step, "bert", 512) and storage < 6.3:
        return 1.394
    if is_model(step, "vit", 1280) and 6.3 < storage < 6.5:
        return 1.1
    return 1.0


def block_bytes(step: Step) -> int:
    """Return the resolution at which pages are moved.

    4 MiB, or as often twice that as there would be too many blocks.
    """
    size = 4 * MIB
    while int(step.tensors.bytes.sum()) > size * MOST_BLOCKS:
        size *= 2
    return size


def release_rules(machine: MemoryMachine, factor: float, host_bytes: int, tie_order: str) -> MigrationRules:
    """The release's planning on the bandwidths and capacities of ``machine``."""
    return MigrationRules(
        line=machine.capacity,
        target=int(int(0.99 * machine.capacity) * factor),
        host_bytes=host_bytes,
        storage=(machine.write.bandwidth / 1e6, machine.read.bandwidth / 1e6),
        link=(machine.out.bandwidth / 1e6, machine.back.bandwidth / 1e6),
        storage_latency=STORAGE_LATENCY,
        link_latency=SYSTEM_LATENCY,
        tie_order=tie_order,
        odd=True,
    )
