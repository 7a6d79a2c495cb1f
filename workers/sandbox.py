"""The walls around a trial: which can be had on this host (its tier), and the command that starts a trial in
them.

Tiers, best first (docs/security.md says what each holds back): ``bubblewrap`` own process, network, mount and
IPC namespaces: only named files exist, loopback is the only network; ``landlock+seccomp`` only named files
can be opened, no network sockets, the tree is held by a subreaper; ``limits`` resource limits, refused system
calls and the subreaper alone. In all of them a worker that is root gives the trial an account of its own.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from experiments.hardware import local
from workers import bubblewrap, trial_accounts
from workers.accounts import Account
from workers.bubblewrap import CONFIGURATION, SHARED_MEMORY_BYTES, SYSTEM, TEMPORARY_BYTES
from workers.guard import landlock, seccomp

ROOT = Path(__file__).resolve().parents[1]
BUBBLEWRAP, LANDLOCK, LIMITS = TIERS = ("bubblewrap", "landlock+seccomp", "limits")

GPU_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
#: What tells of the host and of oneself; the folders of other processes are none of it.
PROC = tuple(
    f"/proc/{name}"
    for name in (
        "self",
        "cpuinfo",
        "devices",
        "driver",
        "filesystems",
        "loadavg",
        "meminfo",
        "modules",
        "stat",
        "sys",
        "uptime",
        "version",
        "vmstat",
    )
)
#: Files a program may have open at a time.
OPEN_FILES = 4096
#: Processes and threads of a trial at most: a pool or two for each core, and what few cores need anyway.
PROCESSES, PROCESSES_PER_CORE = 1024, 16
#: The kernel refuses more than that many beyond the limit: what comes before is seen, and told as the cause.
SPARE_PROCESSES = 16
DISK_BYTES = 16 * 2**30


class NoWalls(RuntimeError):
    """No trial may be started on this host as it is; ``remedy`` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def usual_processes() -> int:
    """Processes and threads that a trial may have on this host."""
    return PROCESSES + PROCESSES_PER_CORE * local.core_count()


@dataclass(frozen=True)
class Limits:
    """What a trial may take.

    ``memory``: resident bytes of its whole tree. ``seconds``: wall clock. ``processes``: with their threads.
    ``disk``: bytes of the files that it wrote.
    """

    memory: int
    seconds: float
    processes: int = field(default_factory=usual_processes)
    disk: int = DISK_BYTES


@dataclass(frozen=True)
class Cell:
    """One trial's walls: a private folder it may write, files it may read, the GPU (by index) it is given.

    ``code`` is the folder of a stored revision's package, instead of the host's own.
    """

    tier: str
    work: Path
    readable: tuple[Path, ...] = ()
    gpu: int | None = None
    code: Path | None = None

    def command(self, command: Sequence[str], limits: Limits, account: Account | None) -> list[str]:
        """``command`` inside the walls, as ``account`` (which root must give). Its parent must be the calling
        thread, and live as long as the trial.
        """
        if account is None and trial_accounts.is_needed():
            raise ValueError("root starts no trial without an account for it")
        guarded = {"parent": os.getpid(), "limits": resource_limits(limits, cuda=self.gpu is not None)}
        inner = [*_module("workers.guard.confine", self._confinement(limits, account)), "--", *command]
        if self.tier == BUBBLEWRAP:
            inner = [*self._bubblewrap(), "--", *inner]
        return [*_module("workers.guard", guarded), "--", *inner]

    def python_path(self) -> str:
        """Where the guard and the trial find their packages.

        Landlock cannot show a folder without all that lies below it, so in its tier the checkout cannot be
        listed and the one package that a trial needs is linked from the trial's own folder.
        """
        first = (str(self.code),) if self.code else ()
        if self.tier != LANDLOCK:
            return os.pathsep.join((*first, str(ROOT)))
        packages = self.work / "packages"
        packages.mkdir(exist_ok=True)
        (packages / "experiments").symlink_to(ROOT / "experiments")
        return os.pathsep.join((*first, str(ROOT), str(packages)))

    def _confinement(self, limits: Limits, account: Account | None) -> dict[str, object]:
        """What the last step before the trial's program does (``workers/guard/confine.py``)."""
        readable, writable = self._reachable()
        return {
            "account": (account.uid, account.gid) if account else None,
            "work": str(self.work),
            "processes": limits.processes + SPARE_PROCESSES,
            "own view": self.tier != BUBBLEWRAP,
            "passable": [str(path) for path in (*program_files(), *self.readable, self.work)],
            "shared memory": SHARED_MEMORY_BYTES,
            "landlock": self.tier == LANDLOCK and landlock.version() > 0,
            "readable": readable,
            "writable": writable,
            "seccomp": seccomp.available(),
            "network": self.tier != LANDLOCK,
        }

    def _bubblewrap(self) -> list[str]:
        words = [*bubblewrap.walls(), "--proc", "/proc", "--dev", "/dev"]
        words += bubblewrap.memory_files("/dev/shm", SHARED_MEMORY_BYTES)
        words += bubblewrap.memory_files("/tmp", TEMPORARY_BYTES)
        words += bubblewrap.system_mounts()
        shown = (*program_files(), *guard_files(), *self.readable)
        words += bubblewrap.ways_to((*shown, self.work))
        for path in shown:
            words += ["--ro-bind-try", str(path), str(path)]
        if self.gpu is not None:
            words += ["--ro-bind", "/sys", "/sys"]
            for device in gpu_devices(self.gpu):
                words += ["--dev-bind-try", device, device]
        return [*words, "--bind", str(self.work), str(self.work), "--remount-ro", "/", "--remount-ro", "/dev"]

    def _reachable(self) -> tuple[list[str], list[str]]:
        """Paths for Landlock: to be read, and to be written too."""
        readable = [*SYSTEM, *CONFIGURATION, *PROC, "/dev/urandom", "/dev/random", "/dev/zero"]
        readable += [str(path) for path in (*program_files(), *self.readable)]
        writable = [str(self.work), "/dev/null"]
        if self.gpu is not None:
            readable.append("/sys")
            writable += gpu_devices(self.gpu)
        return readable, writable


