"""The last step before a trial's program: give up what it must not have, then become that program.

The same in every tier; in bubblewrap it is the first program inside.
``python -m workers.guard.confine PLAN.json -- COMMAND...`` (``Cell`` in workers/sandbox.py writes the plan.)
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from workers.guard import account, landlock, seccomp, view
from workers.guard.process import PR_SET_PDEATHSIG, lower, prctl, run


def main() -> None:
    plan, command = json.loads(sys.argv[1]), sys.argv[3:]
    parent = os.getppid()
    try:
        confine(plan)
        # Changing the account has cleared it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except OSError as error:
        os.write(2, f"error: the walls cannot be put up: {error}\n".encode())
        os._exit(126)
    if os.getppid() == parent:
        run(command)


def confine(plan: dict[str, Any]) -> None:
    """Account, processes, files, system calls, in this order, which nothing can turn back."""
    writable = list(plan["writable"])
    account.give_up_the_bounding_set()
    if plan["account"]:
        if plan["own view"]:
            writable += look_from(plan)
        lower("RLIMIT_NPROC", plan["processes"])
        account.become(*plan["account"])
    else:
        lower("RLIMIT_NPROC", plan["processes"] + processes_of(os.getuid()))
    account.give_up_capabilities()
    os.chdir(plan["work"])
    if plan["landlock"]:
        landlock.restrict(plan["readable"], writable)
    if plan["seccomp"]:
        seccomp.refuse(network=plan["network"])


def look_from(plan: dict[str, Any]) -> list[str]:
    """Shared memory of its own and ways through closed folders, for root that may mount; what more may be
    written then.
    """
    if view.separate_mounts():
        view.own_shared_memory(plan["shared memory"])
        view.open_ways(plan["passable"])
        return [str(view.SHARED_MEMORY)]
    if closed := next(filter(None, map(view.first_closed, map(Path, plan["passable"]))), None):
        raise PermissionError(f"trials have an account of their own, which cannot pass {closed} (chmod o+x)")
    return []


def processes_of(uid: int) -> int:
    """Processes and threads that the account has already: the kernel counts them with the trial's."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == uid:
                found += len(list((process / "task").iterdir()))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


if __name__ == "__main__":
    main()
