"""This host, described from the operating system alone: no torch, nothing timed."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from experiments.hardware import library
from experiments.hardware.parts import Device, Hardware, Host, Link, Node, NodeGroup, Peaks, Storage

CPUINFO = Path("/proc/cpuinfo")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# float32 operations per cycle and core: two multiply-add units of the widest vectors that the flags announce.
FLOAT32_PER_CYCLE = (("avx512f", 64), ("fma", 32), ("avx", 16))
UNKNOWN_CLOCK = 2e9


def this_host() -> Hardware:
    """One node with one device, the CPU. Sizes are read; rates are estimates, and ``source`` says so."""
    sheet = library.device("cpu-generic", "local")
    cores, memory = core_count(), memory_bytes()
    bandwidth = sheet.device.memory_bandwidth / sheet.host.cores * cores
    source = (
        f"{platform.node()}: {cores} cores, {memory} bytes read from the system; rates estimated, not "
        "measured"
    )
    host = Host("local", memory, bandwidth, cores, source, peak_float32(cores))
    copy = Link("local-copy", bandwidth / 2, sheet.device.host_link.latency, False, source)
    peak = peak_float32(cores)
    device = Device(
        name="local-cpu",
        vendor=cpu_field("model name") or platform.machine(),
        year=sheet.device.year,
        memory_bytes=memory,
        memory_bandwidth=bandwidth,
        peak_flops=Peaks({"float32": peak, "float64": peak / 2}),
        host_link=copy,
        peer_link=copy,
        source=source,
    )
    return Hardware("local", (NodeGroup(1, Node(device, 1, copy, host, _disk(source))),), sheet.network)


def core_count() -> int:
    """Cores that this process may run on (affinity and container limits on the CPU set respected)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """DRAM of the host, or the limit of this control group where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return min(total, int(limit)) if limit.isdigit() else total


def cpu_field(name: str) -> str | None:
    """The first value of a field of /proc/cpuinfo, ``None`` where there is none (not Linux, not x86)."""
    if not CPUINFO.exists():
        return None
    for line in CPUINFO.read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def peak_float32(cores: int) -> float:
    """FLOP/s: cores x clock x float32 operations per cycle that the vector flags announce."""
    flags = (cpu_field("flags") or "").split()
    per_cycle = next((rate for flag, rate in FLOAT32_PER_CYCLE if flag in flags), 8)
    clock = float(cpu_field("cpu MHz") or UNKNOWN_CLOCK / 1e6) * 1e6
    return cores * clock * per_cycle


def _disk(source: str) -> Storage:
    usual = library.storage("nvme-gen3", "local")
    free = shutil.disk_usage(Path.cwd()).free
    return Storage("local-disk", usual.read_bandwidth, usual.write_bandwidth, usual.latency, free, source)
