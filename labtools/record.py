"""The record of the lab that runs: who holds the folder, where it answers, which processes it started.

A lock that the system drops with its holder says whether a lab runs; the file beside it says the rest. So a
file left by a killed lab is known to be stale, whatever its process number has become since.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TextIO

from labtools import processes
from labtools.layout import Layout
from labtools.problems import Problem

LEFTOVER_SECONDS = 20


@dataclass(frozen=True)
class Child:
    name: str
    pid: int
    started: str


@dataclass(frozen=True)
class Record:
    pid: int
    started: str
    port: int
    children: tuple[Child, ...] = field(default=())
    troubles: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def leftovers(self) -> list[Child]:
        """Children that still run; of a lab that ended properly there are none."""
        return [child for child in self.children if processes.is_running(child.pid, child.started)]


@contextmanager
def claim(layout: Layout) -> Iterator[None]:
    """Hold the folder; Problem where another lab does. Leftovers of a killed one are ended first."""
    with layout.lock.open("w") as lock:
        if not _try_lock(lock):
            raise _already_running(layout)
        end_leftovers(layout)
        try:
            yield
        finally:
            layout.record.unlink(missing_ok=True)


def end_leftovers(layout: Layout) -> None:
    """Clear up after a lab that was killed: its record, and children that outlived it."""
    stale = read_record(layout)
    if stale is None:
        return
    leftovers = stale.leftovers()
    # Servers were started first; what uses them is ended before them.
    for child in reversed(leftovers):
        process = processes.find(child.pid)
        if process:
            processes.end(process, LEFTOVER_SECONDS)
    names = ", ".join(child.name for child in leftovers) or "nothing was left running"
    print(f"An earlier lab (process {stale.pid}) ended without clearing up; cleared up: {names}", flush=True)
    layout.record.unlink(missing_ok=True)


def is_held(layout: Layout) -> bool:
    try:
        with layout.lock.open("r+") as lock:
            return not _try_lock(lock)
    except FileNotFoundError:
        return False


def read_record(layout: Layout) -> Record | None:
    try:
        stored = json.loads(layout.record.read_text())
        children = tuple(Child(**child) for child in stored.pop("children"))
        return Record(**stored, children=children)
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def write(layout: Layout, port: int, pids: dict[str, int], troubles: dict[str, str]) -> None:
    """Write the whole record anew, aside and renamed, so that a reader never sees half of it.

    ``troubles`` says of programs that end again and again what is wrong.
    """
    table = processes.everything()
    children = [asdict(Child(name, pid, table[pid].started)) for name, pid in pids.items() if pid in table]
    mine = {"pid": os.getpid(), "started": table[os.getpid()].started, "port": port}
    mine |= {"children": children, "troubles": troubles}
    aside = layout.record.with_suffix(".new")
    aside.write_text(json.dumps(mine, indent=1))
    aside.replace(layout.record)


def _try_lock(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _already_running(layout: Layout) -> Problem:
    record = read_record(layout)
    where = f" at {record.url} (process {record.pid})" if record else ", or is just starting"
    return Problem(f"a lab already runs in this checkout{where}", "use it, or end it first: ./lab stop")
