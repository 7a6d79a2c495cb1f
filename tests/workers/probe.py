"""A hostile trial: it tries every way out that is known here and tells which were open, as one line of JSON.

``probe.py PLANTED.json [look | fork N | write BYTES | write-unlinked BYTES]``; standard library only. What it
tries to reach was planted by ``namespace.py``, in namespaces of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Numbers of calls on x86-64 and arm64.
CALLS = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "syslog": (103, 116),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "shmget": (29, 194),
    "mq_open": (240, 180),
}
COLUMN = 0 if platform.machine() == "x86_64" else 1
NEW_USER, NEW_MOUNTS, PTRACE_ATTACH = 0x10000000, 0x00020000, 16
#: Families of sockets that a trial may have: local ones, and those of a network of its own.
HARMLESS = {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """The result of a system call, by its number; ``OSError`` where it was refused."""
    result = int(libc.syscall(CALLS[name][COLUMN], *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def holds(path: str, mark: str) -> bool:
    return mark.encode() in read(path)


def others() -> list[str]:
    names = [path.name for path in Path("/proc").iterdir()]
    return [name for name in names if name.isdigit() and int(name) != os.getpid()]


def any_of(attempts: list[Callable[[], object]]) -> bool:
    """Whether one of them succeeds with anything but nothing."""
    for attempt in attempts:
        try:
            if attempt() not in (None, False):
                return True
        except OSError:
            continue
    return False


def of_others(kind: str, planted: dict) -> bool:
    """A file of /proc of another process, found by listing or by the planted number, that holds the mark."""
    try:
        found = others()
    except OSError:
        found = []
    paths = [f"/proc/{pid}/{kind}" for pid in {*found, str(planted["victim"])}]
    return any_of([lambda path=path: holds(path, planted["mark"]) or None for path in paths])


def connect(family: int, kind: int, address: object) -> bool:
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(address)
    return True


def send_datagram(path: str) -> bool:
    """By the call itself, and through one of a pair, whose address may be given anew."""

    def through_a_pair() -> bool:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, other:
            return one.sendto(b"x", path) == 1

    def directly() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            return one.sendto(b"x", path) == 1

    return any_of([directly, through_a_pair])


def other_families() -> bool:
    attempts = []
    for family in set(range(1, 46)) - HARMLESS:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            attempts.append(lambda family=family, kind=kind: socket.socket(family, kind).close() or True)
    return any_of(attempts)


def write_into(folder: str) -> bool:
    path = Path(folder) / "planted-by-the-probe"
    path.write_text("here")
    return True


def own_process(flags: int) -> bool:
    """A child in namespaces of its own; it ends at once."""
    pid = call("clone", ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def set_the_clock() -> bool:
    """To what it says already, so that a hole harms nothing."""
    now = time.time_ns()
    told = (ctypes.c_long * 2)(now // 10**9, now % 10**9)
    return call("clock_settime", 0, told) == 0


def capabilities() -> bool:
    """Whether any is left, or could come back by running a privileged program."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    held = ("CapInh", "CapPrm", "CapEff", "CapAmb")
    return any(int(status[name], 16) for name in held) or status["NoNewPrivs"] != "1"


def groups(planted: dict) -> bool:
    return os.getuid() == 0 or bool(set(os.getgroups()) - {os.getgid()}) or os.getgid() == 0


