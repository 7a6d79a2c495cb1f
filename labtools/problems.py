"""Errors a person can act on: one line that says what is wrong, one that says what to do."""

from __future__ import annotations

import errno

from experiments.client.server import LabError


class Problem(LabError):
    """Something outside the program is in the way; `remedy` says what to do about it."""


class Interrupted(BaseException):
    """Ctrl-C, SIGTERM or a closed terminal; not an Exception, so that no handler of errors swallows it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.exit_code = 128 + signal_number


#: How programs say it: the system's own words, and PostgreSQL's where only a part of a write went through.
FULL_DISK_SIGNS = ("No space left on device", "Check free disk space")
FULL_DISK_REMEDY = "free some space (./lab doctor says how much is needed) and start again"


def is_about_a_full_disk(output: str) -> bool:
    return any(sign in output for sign in FULL_DISK_SIGNS)


def from_operating_system(error: OSError) -> Problem | None:
    """The Problem behind an OSError that is about the machine, not about this program."""
    where = f": {error.filename}" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(f"the disk is full{where}", FULL_DISK_REMEDY)
    if error.errno == errno.EROFS:
        return Problem(
            f"the file system is read-only{where}", "put the checkout on a disk that can be written"
        )
    if isinstance(error, PermissionError):
        return Problem(f"no permission{where}", "start ./lab as the user who owns the checkout and its var/")
    return None
