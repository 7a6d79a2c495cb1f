"""Landlock: a process gives up, for itself and all it starts, every file that is not named.

Kernel interface: Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat

from workers.guard.process import PR_SET_NO_NEW_PRIVS, last_error, libc, prctl

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG = 1
RULE_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READING = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
#: File rights that a ruleset of each version of the interface can govern.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
CONNECT_AND_BIND_TCP = 0b11
SCOPE_SOCKETS_AND_SIGNALS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Version of the kernel's interface; 0 where there is none."""
    return max(0, int(libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG)))


def restrict(readable: list[str], writable: list[str]) -> None:
    """Allow reading (and executing) below ``readable``, everything below ``writable``, nothing else.

    TCP is denied where the kernel can (version 4), signals and abstract sockets to the outside too (version
    6).
    """
    found = version()
    rights = max(mask for level, mask in RIGHTS.items() if level <= found)
    ruleset = _Ruleset(
        rights, CONNECT_AND_BIND_TCP if found >= 4 else 0, SCOPE_SOCKETS_AND_SIGNALS if found >= 6 else 0
    )
    size = 24 if found >= 6 else 16 if found >= 4 else 8
    descriptor = _call(CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    for path in readable:
        _allow(descriptor, path, rights & READING)
    for path in writable:
        _allow(descriptor, path, rights)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _call(RESTRICT_SELF, descriptor, 0)
    os.close(descriptor)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        rights &= OF_FILES
    rule = _PathBeneath(rights, parent)
    _call(ADD_RULE, ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(parent)


def _call(number: int, *arguments: object) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise last_error("landlock")
    return result
