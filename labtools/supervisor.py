"""Start programs, keep them running, and end all of them and all of their descendants."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from labtools import processes
from labtools.problems import FULL_DISK_REMEDY, Problem, is_about_a_full_disk

LOOK_EVERY = 0.5  # seconds
START_SECONDS = 60
# After so many unexpected ends within a minute a program is started again only after a pause (seconds), ...
ENDS_PER_MINUTE = 4
# ... which doubles up to the longest with each further end.
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 120.0
LOG_KEPT_BYTES = 10 * 2**20


@dataclass(frozen=True)
class Program:
    """A program to keep running. Servers are stopped after the others, which use them."""

    name: str
    command: Sequence[str]
    log: Path
    ready: Callable[[], bool] = lambda: True
    environment: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    is_server: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10


@dataclass
class Ends:
    """When a program ended unexpectedly, and when it is started again (monotonic seconds)."""

    times: deque[float] = field(default_factory=deque)
    pause: float = 0.0
    due: float | None = None

    def note(self, now: float) -> None:
        """Take down an end: the next start is now, or after a pause where there were many within a minute."""
        self.times.append(now)
        while self.times[0] < now - max(60.0, 2 * self.pause):
            self.times.popleft()
        few = len(self.times) < ENDS_PER_MINUTE
        self.pause = 0.0 if few else min(max(FIRST_PAUSE, 2 * self.pause), LONGEST_PAUSE)
        self.due = now + self.pause

    def are_over(self, now: float) -> bool:
        """Whether the program has run for a minute since."""
        return now > self.times[-1] + self.pause + 60.0


class Supervisor:
    """Runs programs; as a context manager it leaves no process behind, however the block ends."""

    def __init__(self, changed: Callable[[dict[str, int], dict[str, str]], None]) -> None:
        """`changed` is told the process numbers, and what is wrong by program, whenever one is new."""
        self._changed = changed
        self._running: dict[str, tuple[Program, subprocess.Popen[bytes]]] = {}
        self._ends: dict[str, Ends] = {}
        self._troubles: dict[str, str] = {}

    def __enter__(self) -> Supervisor:
        processes.adopt_orphans()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_all()

    def start(self, program: Program) -> None:
        cut(program.log)
        with program.log.open("ab") as log:
            process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=program.environment,
                # Ctrl-C in a terminal must reach only us: we know the order in which to stop.
                start_new_session=True,
                # Killed, we cannot stop anything: what we started ends by itself then.
                preexec_fn=functools.partial(processes.end_with_parent, program.stop_signal),
                **program.options,
            )
        self._running[program.name] = (program, process)
        self._tell()

    def _tell(self) -> None:
        pids = {name: started.pid for name, (_, started) in self._running.items()}
        self._changed(pids, dict(self._troubles))

    def wait_until_ready(self, *names: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        waiting = list(names)
        while waiting := [name for name in waiting if not self._running[name][0].ready()]:
            for program, process in [self._running[name] for name in waiting]:
                if process.poll() is not None:
                    raise ended_unexpectedly(program, process.returncode)
                if time.monotonic() > deadline:
                    raise Problem(
                        f"{program.name} was not ready after {START_SECONDS} s", f"read {program.log}"
                    )
            time.sleep(0.05)

    def watch(self) -> None:
        """Restart what ends unexpectedly, until a signal interrupts.

        A program that ends again and again waits longer and longer; the others run on.
        """
        while True:
            time.sleep(LOOK_EVERY)
            for program, process in list(self._running.values()):
                if process.poll() is not None:
                    self._restart(program, process.returncode)
                elif program.name in self._troubles and self._ends[program.name].are_over(time.monotonic()):
                    del self._troubles[program.name]
                    self._tell()
                cut(program.log)
            processes.reap(known=[process.pid for _, process in self._running.values()])

    def stop_all(self) -> None:
        """End the programs, then whatever they left behind, then the servers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        servers = [pair for pair in self._running.values() if pair[0].is_server]
        _stop([pair for pair in self._running.values() if not pair[0].is_server])
        processes.end_descendants(spare=[process.pid for _, process in servers])
        _stop(servers)
        processes.end_descendants()
        self._running.clear()

    def _restart(self, program: Program, code: int) -> None:
        """Take an end down once, and start the program again when that is due."""
        ends = self._ends.setdefault(program.name, Ends())
        now = time.monotonic()
        if ends.due is None:
            ends.note(now)
            self._report(program, code, ends)
        if now >= (ends.due or now):
            ends.due = None
            self.start(program)

    def _report(self, program: Program, code: int, ends: Ends) -> None:
        # What the dead program had started is ours now, and nobody watches over it any more.
        processes.end_descendants(spare=[process.pid for _, process in self._running.values()])
        what = f"{program.name} {describe_exit(code)}"
        if not ends.pause:
            print(f"{what}; starting it again (log: {program.log})", flush=True)
            return
        self._troubles[program.name] = f"{what}, {len(ends.times)} times of late"
        said = ended_unexpectedly(program, code).args[0]
        print(f"{said}; tried again in {ends.pause:.0f} s (log: {program.log})", flush=True)
        self._tell()


def describe_exit(code: int) -> str:
    """A Popen return code in words: a negative one is the signal that ended the process."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def ended_unexpectedly(program: Program, code: int) -> Problem:
    text = program.log.read_text(errors="replace")[-4000:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    what = f"{program.name} {describe_exit(code)}: {lines[-1] if lines else 'it printed nothing'}"
    if is_about_a_full_disk(text):
        return Problem(what, FULL_DISK_REMEDY)
    return Problem(what, f"read {program.log}")


def _stop(running: Sequence[tuple[Program, subprocess.Popen[bytes]]]) -> None:
    """Ask all at once, wait for each, kill the ones that do not obey in time."""
    for program, process in running:
        process.send_signal(program.stop_signal)
    began = time.monotonic()
    for program, process in running:
        try:
            process.wait(max(0.1, began + program.stop_seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cut(log: Path) -> None:
    """Move what a long log holds to an older one, which it replaces, so that months do not fill the disk.

    Its program writes on: a file that is open for appending is written to at its end, wherever that is.
    """
    if not log.exists() or log.stat().st_size <= LOG_KEPT_BYTES:
        return
    shutil.copyfile(log, log.with_suffix(".old.log"))
    os.truncate(log, 0)
