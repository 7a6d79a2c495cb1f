"""The devices of this host, told without torch; and each measured trial alone on its own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from experiments.hardware import local

QUERY = ("--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Device:
    """``index`` is the GPU's as nvidia-smi counts; ``None`` for the CPU. ``memory`` in bytes."""

    kind: str
    name: str
    memory: int
    index: int | None = None

    @property
    def key(self) -> str:
        return self.kind if self.index is None else f"{self.kind}-{self.index}"


def devices() -> list[Device]:
    cpu = Device("cpu", local.cpu_field("model name") or "CPU", local.memory_bytes())
    return [cpu, *gpus()]


def gpus() -> list[Device]:
    """What nvidia-smi lists, less what ``CUDA_VISIBLE_DEVICES`` (as numbers) hides; nothing where it is absent."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        told = subprocess.run(
            [program, *QUERY], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(parse(told), os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse(told: str) -> list[Device]:
    """Lines of ``index, name, MiB``. A device without a memory figure (some integrated ones) counts with 0."""
    found = []
    for line in filter(None, map(str.strip, told.splitlines())):
        index, name, memory = [part.strip() for part in line.split(",")]
        found.append(Device("cuda", name, int(memory) * 2**20 if memory.isdigit() else 0, int(index)))
    return found


def visible(found: Sequence[Device], chosen: str | None) -> list[Device]:
    if chosen is None:
        return list(found)
    numbers = {int(word) for word in chosen.split(",") if word.strip().isdigit()}
    return [device for device in found if device.index in numbers]


@contextmanager
def free_devices(found: Sequence[Device], folder: Path) -> Iterator[dict[str, Device]]:
    """One free device of each kind, held until the block ends, against every worker process on this host.

    File locks: the kernel lets them go with the process, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held: dict[str, Device] = {}
    locks: list[int] = []
    try:
        for device in found:
            if device.kind in held:
                continue
            lock = os.open(folder / f"{device.key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            locks.append(lock)
            if _taken(lock):
                held[device.kind] = device
        yield held
    finally:
        for lock in locks:
            os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
