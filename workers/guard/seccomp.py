"""A seccomp filter that refuses every socket but local ones (AF_UNIX), for where there is no network
namespace.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
AF_UNIX = 1
ALLOW, DENY, KILL = 0x7FFF0000, 0x00050000 | errno.EACCES, 0x80000000
#: Architecture code, number of socket(2), number of io_uring_setup(2) (a ring opens sockets past the filter).
SYSCALLS = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
#: Call numbers from here on are the 32-bit x32 doubles of x86-64.
X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16


def available() -> bool:
    return platform.machine() in SYSCALLS


def _program() -> bytes:
    """Classic BPF: one instruction is (code, jump if true, jump if false, operand)."""
    architecture, socket_call, ring_call = SYSCALLS[platform.machine()]
    rows = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 5, 0, X32),
        (_EQUAL, 4, 0, ring_call),
        (_EQUAL, 0, 2, socket_call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, AF_UNIX),
        (_RETURN, 0, 0, ALLOW),
        (_RETURN, 0, 0, DENY),
    ]
    return b"".join(struct.pack("HBBI", *row) for row in rows)


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]


def deny_network() -> None:
    """For this process and all it starts, for good. Raises ``OSError`` where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _program()
    buffer = ctypes.create_string_buffer(program, len(program))
    filter = _Filter(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p).value)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filter), 0, 0
    ):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
