"""Which devices a host says it has, from what nvidia-smi prints, and that one device has one trial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.hardware import local
from workers import gpu
from workers.gpu import Device, free_devices, parse, visible

ONE_BIG = "0, GPU-5a1c0de0-1111-2222-3333-444455556666, 143771, NVIDIA H200\n"
MIXED = """\
0, GPU-aaaa1111-0000-0000-0000-000000000001, 81559, NVIDIA H100 80GB HBM3
1, GPU-bbbb2222-0000-0000-0000-000000000002, 15360, Tesla T4
"""
INTEGRATED = "0, GPU-cccc3333-0000-0000-0000-000000000003, [N/A], NVIDIA GB10\n"
ONE_IS_LOST = """\
Unable to determine the device handle for GPU0000:65:00.0: Unknown Error
1, GPU-bbbb2222-0000-0000-0000-000000000002, 15360, Tesla T4
"""
NONE = "No devices were found\n"

PROCESSOR = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9654 96-Core Processor
cpu MHz\t\t: 2400.000
processor\t: 1
model name\t: never read
"""


def test_each_line_is_a_device_with_its_memory_in_bytes() -> None:
    uuid = "GPU-5a1c0de0-1111-2222-3333-444455556666"
    assert parse(ONE_BIG) == [Device("cuda", "NVIDIA H200", 143771 * 2**20, 0, uuid)]
    assert [(device.name, device.index) for device in parse(MIXED)] == [
        ("NVIDIA H100 80GB HBM3", 0),
        ("Tesla T4", 1),
    ]


def test_a_device_that_shares_the_hosts_memory_counts_with_none_of_its_own() -> None:
    assert [(device.name, device.memory) for device in parse(INTEGRATED)] == [("NVIDIA GB10", 0)]


def test_complaints_of_the_driver_are_no_devices() -> None:
    assert parse(NONE) == parse("") == []
    assert [device.name for device in parse(ONE_IS_LOST)] == ["Tesla T4"]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (None, ["NVIDIA H100 80GB HBM3", "Tesla T4"]),
        ("", []),
        ("1", ["Tesla T4"]),
        ("1, 0", ["Tesla T4", "NVIDIA H100 80GB HBM3"]),
        ("GPU-bbbb2222", ["Tesla T4"]),
        ("0,-1,1", ["NVIDIA H100 80GB HBM3"]),
        ("7", []),
        ("MIG-bbbb2222", []),
    ],
)
def test_only_devices_that_cuda_may_see_are_offered(chosen: str | None, names: list[str]) -> None:
    assert [device.name for device in visible(parse(MIXED), chosen)] == names


def nvidia_smi(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_host_asks_nvidia_smi_for_just_these_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer").write_text(MIXED)
    nvidia_smi(tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/answer')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [device.key for device in gpu.devices()] == ["cpu", "cuda-1"]
    assert (tmp_path / "asked").read_text().split() == list(gpu.QUERY)
    assert gpu.QUERY[0] == "--query-gpu=index,uuid,memory.total,name"


def test_a_driver_that_fails_means_no_gpu_and_never_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(
        tmp_path, "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9"
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpu.gpus() == []
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert gpu.gpus() == []
    assert [device.kind for device in gpu.devices()] == ["cpu"]


def test_the_processor_is_called_as_the_system_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(PROCESSOR)
    monkeypatch.setattr(local, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.devices() == [Device("cpu", "AMD EPYC 9654 96-Core Processor", local.memory_bytes())]


def test_a_device_is_one_trials_alone_also_against_another_process(tmp_path: Path) -> None:
    found = parse(MIXED)
    with free_devices(found, tmp_path) as first, free_devices(found, tmp_path) as second:
        assert (first["cuda"].index, second["cuda"].index) == (0, 1)
        with free_devices(found, tmp_path) as third:
            assert third == {}
        assert locked_elsewhere(tmp_path / "cuda-0.lock")
    assert not locked_elsewhere(tmp_path / "cuda-0.lock")


def test_a_run_that_needs_no_device_lets_all_go(tmp_path: Path) -> None:
    found = [Device("cpu", "a processor", 0), *parse(ONE_BIG)]
    with free_devices(found, tmp_path) as first:
        assert first.keep("cuda") == found[1]
        with free_devices(found, tmp_path) as second:
            assert list(second) == ["cpu"]
        assert first.keep("") is None
        with free_devices(found, tmp_path) as third:
            assert list(third) == ["cpu", "cuda"]


def locked_elsewhere(path: Path) -> bool:
    """Whether another process is refused the lock."""
    take = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", take, str(path)], stderr=subprocess.DEVNULL).returncode != 0


def test_a_lock_goes_with_the_worker_that_was_killed(tmp_path: Path) -> None:
    hold = (
        "import fcntl, os, signal, sys; fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX); "
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", hold, str(tmp_path / "cuda-0.lock")]).returncode == -9
    with free_devices(parse(ONE_BIG), tmp_path) as free:
        assert free["cuda"].index == 0


@pytest.mark.skipif(not os.access("/dev/nvidiactl", os.R_OK), reason="no NVIDIA GPU on this host")
def test_the_real_driver_is_understood() -> None:
    assert all(device.uuid.startswith("GPU-") and device.name for device in gpu.gpus())
