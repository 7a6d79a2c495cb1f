"""bubblewrap's part of the walls: what works of it on this host, and its words for a cell."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from workers import trial_accounts

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
NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL")
#: An ordinary user needs a user namespace, one in which no other can be made where bubblewrap can say so.
#: Root needs none and gets none: inside, it would still be root's account. What is left of its rights lets
#: the last step become another (workers/guard/account.py) and is gone with that.
OF_A_USER = (("--unshare-user", "--disable-userns"), ("--unshare-user",))
OF_ROOT = (("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP"),)
#: Bytes of files in memory: for /tmp (a trial's own folder is its TMPDIR), and for shared memory.
TEMPORARY_BYTES, SHARED_MEMORY_BYTES = 64 * 2**20, 2**30


@functools.cache
def walls() -> tuple[str, ...]:
    """bubblewrap with the strongest namespaces that work here; empty when none do."""
    program = shutil.which("bwrap")
    if program is None:
        return ()
    for rights in OF_ROOT if trial_accounts.is_needed() else OF_A_USER:
        found = (program, *NAMESPACES, *rights, "--new-session", "--die-with-parent")
        if _starts([*found, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true"]):
            return found
    return ()


def memory_files(path: str, size: int) -> tuple[str, ...]:
    """An empty folder in memory that everybody inside may write; up to ``size`` bytes where bubblewrap can
    hold it to that (from 0.7 on).
    """
    limit = ("--size", str(size)) if _knows_sizes() else ()
    return ("--perms", "1777", *limit, "--tmpfs", path)


@functools.cache
def _knows_sizes() -> bool:
    return _starts([*walls(), "--ro-bind", "/", "/", "--size", "4096", "--tmpfs", "/tmp", "--", "/bin/true"])


def system_mounts() -> list[str]:
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


def ways_to(paths: Iterable[Path]) -> list[str]:
    """Folders above the paths that everybody inside may pass: left to itself, bubblewrap makes some that only
    root may.
    """
    above = {folder for path in paths for folder in path.parents if folder != Path("/")}
    return [word for folder in sorted(above) for word in ("--perms", "0755", "--dir", str(folder))]


def _starts(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
