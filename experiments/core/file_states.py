"""How files stand now: what says whether one was written since it was read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class FileState(NamedTuple):
    """``changed``: time of the last change (ns)."""

    path: str
    size: int
    changed: int


def file_states(path: Path) -> Iterator[FileState]:
    """Yield the state of a file, or of every file in a folder; nothing where there is none."""
    for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
        with contextlib.suppress(OSError):
            found = one.stat()
            yield FileState(str(one), found.st_size, found.st_mtime_ns)
