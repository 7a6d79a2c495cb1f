"""One child process in its cell: started, watched, and ended with everything it started."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workers import process_tree, trial_accounts
from workers.accounts import Account
from workers.sandbox import Cell, Limits
from workers.usage import Usage

#: How often what the tree takes is added up. Between two looks a process can take about a gigabyte more.
LOOK_SECONDS = 0.1
LOG_BYTES = 16_384
#: How the cause of an end begins that the time limit made.
TOO_LONG = "took longer than"
#: A progress line longer than this is nobody's progress.
LINE_BYTES = 4096


@dataclass(frozen=True)
class Ended:
    """How a trial ended. ``cause`` says which limit or request ended it; empty when it ended by itself."""

    exit_code: int | None
    signal: str
    cause: str
    peak_bytes: int
    log: str

    @property
    def took_too_long(self) -> bool:
        return self.cause.startswith(TOO_LONG)


@dataclass
class Watch:
    """What the supervisor is told and asked while a trial runs. ``asked_to_stop`` gives a cause,
    or nothing; ``must_pause`` holds the trial, whose time limit then stands still.
    """

    progress: Callable[[float, str], None]
    asked_to_stop: Callable[[], str]
    interval: float
    must_pause: Callable[[], bool] = lambda: False


@dataclass
class Trial:
    """A started trial. ``run`` returns only once the whole tree is gone."""

    command: Sequence[str]
    cell: Cell
    limits: Limits
    environment: Mapping[str, str]
    stdout: Path | None = None
    _log: bytearray = field(default_factory=bytearray)
    _line: bytearray = field(default_factory=bytearray)

    def run(self, watch: Watch) -> Ended:
        with trial_accounts.borrow() as account:
            return self._run(account, watch)

    def _run(self, account: Account | None, watch: Watch) -> Ended:
        pipes = [os.pipe() for _ in range(2)]
        (log, progress), writers = zip(*pipes, strict=True)
        try:
            process = self._start(account, *writers)
            usage = Usage(process.pid, self.cell.work, self.limits)
            try:
                cause = self._watch(process, log, progress, watch, usage)
            finally:
                status = self._end(process, usage)
            self._drain(log)
            return self._ended(status, cause, usage.peak)
        finally:
            for reader in (log, progress):
                os.close(reader)

    def _start(self, account: Account | None, log: int, progress: int) -> subprocess.Popen[bytes]:
        """Start the command; the writing ends of the pipes, and its folder, are its own from here on."""
        words = [word.replace("{progress}", str(progress)) for word in self.command]
        output = self.stdout.open("wb") if self.stdout else None
        try:
            words = self.cell.command(words, self.limits, account)
            environment = {**self.environment, "PYTHONPATH": self.cell.python_path()}
            if account:
                account.take(self.cell.work)
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output or log,
                stderr=log,
                cwd=self.cell.work,
                env=environment,
                pass_fds=(progress,),
                start_new_session=True,
            )
        finally:
            for writer in (log, progress):
                os.close(writer)
            if output:
                output.close()

    def _watch(
        self, process: subprocess.Popen[bytes], log: int, progress: int, watch: Watch, usage: Usage
    ) -> str:
        """Until the process ends by itself (no cause) or has to be ended (the cause)."""
        started = last_asked = time.monotonic()
        pause = Pause(process.pid)
        ending = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as events:
                for source in (log, progress, ending):
                    os.set_blocking(source, False)
                    events.register(source, selectors.EVENT_READ)
                while True:
                    for key, _ in events.select(LOOK_SECONDS):
                        if key.fd == ending:
                            return usage.excess_at_end()
                        if not self._read(key.fd, log, watch):
                            events.unregister(key.fd)
                    now = time.monotonic()
                    if cause := usage.excess():
                        return cause
                    pause.go_on(watch.must_pause(), now)
                    if now - started - pause.seconds > self.limits.seconds:
                        return f"{TOO_LONG} {self.limits.seconds:g} s"
                    if now - last_asked >= watch.interval:
                        last_asked = now
                        if cause := watch.asked_to_stop():
                            return cause
        finally:
            os.close(ending)

    def _read(self, source: int, log: int, watch: Watch) -> bool:
        data = os.read(source, 65536)
        if source == log:
            self._log += data
            del self._log[:-LOG_BYTES]
        else:
            self._line += data
            *lines, rest = self._line.split(b"\n")
            self._line = rest[-LINE_BYTES:]
            for report in filter(None, map(parse_progress, lines[-1:])):
                watch.progress(*report)
        return bool(data)

    def _drain(self, log: int) -> None:
        os.set_blocking(log, False)
        try:
            while data := os.read(log, 65536):
                self._log += data
                del self._log[:-LOG_BYTES]
        except BlockingIOError:
            return

    def _end(self, process: subprocess.Popen[bytes], usage: Usage) -> int:
        """Kill what is left of the tree and take the exit status of its head."""
        # The guard kills what is below it and only then ends. It stands above bubblewrap too, whose own child
        # would never end when bubblewrap is killed while it sets up.
        process_tree.send(process.pid, signal.SIGTERM)
        _, status, spent = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        usage.peak = max(usage.peak, spent.ru_maxrss * 1024)
        return process.returncode

    def _ended(self, status: int, cause: str, peak: int) -> Ended:
        number = -status if status < 0 else status - 128
        killed_by = signal.Signals(number).name if status and number in _SIGNALS else ""
        text = self._log.decode("utf-8", "replace").replace("\0", "�")
        return Ended(None if killed_by else status, killed_by, cause, peak, text)


@dataclass
class Pause:
    """Holds everything below ``pid`` for as long as it is told to; ``seconds`` is how long it was held."""

    pid: int
    seconds: float = 0.0
    _since: float | None = None

    def go_on(self, held: bool, now: float) -> None:
        """What was started meanwhile is held at the next look."""
        if held:
            self._send(signal.SIGSTOP)
        elif self._since is not None:
            self._send(signal.SIGCONT)
        if self._since is not None:
            self.seconds += now - self._since
        self._since = now if held else None

    def _send(self, what: signal.Signals) -> None:
        for below in process_tree.descendants(self.pid):
            process_tree.send(below, what)


_SIGNALS = {entry.value for entry in signal.Signals}


def parse_progress(line: bytes | bytearray) -> tuple[float, str] | None:
    """A report of ``experiments.core.progress.JsonLines``; ``None`` for anything else (the trial is not
    trusted).
    """
    try:
        report = json.loads(line)
        fraction, step = float(report["progress"]), str(report["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not 0 <= fraction <= 1:
        return None
    return fraction, step.encode("utf-8", "replace").decode().replace("\0", "")[:120]