def _module(name: str, plan: dict[str, object]) -> list[str]:
    return [sys.executable, "-S", "-s", "-P", "-m", name, json.dumps(plan)]


def resource_limits(limits: Limits, cuda: bool) -> dict[str, int]:
    """Kernel limits per process, a backstop below the supervisor's watch over the whole tree.

    The address space cannot be limited: torch and CUDA reserve far more than they use. Private data can, but
    not with CUDA, which maps device memory as such; twice the limit leaves room for what is reserved and not
    touched.
    """
    found = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": limits.disk, "RLIMIT_NOFILE": OPEN_FILES}
    if not cuda:
        found["RLIMIT_DATA"] = 2 * limits.memory
    return found


def program_files() -> tuple[Path, ...]:
    """Where the interpreter, its packages and the domain package lie."""
    places = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent}
    return (*sorted(places), ROOT / "experiments")


def guard_files() -> tuple[Path, ...]:
    """What the last step before a trial's program is made of."""
    return (ROOT / "workers" / "__init__.py", ROOT / "workers" / "guard")


def gpu_devices(index: int) -> list[str]:
    return [f"/dev/{name}" for name in (f"nvidia{index}", *GPU_DEVICES)]


def best_tier(unsafe: bool = False) -> str:
    """The first tier in which the domain package can be loaded on this host.

    Raises ``NoWalls`` where there is none, and for root where that is ``limits`` and not ``unsafe``.
    """
    tier, complaint = _first_that_starts()
    if not tier:
        raise NoWalls(f"no trial can be started on this host: {complaint}", REMEDY)
    if tier == LIMITS and trial_accounts.is_needed() and not unsafe:
        raise NoWalls(
            "as root, trials are started only behind bubblewrap or Landlock, and neither works here"
            + (f" ({complaint})" if complaint else ""),
            REMEDY,
        )
    return tier


REMEDY = (
    "install bubblewrap, or run the lab as an ordinary user from a folder that everybody may enter; "
    "--unsafe (LAB_UNSAFE=1) starts trials behind resource limits alone"
)


@functools.cache
def _first_that_starts() -> tuple[str, str]:
    """The tier (empty: none), and what the last one before it said."""
    complaint = ""
    for tier in TIERS:
        if tier == BUBBLEWRAP and not bubblewrap.walls():
            continue
        if tier == LANDLOCK and not (landlock.version() and seccomp.available()):
            continue
        said = _try(tier)
        if said is None:
            return tier, complaint
        complaint = said
    return "", complaint


def _try(tier: str) -> str | None:
    """Nothing where a trial that loads the domain package runs; else the last line of what it said."""
    with tempfile.TemporaryDirectory() as folder, trial_accounts.borrow() as account:
        cell = Cell(tier, Path(folder))
        words = [sys.executable, "-P", "-c", "import experiments.run"]
        command, environment = (
            cell.command(words, Limits(2**30, 60), account),
            {"PYTHONPATH": cell.python_path()},
        )
        if account:
            account.take(Path(folder))
        started = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60
        )
        if started.returncode == 0:
            return None
        return (started.stderr.strip().splitlines() or [f"exit code {started.returncode}"])[-1]
