"""A view of the files of its own, for a process that is still root: shared memory of its own, and folders
that only root may enter passable down to what the process needs.

For where bubblewrap is not installed; needs the right to mount (CAP_SYS_ADMIN).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from workers.guard.process import last_error, libc

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
SHARED_MEMORY = Path("/dev/shm")


def separate_mounts() -> bool:
    """Have mounts of its own from now on; whether that is granted here."""
    if libc.unshare(CLONE_NEWNS):
        return False
    try:
        _mount("none", "/", "", MS_REC | MS_PRIVATE)
    except PermissionError:
        # Some containers let a process have a namespace and change nothing in it.
        return False
    return True


def own_shared_memory(size: int) -> None:
    """An empty ``/dev/shm`` of ``size`` bytes."""
    if SHARED_MEMORY.is_dir():
        _mount("tmpfs", str(SHARED_MEMORY), "tmpfs", MS_NOSUID | MS_NODEV, f"size={size},mode=1777")


def open_ways(needed: Iterable[str]) -> None:
    """Make passable what lies above the ``needed`` files and folders; all else in those folders is gone."""
    paths = {path for name in needed for path in _spellings(Path(name))}
    below: dict[Path, set[Path]] = {}
    for path in paths:
        if closed := first_closed(path):
            below.setdefault(closed, set()).add(path)
    for closed, inside in below.items():
        _show_only(closed, sorted(inside))


def first_closed(path: Path) -> Path | None:
    """The uppermost folder above ``path`` that not everybody may enter."""
    above = reversed(path.parents)
    return next((folder for folder in above if folder.exists() and not folder.stat().st_mode & 0o001), None)


def _spellings(path: Path) -> list[Path]:
    """As it is written, and where it really lies: links on the way lead there."""
    found = [path.absolute(), path.resolve()]
    return [one for one in found if one.exists()]


def _show_only(closed: Path, inside: list[Path]) -> None:
    held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in inside]
    _mount("tmpfs", str(closed), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for path, descriptor in held:
        is_folder = Path(f"/proc/self/fd/{descriptor}").is_dir()
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if is_folder else path.touch()
            _mount(f"/proc/self/fd/{descriptor}", str(path), "", MS_BIND | MS_REC)
        os.close(descriptor)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode() for word in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), options.encode()):
        raise last_error(f"mount {target}")
