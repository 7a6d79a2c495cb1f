"""The walls around a trial: which can be had on this host (its tier), and the command that starts a trial in
them.

Tiers, best first (docs/security.md says what each holds back): ``bubblewrap`` own process, network, mount and
user namespaces: only named files exist, loopback is the only network; ``landlock+seccomp`` only named files
can be opened, no network sockets, the tree is held by a subreaper; ``limits`` resource limits and the
subreaper alone.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.guard import landlock, seccomp

ROOT = Path(__file__).resolve().parents[1]
BUBBLEWRAP, LANDLOCK, LIMITS = TIERS = ("bubblewrap", "landlock+seccomp", "limits")

#: What programs need of a system to start: libraries, compilers, time zone; no accounts, no keys, no
#: settings.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt")
CONFIGURATION = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
)
GPU_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
#: Files a program may write at most, and open at a time.
FILE_BYTES, OPEN_FILES = 16 * 2**30, 4096


@dataclass(frozen=True)
class Limits:
    """What a trial may take: ``memory`` resident bytes of its whole tree, ``seconds`` of wall clock."""

    memory: int
    seconds: float


@dataclass(frozen=True)
class Cell:
    """One trial's walls: a private folder it may write, files it may read, the GPU (by index) it is given."""

    tier: str
    work: Path
    readable: tuple[Path, ...] = ()
    gpu: int | None = None

    def command(self, command: Sequence[str], limits: Limits) -> list[str]:
        """``command`` inside the walls. Its parent must be the calling thread, and live as long
        as the trial.
        """
        readable, writable = self._reachable()
        plan = {
            "parent": os.getpid(),
            "limits": resource_limits(limits, cuda=self.gpu is not None),
            "landlock": self.tier == LANDLOCK and landlock.version() > 0,
            "seccomp": self.tier == LANDLOCK and seccomp.available(),
            "readable": readable,
            "writable": writable,
        }
        inner = self._bubblewrap(command) if self.tier == BUBBLEWRAP else list(command)
        return [sys.executable, "-S", "-s", "-P", "-m", "workers.guard", json.dumps(plan), "--", *inner]

    def python_path(self) -> str:
        """Where the guard and the trial find their packages.

        Landlock cannot show a folder without all that lies below it, so in its tier the checkout cannot be
        listed and the one package that a trial needs is linked from the trial's own folder.
        """
        if self.tier != LANDLOCK:
            return str(ROOT)
        packages = self.work / "packages"
        packages.mkdir(exist_ok=True)
        (packages / "experiments").symlink_to(ROOT / "experiments")
        return f"{ROOT}{os.pathsep}{packages}"

    def _bubblewrap(self, command: Sequence[str]) -> list[str]:
        words = [
            *_bubblewrap_walls(),
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]
        words += _system_mounts()
        for path in (*program_files(), *self.readable):
            words += ["--ro-bind-try", str(path), str(path)]
        if self.gpu is not None:
            words += ["--ro-bind", "/sys", "/sys"]
            for device in gpu_devices(self.gpu):
                words += ["--dev-bind-try", device, device]
        return [*words, "--bind", str(self.work), str(self.work), "--chdir", str(self.work), "--", *command]

    def _reachable(self) -> tuple[list[str], list[str]]:
        readable = [*SYSTEM, *CONFIGURATION, "/proc", "/dev/urandom", "/dev/random", "/dev/zero"]
        readable += [str(path) for path in (*program_files(), *self.readable)]
        writable = [str(self.work), "/dev/null", "/dev/shm"]
        if self.gpu is not None:
            readable.append("/sys")
            writable += gpu_devices(self.gpu)
        return readable, writable


def resource_limits(limits: Limits, cuda: bool) -> dict[str, int]:
    """Kernel limits per process, a backstop below the supervisor's watch over the whole tree.

    The address space cannot be limited: torch and CUDA reserve far more than they use. Private data can, but
    not with CUDA, which maps device memory as such; twice the limit leaves room for what is reserved and not
    touched.
    """
    found = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": FILE_BYTES, "RLIMIT_NOFILE": OPEN_FILES}
    if not cuda:
        found["RLIMIT_DATA"] = 2 * limits.memory
    return found


def program_files() -> tuple[Path, ...]:
    """Where the interpreter, its packages and the domain package lie."""
    places = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent.parent}
    return (*sorted(places), ROOT / "experiments")


def gpu_devices(index: int) -> list[str]:
    return [f"/dev/{name}" for name in (f"nvidia{index}", *GPU_DEVICES)]


def _system_mounts() -> list[str]:
    """Read-only mounts of the system; ``/lib`` and the like stay the links that they are on a
    merged system.
    """
    words = []
    for path in SYSTEM:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        else:
            words += ["--ro-bind-try", path, path]
    for path in CONFIGURATION:
        words += ["--ro-bind-try", path, path]
    return words


WALLS = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL")
#: A user namespace of its own where the kernel allows it; root may do without one.
USER_WALLS = (("--unshare-user", "--disable-userns"), ("--unshare-user",), ())


@functools.cache
def _bubblewrap_walls() -> tuple[str, ...]:
    """bubblewrap with the strongest user namespace that works here; empty when none does."""
    program = shutil.which("bwrap")
    if program is None:
        return ()
    for user in USER_WALLS:
        walls = (program, *user, *WALLS, "--new-session", "--die-with-parent")
        if _starts([*walls, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]):
            return walls
    return ()


def _starts(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@functools.cache
def best_tier() -> str:
    """The first tier in which the domain package can be loaded on this host."""
    for tier in TIERS:
        if tier == BUBBLEWRAP and not _bubblewrap_walls():
            continue
        if tier == LANDLOCK and not (landlock.version() and seccomp.available()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            cell = Cell(tier, Path(folder))
            command = cell.command([sys.executable, "-P", "-c", "import experiments.run"], Limits(2**30, 60))
            environment = {"PYTHONPATH": cell.python_path()}
            started = subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=60)
            if started.returncode == 0:
                return tier
    raise RuntimeError("no child process can be started on this host, not even without walls")
