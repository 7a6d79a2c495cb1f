"""What the kernel says of a process that a test did not start itself."""

from __future__ import annotations

import time
from pathlib import Path

#: Seconds in which a process comes to what it is told, on a host that does other things too.
PATIENCE = 20.0


def becomes(pid: int, *states: str) -> bool:
    """Whether a process comes to one of ``states``: the kernel's letters, empty where there is none."""
    until = time.monotonic() + PATIENCE
    while state_of(pid) not in states and time.monotonic() < until:
        time.sleep(0.02)
    return state_of(pid) in states


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
