"""The private folders of trials: gone with the trial, or, where its worker was killed, when the next worker
starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "trial-"
#: A younger folder may have been made but not locked yet (seconds).
YOUNG_SECONDS = 60.0


@contextmanager
def folder() -> Iterator[Path]:
    """A folder with a lock on it, which the kernel lets go with this process, however it ends."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _open(Path(name)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(name)


def sweep(young: float = YOUNG_SECONDS) -> int:
    """Remove the folders whose worker is gone; how many."""
    left = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_left(path, young)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
    return len(left)


def _is_left(path: Path, young: float) -> bool:
    try:
        about = path.lstat()
        if about.st_uid != os.geteuid() or about.st_mtime > time.time() - young:
            return False
        with _open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
