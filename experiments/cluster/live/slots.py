"""The places of this host on which jobs run: cores, or GPUs where it has some."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.cluster.interface import Machine, Machines
from experiments.core.errors import Infeasible
from experiments.hardware.local import this_host

#: Where NVIDIA's driver lists the GPUs of a host.
DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Slots:
    """``cores`` are the numbers of processors; ``gpus`` name GPUs, one for each slot, or nothing."""

    cores: Sequence[int]
    gpus: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.gpus or self.cores)

    def core(self, device: int) -> int | None:
        """The core that a slot's process keeps to; with a GPU it may have any."""
        return None if self.gpus else self.cores[device]

    def gpu(self, device: int) -> str | None:
        return self.gpus[device] if self.gpus else None

    def machines(self) -> Machines:
        """This host as schedulers know it: one node."""
        device = this_host().device.name
        return Machines([Machine("this host", len(self), device)])


def slots_here(most: int | None) -> Slots:
    """The slots of this host, ``most`` of them at most; ``Infeasible`` where it has fewer."""
    cores, gpus = sorted(os.sched_getaffinity(0)), visible_gpus()
    there = gpus or cores
    count = len(there) if most is None else most
    if count > len(there):
        kind = "GPUs" if gpus else "cores"
        raise Infeasible(f"{count} slots are asked for and this host has {len(there)} {kind}", "knobs.slots")
    return Slots(cores, gpus[:count]) if gpus else Slots(cores[:count])


def visible_gpus() -> list[str]:
    """The GPUs that CUDA shows this process, as ``CUDA_VISIBLE_DEVICES`` names them; asked without torch."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return [name for name in said.split(",") if name]
    return [str(number) for number, _ in enumerate(DRIVER.iterdir())] if DRIVER.is_dir() else []
