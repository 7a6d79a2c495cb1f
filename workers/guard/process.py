"""What a process can say about itself to the kernel."""

from __future__ import annotations

import ctypes
import os
import resource

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Raises ``OSError`` where the kernel refuses."""
    if libc.prctl(option, value, 0, 0, 0):
        raise last_error(f"prctl({option})")


def last_error(what: str) -> OSError:
    """The error of the last call through ``libc``."""
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")


def lower(name: str, limit: int) -> None:
    """Set both limits, never above the hard limit in force."""
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (value, value))


def run(command: list[str]) -> None:
    """Become ``command``; where there is no such program, say so and end as a shell does."""
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)
