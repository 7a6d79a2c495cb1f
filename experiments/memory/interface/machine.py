"""What a memory plan is made for: capacities and channels, as policies and the simulator see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from experiments.core.progress import Progress, silent
from experiments.hardware import Hardware
from experiments.memory.interface.plan import MemoryPlan
from experiments.workloads.step import Step


@dataclass(frozen=True)
class CopyRate:
    """One direction of a channel, with its latency in seconds and bandwidth in bytes a second.

    A transfer of ``size`` bytes takes ``latency + size / bandwidth`` seconds.
    """

    bandwidth: float
    latency: float = 0.0

    def time(self, size: float) -> float:
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class MemoryMachine:
    """Bytes and channels of one device with its host and storage.

    ``out`` and ``back`` are device-to-host and host-to-device; where the link is not ``duplex`` they take
    turns. ``write`` and ``read`` are the storage's, ``remote_write`` and ``remote_read`` those of memory
    beyond the host (none: zero bytes); what goes there passes the host link as well. ``sharers`` devices
    doing the same use the host link at the same time. ``host_bandwidth`` and ``host_flops`` are the host
    processor's own, for work done there. ``synchronous``: copies are made by the processor that computes,
    which stalls meanwhile (a CPU as its own device). What is resident on storage or on remote memory is whole
    pages of ``storage_page`` and ``remote_page`` bytes.
    """

    capacity: int
    out: CopyRate
    back: CopyRate
    duplex: bool
    host_bytes: int
    write: CopyRate
    read: CopyRate
    storage_bytes: int
    synchronous: bool = False
    remote_bytes: int = 0
    remote_write: CopyRate = CopyRate(0.0)
    remote_read: CopyRate = CopyRate(0.0)
    sharers: int = 1
    host_bandwidth: float = 0.0
    host_flops: float = 0.0
    storage_page: int = 1
    remote_page: int = 1

    def tier_bytes(self, tier: str) -> int:
        """Return the capacity of ``tier`` in bytes."""
        return {"host": self.host_bytes, "storage": self.storage_bytes, "remote": self.remote_bytes}[tier]

    def tier_page(self, tier: str) -> int:
        """Return the page size of ``tier``, of which its bytes are whole multiples."""
        return {"host": 1, "storage": self.storage_page, "remote": self.remote_page}[tier]

    def out_time(self, size: float, tier: str = "host") -> float:
        """Return the seconds to move ``size`` bytes from the device to ``tier``.

        Nothing else of this device moves meanwhile.
        """
        time = self.out.time(size * self.sharers)
        return time if tier == "host" else max(time, self.onward(tier)[0].time(size))

    def back_time(self, size: float, tier: str = "host") -> float:
        """Return the seconds to move ``size`` bytes from ``tier`` to the device.

        Nothing else of this device moves meanwhile.
        """
        time = self.back.time(size * self.sharers)
        return time if tier == "host" else max(time, self.onward(tier)[1].time(size))

    def onward(self, tier: str) -> tuple[CopyRate, CopyRate]:
        """Return the rates to and from ``tier`` beyond the host."""
        return (self.write, self.read) if tier == "storage" else (self.remote_write, self.remote_read)


def machine_of(hardware: Hardware) -> MemoryMachine:
    """Return the first device of ``hardware`` and its share of the node's host memory and storage."""
    node, link = hardware.node, hardware.device.host_link
    rate = CopyRate(link.bandwidth, link.latency)
    storage, remote, share = node.storage, node.remote, node.device_count
    return MemoryMachine(
        capacity=hardware.device.memory_bytes,
        out=rate,
        back=rate,
        duplex=link.duplex,
        host_bytes=node.host.memory_bytes // share,
        write=CopyRate(storage.write_bandwidth, storage.latency),
        read=CopyRate(storage.read_bandwidth, storage.latency),
        storage_bytes=storage.capacity_bytes // share,
        storage_page=storage.page_bytes,
        remote_bytes=remote.capacity_bytes // share if remote else 0,
        remote_write=CopyRate(remote.write_bandwidth, remote.latency) if remote else CopyRate(0.0),
        remote_read=CopyRate(remote.read_bandwidth, remote.latency) if remote else CopyRate(0.0),
        remote_page=remote.page_bytes if remote else 1,
        host_bandwidth=node.host.memory_bandwidth / share,
        host_flops=node.host.peak_flops / share,
    )


@dataclass(frozen=True)
class PlanEstimate:
    """The outcome of a trial: whether a plan fits, and then its peak and time, otherwise the reason.

    ``stalls`` are seconds by cause, ``late`` the seconds that compute stalled until a tensor was there.
    ``missing`` bytes are those that one op lacks where a plan does not fit, ``None`` where that is not told.
    """

    fits: bool
    peak_memory: int = 0
    step_time: float = float("inf")
    reason: str = ""
    stalls: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[int, float] = field(default_factory=dict)
    missing: float | None = None


#: The step with its batch in so many micro-batches; ``BadInput`` where they would not be equal.
Split = Callable[[int], Step]


@dataclass(frozen=True)
class DeviceView:
    """What planning may see of the device.

    - ``machine``: its capacities and channels.
    - ``estimate``: a trial of a plan (one simulated step).
    - ``random``: a seeded generator.
    - ``split``: the step cut into a number of micro-batches.
    - ``progress``: may raise to cancel; every trial reports to it.
    """

    machine: MemoryMachine
    estimate: Callable[[MemoryPlan], PlanEstimate]
    random: np.random.Generator
    split: Split
    progress: Progress = silent

    @property
    def capacity(self) -> int:
        return self.machine.capacity
