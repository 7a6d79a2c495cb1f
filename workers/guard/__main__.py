"""``python -S -m workers.guard PLAN.json -- COMMAND...``: lower the limits, then watch over COMMAND."""

from __future__ import annotations

import json
import os
import signal
import sys

from workers.guard.process import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, lower, prctl, run


def main() -> None:
    plan, command = json.loads(sys.argv[1]), sys.argv[3:]
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != plan["parent"]:
        sys.exit("the supervisor is gone")
    for name, limit in plan["limits"].items():
        lower(name, limit)
    watch(command)


def watch(command: list[str]) -> None:
    """Run ``command`` as a child; when it or the supervisor ends, nothing below stays alive."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Blocked rather than handled: SIGTERM (the supervisor died or asks) is then taken in the loop below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        become(command)
    ending = wait(child)
    kill_everything_below()
    reap_all()
    # As a shell says it, and as bubblewrap does.
    os._exit(ending if ending >= 0 else 128 - ending)


def become(command: list[str]) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})
    run(command)


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


def reap_all() -> None:
    """The dead count against their account until somebody takes them; not every container's init does."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def kill_everything_below() -> None:
    from workers.process_tree import kill_below

    kill_below(os.getpid())


if __name__ == "__main__":
    main()
