"""A process and everything it started, read from /proc: who they are, what they hold, and their end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
#: How long the killed may take to go; a process that waits for a device can take a while.
GONE_SECONDS = 10.0


def children(pid: int) -> list[int]:
    """The direct children of ``pid``; none when it is gone."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Everything below ``pid``, parents before children."""
    found, todo = [], [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def resident_bytes(pids: list[int]) -> int:
    """Sum of what the processes hold in memory, without the pages of files (shared libraries) they map."""
    total = 0
    for pid in pids:
        try:
            _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += (int(resident) - int(shared)) * PAGE + shared_memory_bytes(pid)
    return total


def shared_memory_bytes(pid: int) -> int:
    """Resident shared memory (tmpfs, shared anonymous pages), which ``statm`` counts with the
    mapped files.
    """
    return _status(pid, "RssShmem") * 1024


def threads(pids: list[int]) -> int:
    """How many threads the processes have, each at least its first."""
    return sum(_status(pid, "Threads") for pid in pids)


def _status(pid: int, field: str) -> int:
    """A number of /proc/<pid>/status; 0 where it is not told, or the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    line = next((line for line in lines if line.startswith(f"{field}:")), f"{field}: 0")
    return int(line.split()[1])


def kill_below(pid: int) -> None:
    """SIGKILL everything below ``pid`` until nothing is left there.

    ``pid`` must stay alive and be the subreaper of its tree: orphans then come to it and are seen again.
    """
    deadline = time.monotonic() + GONE_SECONDS
    while alive := [child for child in descendants(pid) if not is_zombie(child)]:
        for child in alive:
            send(child, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {alive} survive SIGKILL")
        time.sleep(0.005)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def send(pid: int, what: signal.Signals) -> None:
    """A signal, unless the process is gone already."""
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return
