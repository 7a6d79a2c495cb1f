"""``python -S -m workers.guard PLAN.json -- COMMAND...``: carry out a ``Plan``, then watch over COMMAND."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    plan, command = json.loads(sys.argv[1]), sys.argv[3:]
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != plan["parent"]:
        sys.exit("the supervisor is gone")
    for name, limit in plan["limits"].items():
        lower(name, limit)
    watch(command, plan)


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def lower(name: str, limit: int) -> None:
    """Set both limits, never above the hard limit in force."""
    kind = getattr(resource, name)
    hard = resource.getrlimit(kind)[1]
    value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (value, value))


def watch(command: list[str], plan: dict[str, Any]) -> None:
    """Run ``command`` as a child, confined; when it or the supervisor ends, nothing below stays alive."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Blocked rather than handled: SIGTERM (the supervisor died or asks) is then taken in the loop below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        become(command, plan)
    ending = wait(child)
    kill_everything_below()
    # As a shell says it, and as bubblewrap does.
    os._exit(ending if ending >= 0 else 128 - ending)


def become(command: list[str], plan: dict[str, Any]) -> None:
    from workers.guard import landlock, seccomp

    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
    if plan["landlock"]:
        landlock.restrict(plan["readable"], plan["writable"])
    if plan["seccomp"]:
        seccomp.deny_network()
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)


def wait(child: int) -> int:
    """The exit code of ``child`` (negative: its signal), reaping orphans meanwhile; SIGTERM ends
    it at once.
    """
    while True:
        if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGTERM:
            return -signal.SIGKILL
        for pid, status in reap():
            if pid == child:
                return os.waitstatus_to_exitcode(status)


def reap() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        found.append((pid, status))


def kill_everything_below() -> None:
    from workers.process_tree import kill_below

    kill_below(os.getpid())


if __name__ == "__main__":
    main()
