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

QUERY = ("--query-gpu=index,uuid,memory.total,name", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Device:
    """``index`` is the GPU's as nvidia-smi counts; ``None`` for the CPU. ``memory`` in bytes.

    CUDA counts in another order, and anew where a trial sees one device of several: it is told the ``uuid``.
    """

    kind: str
    name: str
    memory: int
    index: int | None = None
    uuid: str = ""

    @property
    def key(self) -> str:
        return self.kind if self.index is None else f"{self.kind}-{self.index}"


def devices() -> list[Device]:
    cpu = Device("cpu", local.cpu_field("model name") or "CPU", local.memory_bytes())
    return [cpu, *gpus()]


def gpus() -> list[Device]:
    """What nvidia-smi lists, less what ``CUDA_VISIBLE_DEVICES`` hides; nothing where it is absent."""
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
    """Lines of ``index, uuid, MiB, name``; what is none (a driver's complaint) is passed over.

    A device without a memory figure (some integrated ones) counts with 0.
    """
    rows = [[part.strip() for part in line.split(",", 3)] for line in told.splitlines()]
    return [
        Device("cuda", name, int(memory) * 2**20 if memory.isdigit() else 0, int(index), uuid)
        for index, uuid, memory, name in (row for row in rows if len(row) == 4 and row[0].isdigit())
    ]


def visible(found: Sequence[Device], chosen: str | None) -> list[Device]:
    """Those that ``CUDA_VISIBLE_DEVICES`` names, as CUDA reads it: by number or the start of a UUID, up to a
    wrong one.
    """
    if chosen is None:
        return list(found)
    seen: list[Device] = []
    for word in map(str.strip, chosen.split(",")):
        named = [device for device in found if word and _is_called(device, word)]
        if len(named) != 1 or named[0] in seen:
            break
        seen += named
    return seen


def _is_called(device: Device, word: str) -> bool:
    return str(device.index) == word or (word.startswith("GPU-") and device.uuid.startswith(word))


class HeldDevices(dict[str, Device]):
    """Devices by kind, each held by a lock on a file until it is let go: the kernel does so with the process,
    however it ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._locks: dict[str, int] = {}

    def hold(self, device: Device, lock: int) -> None:
        self[device.kind] = device
        self._locks[device.kind] = lock

    def keep(self, kind: str = "") -> Device | None:
        """Let all go but the one of ``kind``; return that one."""
        for other in [held for held in self if held != kind]:
            del self[other]
            os.close(self._locks.pop(other))
        return self.get(kind)


@contextmanager
def free_devices(found: Sequence[Device], folder: Path) -> Iterator[HeldDevices]:
    """One free device of each kind, held until the block ends, against every worker process on this host."""
    folder.mkdir(parents=True, exist_ok=True)
    held = HeldDevices()
    try:
        for device in found:
            if device.kind not in held:
                lock = os.open(folder / f"{device.key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                if _is_taken(lock):
                    held.hold(device, lock)
                else:
                    os.close(lock)
        yield held
    finally:
        held.keep()


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
