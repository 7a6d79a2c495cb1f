"""From root to an account that owns nothing, is in no group and has no right of root's; for good."""

from __future__ import annotations

import ctypes
import os

from workers.guard.process import PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, last_error, libc, prctl

#: Numbers of capabilities are below this.
CAPABILITIES = 64
CAPABILITY_VERSION = 0x20080522


def become(uid: int, gid: int) -> None:
    """Be ``uid`` in the group ``gid`` alone. Raises ``OSError`` where the kernel refuses."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def give_up_the_bounding_set() -> None:
    """What programs with rights of their own could get back; only who has the right to can give it up."""
    for number in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def give_up_capabilities() -> None:
    """Hold none, pass none on, and get none back from a program. Raises ``OSError`` where that fails."""
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise last_error("capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
