"""This host, as the operating system tells it."""

from __future__ import annotations

import os
import subprocess
import sys

from experiments import hardware
from experiments.hardware import local


def test_local_is_this_host():
    here = hardware.resolve("local")
    assert (here.name, here.device_count, here.device.name) == ("local", 1, "local-cpu")
    assert here.node.host.cores == len(os.sched_getaffinity(0))
    assert here.device.memory_bytes == here.node.host.memory_bytes
    assert "estimated, not measured" in here.device.source


def test_a_container_limit_below_the_hosts_memory_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(local, "CGROUP_LIMIT", limit)
    whole = local.memory_bytes()
    limit.write_text("1073741824\n")
    assert local.memory_bytes() == 2**30
    limit.write_text("max\n")
    assert local.memory_bytes() == whole
    limit.write_text("99999999999999999\n")
    assert local.memory_bytes() == whole


def test_the_peak_follows_cores_clock_and_vector_width(tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: A CPU\ncpu MHz\t\t: 2000.0\nflags\t\t: sse avx fma avx2\n"
    )
    monkeypatch.setattr(local, "CPUINFO", cpuinfo)
    assert local.peak_float32(cores=4) == 4 * 2e9 * 32
    assert local.this_host().device.vendor == "A CPU"


def test_a_host_without_cpuinfo_is_described_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "CPUINFO", tmp_path / "absent")
    assert local.peak_float32(cores=1) == local.UNKNOWN_CLOCK * 8
    assert local.this_host().device.vendor


def test_hardware_never_loads_torch():
    code = (
        "import sys, experiments.hardware as h; h.resolve('local'); h.catalog(); sys.exit('torch' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
