"""Which runs a worker of this host has in hand, so that those of one that was killed are not waited for.

The lease says it for all hosts, but only after it has ended. Here a file per run, locked as long as it is in
hand, tells at once: the kernel lets the lock go with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from django.conf import settings

from webapp.runs import lifecycle
from webapp.runs.lifecycle import Claim
from webapp.runs.models import Run

#: How the name of a file begins that has just been made and is not locked yet.
UNLOCKED = "."

log = logging.getLogger(__name__)


def folder() -> Path:
    """Return where the files are, made if need be."""
    found = Path(settings.VAR) / "held"
    found.mkdir(parents=True, exist_ok=True)
    return found


@contextmanager
def hold(claim: Claim) -> Iterator[None]:
    """Tell the other workers of this host that a run is in hand."""
    path = folder() / f"{claim.run.pk}.{claim.attempt}"
    aside = path.with_name(f"{UNLOCKED}{path.name}")
    with _open(aside, os.O_CREAT) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        aside.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def release_lost() -> int:
    """Give back the runs that ended workers of this host had in hand; return how many."""
    return sum(_release(path) for path in folder().iterdir() if not path.name.startswith(UNLOCKED))


def _release(path: Path) -> bool:
    try:
        with _open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            run, _, attempt = path.name.partition(".")
            released = lifecycle.release(Claim(Run(pk=UUID(run)), int(attempt)), lost=True)
            path.unlink(missing_ok=True)
    except (BlockingIOError, FileNotFoundError):
        return False
    if released:
        log.warning("run %s was in the hands of a worker that has ended; it is queued again", run)
    return released


@contextmanager
def _open(path: Path, how: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
