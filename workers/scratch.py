"""The private folders of trials: gone with the trial, or, where its worker was killed, when the next worker
starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

PREFIX = "trial-"
#: A younger folder may have been made but not locked yet (seconds).
YOUNG_SECONDS = 60.0


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for a trial, in one that stays the worker's: who owns a folder could put another in its place.

    The outer one has a lock on it, which the kernel lets go with this process, however it ends.
    """
    outer = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with _open(outer) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # A trial may have another account: it passes here, and sees nothing.
            outer.chmod(0o711)
            work = outer / "work"
            work.mkdir(mode=0o700)
            yield work
    finally:
        remove(outer)


def lack_of_room(given_back: int = 0) -> str:
    """Why this host can carry out no trial: less than ``TRIAL_ROOM_BYTES`` are free on the disk of trials,
    once ``given_back`` bytes are free again, or on that of the worker's own files. Empty where there is room.
    """
    trials = Path(tempfile.gettempdir())
    for name, folder in (("trials", trials), ("the worker's files", Path(settings.VAR))):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        if there.stat().st_dev == trials.stat().st_dev:
            free += given_back
        if free < settings.TRIAL_ROOM_BYTES:
            return f"the disk of {name} is full ({free / 2**20:.0f} MiB free)"
    return ""


def remove(folder: Path) -> None:
    """A folder with all that a trial left in it, however deep and whatever its modes."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        for tidy in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*tidy, "--", str(folder)], capture_output=True)


def sweep(young: float = YOUNG_SECONDS) -> int:
    """Remove the folders whose worker is gone; how many."""
    left = [path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_left(path, young)]
    for path in left:
        remove(path)
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
