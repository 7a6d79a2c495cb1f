"""What a trial takes of its host, looked at from outside, and which of its limits that breaks."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workers import process_tree
from workers.sandbox import Limits

#: How often files are added up at most, and how many times as long as a look lasts it is until the next.
DISK_SECONDS, DISK_REST = 0.5, 10.0
#: More than any program of ours makes; they bound how long a look takes.
MOST_FILES, MOST_DEPTH = 100_000, 64
#: ``st_blocks`` counts in these, whatever the file system's own are.
BLOCK = 512


@dataclass
class Usage:
    """What the tree below ``pid`` and its folder ``work`` take. ``peak``: the most memory seen, in bytes."""

    pid: int
    work: Path
    limits: Limits
    peak: int = 0
    _next_disk: float = 0.0

    def excess(self) -> str:
        """Which limit is broken now, in words for the run; empty where none is."""
        tree = process_tree.descendants(self.pid)
        held = process_tree.resident_bytes(tree)
        self.peak = max(self.peak, held)
        if held > self.limits.memory:
            return f"took more than {self.limits.memory / 2**30:.2f} GiB of memory"
        if process_tree.threads(tree) > self.limits.processes:
            return f"started more than {self.limits.processes:,} processes and threads"
        return self._excess_on_disk(tree)

    def excess_at_end(self) -> str:
        """Which limit is broken by what a tree that has ended leaves."""
        return excess_of_files(self.work, 0, self.limits.disk)

    def _excess_on_disk(self, tree: list[int]) -> str:
        began = time.monotonic()
        if began < self._next_disk:
            return ""
        found = excess_of_files(self.work, unlinked_bytes(tree), self.limits.disk)
        ended = time.monotonic()
        self._next_disk = ended + max(DISK_SECONDS, DISK_REST * (ended - began))
        return found


def excess_of_files(folder: Path, elsewhere: int, limit: int) -> str:
    """Whether what lies below ``folder``, with the bytes ``elsewhere``, is more than ``limit`` bytes, or too
    many files or too deep to be told.
    """
    total = elsewhere
    for files, (depth, about) in enumerate(_below(folder), 1):
        if depth > MOST_DEPTH:
            return f"nested folders more than {MOST_DEPTH} deep"
        total += about.st_blocks * BLOCK
        if files > MOST_FILES:
            return f"made more than {MOST_FILES:,} files"
        if total > limit:
            break
    return f"wrote more than {limit / 2**30:.3g} GiB of files" if total > limit else ""


def bytes_of_files(folder: Path) -> int:
    """What the first ``MOST_FILES`` files and folders below ``folder`` take on its disk."""
    return sum(about.st_blocks * BLOCK for _, about in islice(_below(folder), MOST_FILES))


def _below(folder: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Everything below, and in how many folders it lies."""
    todo = [(str(folder), 1)]
    while todo:
        path, depth = todo.pop()
        for name, about in _entries(path):
            yield depth, about
            if stat.S_ISDIR(about.st_mode):
                todo.append((f"{path}/{name}", depth + 1))


def unlinked_bytes(pids: list[int]) -> int:
    """Bytes of files without a name (memory files too) that the processes hold open."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        for _, about in _entries(f"/proc/{pid}/fd", follow=True):
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 0:
                found[about.st_dev, about.st_ino] = about.st_blocks * BLOCK
    return sum(found.values())


def _entries(folder: str, follow: bool = False) -> list[tuple[str, os.stat_result]]:
    """What is in a folder that may change meanwhile, or may not be ours to look into."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.stat(follow_symlinks=follow)))
                except OSError:
                    continue
                if len(found) > MOST_FILES:
                    break
    except OSError:
        pass
    return found
