"""A seccomp filter: system calls that no trial needs are refused, and sockets that reach out of it.

In every tier what changes or watches the kernel, other processes, mounts, names, clocks and keys; memory and
queues that are shared by a number; namespaces (bubblewrap's are made by then). Of sockets, those of the
internet and local ones; with Landlock, where the network is the host's, local streams alone, which connect
nowhere.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Iterable

from workers.guard.process import PR_SET_NO_NEW_PRIVS, last_error, libc, prctl

PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, KILL = 0x7FFF0000, 0x80000000
DENY, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
#: Architecture codes of what the filter is written for.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Call numbers from here on are the 32-bit x32 doubles of x86-64.
X32 = 0x40000000
#: Numbers on x86-64 and on arm64; ``None`` where there is no such call.
DENIED = {
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # the kernel: programs, modules, keys, counters, pages, handles, rings that pass a filter by
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "iopl": (172, None),
    "ioperm": (173, None),
    # the host: clock, name, swap, accounting, power
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "vhangup": (153, 58),
    # what is shared by a number, past all folders
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
SOCKET, SOCKETPAIR, CONNECT = (41, 198), (53, 199), (42, 203)
CLONE, CLONE3 = (56, 220), (435, 435)
#: Flags of clone(2) that make a namespace: mounts, cgroups, names, IPC, users, processes, network.
NAMESPACES = 0x7E020000
#: With a network of its own: local sockets, the internet's, and what asks for interfaces.
OWN_NETWORK = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
#: A datagram can be sent to any path; a stream must be connected first.
CONNECTED_KINDS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
KIND_MASK = 0xF

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

#: Classic BPF: (code, instructions to skip if true, if false, operand).
Row = tuple[int, int, int, int]


def available() -> bool:
    return platform.machine() in ARCHITECTURES


def refuse(network: bool) -> None:
    """For this process and all it starts, for good. ``network``: whether it may use the network it sees.

    Raises ``OSError`` where the kernel refuses.
    """
    rows = _program(network)
    program = b"".join(struct.pack("HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter = _Filter(len(rows), ctypes.cast(buffer, ctypes.c_void_p).value)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filter), 0, 0):
        raise last_error("seccomp")


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]


def _program(network: bool) -> list[Row]:
    machine = platform.machine()
    column = list(ARCHITECTURES).index(machine)
    rows: list[Row] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, X32),
        (_RETURN, 0, 0, DENY),
    ]
    for numbers in DENIED.values():
        if numbers[column] is not None:
            rows += _on(numbers[column], [(_RETURN, 0, 0, DENY)])
    # Its flags are in memory, where a filter cannot look; the C library then takes clone(2).
    rows += _on(CLONE3[column], [(_RETURN, 0, 0, UNKNOWN)])
    rows += _on(CLONE[column], [_argument(0), (_ANY_BIT, 0, 1, NAMESPACES), (_RETURN, 0, 0, DENY), _allow()])
    rows += _of_sockets(column, network)
    return [*rows, _allow()]


def _of_sockets(column: int, network: bool) -> list[Row]:
    if network:
        return _on(SOCKET[column], [_argument(0), *_only(OWN_NETWORK)])
    kinds = [_argument(1), (_AND, 0, 0, KIND_MASK), *_only(CONNECTED_KINDS)]
    local = [_argument(0), (_EQUAL, 1, 0, socket.AF_UNIX), (_RETURN, 0, 0, DENY)]
    rows = _on(SOCKET[column], [*local, *kinds]) + _on(SOCKETPAIR[column], kinds)
    return rows + _on(CONNECT[column], [(_RETURN, 0, 0, DENY)])


def _on(number: int | None, rows: list[Row]) -> list[Row]:
    """``rows``, which must end in a return, for the call of that number alone."""
    return [(_EQUAL, 0, len(rows), number or 0), *rows]


def _only(values: Iterable[int]) -> list[Row]:
    """Allow a loaded value that is one of ``values``, deny any other."""
    rows: list[Row] = []
    for value in values:
        rows += [(_EQUAL, 0, 1, int(value)), _allow()]
    return [*rows, (_RETURN, 0, 0, DENY)]


def _argument(place: int) -> Row:
    """The lower half of an argument: what a C ``int`` is taken from."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * place)


def _allow() -> Row:
    return (_RETURN, 0, 0, ALLOW)