def attempts(planted: dict) -> dict[str, Callable[[], object]]:
    """What is tried. An attempt that returns or raises nothing worse was open."""
    victim, mark = planted["victim"], planted["mark"]
    empty = ctypes.create_string_buffer(128)
    return {
        "read a secret file of the worker": lambda: holds(planted["secret"], mark),
        "read its secrets in the environment it was given": lambda: mark in repr(dict(os.environ)) or None,
        "read the environment of another process": lambda: of_others("environ", planted) or None,
        "read the command line of another process": lambda: of_others("cmdline", planted) or None,
        "read the memory of another process": lambda: (
            any_of(
                [
                    lambda: open(f"/proc/{victim}/mem", "rb").close() or True,
                    lambda: call("process_vm_readv", victim, empty, 1, empty, 1, 0) >= 0 or None,
                ]
            )
            or None
        ),
        "trace another process": lambda: call("ptrace", PTRACE_ATTACH, victim, 0, 0) == 0,
        "signal another process": lambda: os.kill(victim, signal.SIGTERM) is None,
        "list another trial's folder": lambda: any(Path(planted["other trial"]).iterdir()),
        "read another trial's file": lambda: holds(planted["other trial"] + "/spec.json", mark),
        "write into a folder that everybody may write": lambda: write_into(planted["drop"]),
        "read a stored file of another run": lambda: holds(planted["other input"], mark),
        "change a stored file": lambda: os.open(planted["input"], os.O_WRONLY) >= 0,
        "change the mode of a stored file": lambda: Path(planted["input"]).chmod(0o644) is None,
        "connect to a server of this host": lambda: connect(
            socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", planted["port"])
        ),
        "connect to a local socket by its path": lambda: connect(
            socket.AF_UNIX, socket.SOCK_STREAM, planted["socket"]
        ),
        "connect to a local socket without a path": lambda: connect(
            socket.AF_UNIX, socket.SOCK_STREAM, "\0" + mark
        ),
        "send to a local socket by its path": lambda: send_datagram(planted["datagrams"]) or None,
        "open a socket of another family": lambda: other_families() or None,
        "read shared memory of this host": lambda: holds(planted["shared memory"], mark),
        "attach shared memory by its key": lambda: call("shmget", planted["shared key"], 0, 0) >= 0,
        "open a message queue": lambda: call("mq_open", b"probe", os.O_CREAT | os.O_RDWR, 0o600, 0) >= 0,
        "mount": lambda: call("mount", b"none", os.fsencode(Path.cwd()), b"tmpfs", 0, 0) == 0,
        "unmount": lambda: call("umount2", b"/proc", 2) == 0,
        "make a user namespace": lambda: own_process(NEW_USER),
        "make a mount namespace": lambda: call("unshare", NEW_MOUNTS) == 0,
        "enter another process's namespaces": lambda: call("setns", os.pidfd_open(victim), NEW_MOUNTS) == 0,
        "load a program into the kernel (bpf)": lambda: call("bpf", 0, planted_map(), 72) >= 0,
        "use the kernel's keys": lambda: call("add_key", b"user", b"probe", b"x", 1, -3) >= 0,
        "load a module": lambda: would_load_a_module(),
        "set the clock": set_the_clock,
        "set the host's name": lambda: call("sethostname", socket.gethostname().encode(), 1) == 0,
        "watch the processor's counters": lambda: call("perf_event_open", counter(), 0, -1, -1, 0) >= 0,
        "open a file by its handle": lambda: would_open_by_handle(),
        "do input and output past the filter (io_uring)": lambda: call("io_uring_setup", 1, empty) >= 0,
        "read a disk or the memory of this host itself": lambda: (
            any_of([lambda path=path: open(path, "rb").close() or True for path in devices_of_the_host()])
            or None
        ),
        "keep a capability": lambda: capabilities() or None,
        "be root, or in a group": lambda: groups(planted) or None,
        "change the root folder": lambda: call("chroot", b".") == 0,
        "become root": lambda: os.setuid(0) is None,
    }


def counter() -> ctypes.Array:
    """Attributes of a software counter: its kind, and their size."""
    return (ctypes.c_uint32 * 28)(1, 112)


def devices_of_the_host() -> list[str]:
    """Disks, the kernel's log and the machine's memory."""
    found = [entry.path for entry in os.scandir("/dev") if stat.S_ISBLK(entry.stat().st_mode)]
    return [*found, "/dev/mem", "/dev/kmsg", "/dev/port"]


def planted_map() -> ctypes.Array:
    """Attributes of BPF_MAP_CREATE: an array of one number."""
    return (ctypes.c_uint32 * 18)(2, 4, 4, 1)


def would_load_a_module() -> bool:
    """No module is given: with the right to load one, the kernel complains about that first."""
    try:
        call("init_module", None, 0, b"")
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def would_open_by_handle() -> bool:
    try:
        call("open_by_handle_at", -100, ctypes.create_string_buffer(128), 0)
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def look(planted: dict) -> dict[str, str]:
    """How each attempt ended: ``open``, or why it was not."""
    found = {}
    for name, attempt in attempts(planted).items():
        try:
            found[name] = "nothing there" if attempt() in (None, False) else "open"
        except OSError as error:
            found[name] = type(error).__name__
    return found


def fork(count: int) -> dict[str, int]:
    """Children that stay; a dot for each, at once, for it may end at any of them."""
    try:
        for _ in range(count):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
            os.write(1, b".")
    except OSError:
        pass
    time.sleep(600)
    return {}


def write(total: int, unlinked: bool) -> dict[str, int]:
    """Ten files of a tenth each, as much as is let; then it stays, as a trial that goes on would."""
    chunk = bytes(2**20)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for number in range(10):
        path = Path(f"file-{number}")
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        if unlinked:
            path.unlink()
        try:
            for _ in range(total // 10 // len(chunk)):
                os.write(file, chunk)
        except OSError:
            continue
    time.sleep(600)
    return {}


def main() -> None:
    planted = json.loads(Path(sys.argv[1]).read_text())
    what, *words = sys.argv[2:]
    if what == "fork":
        told = fork(int(words[0]))
    elif what.startswith("write"):
        told = write(int(words[0]), what == "write-unlinked")
    else:
        told = look(planted)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
