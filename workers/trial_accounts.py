"""The accounts that trials of a worker run as which is root: one for each trial at work, with nothing but its
number.

They need no entry in /etc/passwd, have no shell, no home and no group but one of their own, which lets them
read the stored files that workers of this host hold.
"""

from __future__ import annotations

import os
import pwd
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.accounts import Account

#: Free on a usual system: above people's (60,000), below those that systemd gives to services (61,184).
FIRST, COUNT, GROUP = 60_600, 512, 60_599


class NoAccountFree(OSError):
    """More trials are at work on this host than there are accounts for."""


def is_needed() -> bool:
    """Whether this is root with other accounts beside it. Root of a namespace in which there is no other is
    an ordinary user outside of it.
    """
    return os.geteuid() == 0 and _exists(FIRST)


def _exists(uid: int) -> bool:
    rows = (map(int, line.split()) for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(first <= uid < first + count for first, _, count in rows)


@contextmanager
def borrow() -> Iterator[Account | None]:
    """An account that no other trial of this host has, until the block ends; ``None`` for a worker that is
    not root.

    It is held by the name of a local socket, which the kernel frees with this process, however it ends.
    """
    if not is_needed():
        yield None
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder:
        yield Account("trial", _take(holder), GROUP)


def _take(holder: socket.socket) -> int:
    for uid in range(FIRST, FIRST + COUNT):
        if _is_somebodys(uid):
            continue
        try:
            holder.bind(f"\0mlsys-policy-lab/trial/{uid}")
        except OSError:
            continue
        return uid
    raise NoAccountFree(f"all {COUNT} accounts of trials (from {FIRST}) are in use")


def _is_somebodys(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def lend(path: Path) -> None:
    """Let trials read a stored file, and nobody else who could not before: its folder shows no names."""
    if not is_needed():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    os.chown(path, -1, GROUP)
    path.chmod(mode | stat.S_IRGRP)
