"""Processes by number and start time, and the end of every descendant.

A number alone is not an identity: it is given to another program once the first has ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True)
class Process:
    """`started` is what the system says about the start, comparable only with itself."""

    pid: int
    parent: int
    started: str


def adopt_orphans() -> None:
    """Make a grandchild whose parent ends ours, so that a double fork cannot escape (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(number: signal.Signals) -> None:
    """Let a child, before it becomes its program, get this signal when its parent ends (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def everything() -> dict[int, Process]:
    """All processes that still run; ended ones whose parent has not asked yet (zombies) do not count."""
    found = _from_proc() if sys.platform == "linux" else _from_ps()
    return {process.pid: process for process in found}


def find(pid: int) -> Process | None:
    return everything().get(pid)


def is_running(pid: int, started: str) -> bool:
    process = find(pid)
    return process is not None and process.started == started


def descendants(of: int, spare: Iterable[int] = ()) -> list[Process]:
    """Children, their children and so on, without the ones in `spare` and what hangs below them."""
    table = everything()
    spared = set(spare)
    found: list[Process] = []
    parents = {of}
    while parents:
        below = [p for p in table.values() if p.parent in parents and p.pid not in spared]
        found += below
        parents = {process.pid for process in below}
    return found


def end_descendants(spare: Iterable[int] = ()) -> int:
    """Kill whatever still hangs below this process; returns how many there were."""
    ended: set[int] = set()
    spared = tuple(spare)
    # A process that is killed hands its children to us, so look again until nothing is left.
    while remaining := descendants(os.getpid(), spared):
        for process in remaining:
            _send(process.pid, signal.SIGKILL)
            ended.add(process.pid)
        time.sleep(0.02)
    return len(ended)


def end(process: Process, seconds: float) -> None:
    """SIGTERM, SIGKILL for one that has not ended after `seconds`, and SIGKILL for what hung below it."""
    below = descendants(process.pid)
    _send(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while is_running(process.pid, process.started):
        if time.monotonic() > deadline:
            _send(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    for orphan in below:
        if is_running(orphan.pid, orphan.started):
            _send(orphan.pid, signal.SIGKILL)


def reap(known: Iterable[int]) -> None:
    """Ask after adopted children that have ended; those in `known` belong to their Popen objects."""
    owned = set(known)
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in owned:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _from_proc() -> Iterable[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The second field is the program's name in parentheses and may hold spaces and parentheses itself.
        state, parent, *rest = stat.rpartition(")")[2].split()
        if state not in "ZX":
            yield Process(int(folder.name), int(parent), started=rest[17])


def _from_ps() -> Iterable[Process]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ps:
        listing = ps.communicate()[0]
    for line in listing.splitlines():
        pid, parent, state, started = line.split(None, 3)
        if not state.startswith("Z") and int(pid) != ps.pid:
            yield Process(int(pid), int(parent), started.strip())
