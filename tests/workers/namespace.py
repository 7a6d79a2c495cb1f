"""Plants what a hostile trial looks for, in namespaces of its own, and lets ``probe.py`` loose there.

``unshare ... namespace.py TIER|none ACCOUNT FOLDER``: the worker is ``root``, root as containers have it
(``contained``), without the right to mount, or an ordinary ``user`` that root became.
Prints what was open, and how trials ended that take too much, as one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.workers import probe
from workers import trial_accounts
from workers.guard import view
from workers.guard.account import CAPABILITY_VERSION
from workers.guard.process import PR_CAPBSET_DROP, libc
from workers.sandbox import TIERS, Cell, Limits, program_files
from workers.trial import Ended, Trial, Watch

PROGRAM = Path(probe.__file__).resolve()
ROOT = PROGRAM.parents[2]
MARK = "planted-secret-5d1c"
#: An ordinary account, whose number nobody on this machine has.
USER = 60_500
#: Processes of the host have numbers that the few of a namespace do not reach.
FIRST_PID = 20_000
SHARED_KEY = 0x51A7ED
IPC_CREATE = 0o1000
#: The number of the capability that mounting takes.
SYS_ADMIN = 21
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
#: What the limits of the probe are: enough for it, little for who does not keep to them.
PROCESSES = int(os.environ.get("LAB_PROBE_PROCESSES", 60))
DISK = int(os.environ.get("LAB_PROBE_DISK_BYTES", 32 * 2**20))
FORKS, BYTES = 1500, 20 * 2**30
#: More than it takes: what a page shared after a fork holds is counted for each process.
MEMORY, SECONDS = 2**36, 300


def become_user() -> None:
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)


def contain() -> None:
    """Root without the right to mount, for whom the ways to this Python are open."""
    libc.prctl(PR_CAPBSET_DROP, SYS_ADMIN, 0, 0, 0)
    header, held = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, held)
    for place in range(3):  # effective, permitted, inheritable
        held[place] &= ~(1 << SYS_ADMIN)
    assert libc.capset(header, held) == 0


def loopback_up() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@contextmanager
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Another program of the worker's account, with a secret in its environment and in its words."""
    words = [sys.executable, "-c", f"print('ready', flush=True); import time; time.sleep(600) # {MARK}"]
    environment = {"SECRET_KEY": MARK}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def listen(stack: ExitStack, family: int, kind: int, address: Any) -> socket.socket:
    one = stack.enter_context(socket.socket(family, kind))
    one.bind(address)
    if isinstance(address, str) and not address.startswith("\0"):
        Path(address).chmod(0o777)
    if kind == socket.SOCK_STREAM:
        one.listen()
    return one


def written(path: Path, text: str, mode: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def plant(stack: ExitStack, folder: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Secrets, servers, shared memory and another trial's folder; where the probe finds them."""
    here = folder / "host"
    drop = here / "drop"
    drop.mkdir(parents=True)
    drop.chmod(0o777)
    server = listen(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, str(here / "socket"))
    listen(stack, socket.AF_UNIX, socket.SOCK_STREAM, "\0" + MARK)
    listen(stack, socket.AF_UNIX, socket.SOCK_DGRAM, str(here / "datagrams"))
    libc.shmget(SHARED_KEY, 4096, IPC_CREATE | 0o600)
    other = here / "trial-other"
    written(other / "work" / "spec.json", MARK, 0o600)
    (other / "work").chmod(0o700)
    # As workers/files.py keeps it, and lends it to its run.
    kept = written(here / "blobs" / "kept", MARK, 0o600)
    trial_accounts.lend(Path(kept))
    return {
        "mark": MARK,
        "victim": process.pid,
        "secret": written(here / "secret-key", MARK, 0o600),
        "input": written(here / "blobs" / "stored", "a stored file", 0o644),
        "other input": kept,
        "drop": str(drop),
        "other trial": str(other / "work"),
        "port": server.getsockname()[1],
        "socket": str(here / "socket"),
        "datagrams": str(here / "datagrams"),
        "shared memory": written(Path("/dev/shm/planted"), MARK, 0o600),
        "shared key": SHARED_KEY,
    }


def carry_out(tier: str, folder: Path, told: Path, stored: Path, *words: str) -> Ended:
    """One behavior of the probe, in a folder that only it may enter."""
    work = folder / words[0] / "work"
    work.mkdir(parents=True)
    work.chmod(0o700)
    limits = Limits(MEMORY, SECONDS, PROCESSES, DISK)
    command = [sys.executable, "-S", str(PROGRAM), str(told), *words]
    trial = Trial(command, Cell(tier, work, (PROGRAM, told, stored)), limits, ENVIRONMENT)
    return trial.run(Watch(lambda *_: None, lambda: "", 60.0))


def probe_everything(tier: str, folder: Path) -> dict[str, Any]:
    with ExitStack() as stack:
        process = stack.enter_context(victim())
        planted = plant(stack, folder, process)
        told = Path(written(folder / "planted.json", json.dumps(planted), 0o644))
        stored = Path(planted["input"])

        def ended(*words: str) -> dict[str, Any]:
            return asdict(carry_out(tier, folder, told, stored, *words))

        looked = ended("look")
        alive = process.poll() is None
        return {
            "look": looked,
            "alive": alive,
            "stored": stored.read_text(),
            "left in shared memory": sorted(path.name for path in Path("/dev/shm").iterdir()),
            "fork": ended("fork", str(FORKS)),
            "write": ended("write", str(BYTES)),
            "write unlinked": ended("write-unlinked", str(BYTES)),
        }


def probe_without_walls(folder: Path) -> dict[str, Any]:
    """The control: the same attempts by a child of the worker, with all that it has."""
    with ExitStack() as stack:
        planted = plant(stack, folder, stack.enter_context(victim()))
        told = written(folder / "planted.json", json.dumps(planted), 0o644)
        words = [sys.executable, "-S", str(PROGRAM), told, "look"]
        ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        return dict(json.loads(ran.stdout))


def main() -> None:
    tier, account, place = sys.argv[1:]
    folder = Path(place)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm", "-o", "mode=1777"], check=True)
    loopback_up()
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(FIRST_PID))
    if account != "root":
        # This Python may lie in root's own folder.
        view.open_ways(str(path) for path in (*program_files(), ROOT, folder))
    if account == "user":
        os.chown(folder, USER, USER)
        become_user()
    if account == "contained":
        contain()
    os.environ["SECRET_KEY"] = MARK
    told = probe_everything(tier, folder) if tier in TIERS else probe_without_walls(folder)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
