"""Processes that are forked from one that has loaded their libraries: a start costs no imports.

``ForkServer(module)`` runs a program that ends in ``fork_server.serve(main)`` as a child of this process.
Each ``start`` is a copy of it that calls ``main`` with arguments of its own. The server ends, with all that
it started, when this process ends, however that happens.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from experiments.core.errors import LabError
from experiments.core.fork_server import READY

ROOT = Path(__file__).resolve().parents[2]
#: Seconds in which a server ends by itself.
PATIENCE = 10.0


class ForkedProcess:
    """A process that a server started, with what is used here of ``subprocess.Popen``."""

    def __init__(
        self, pid: int, ended: Connection, stdin: IO[bytes] | None, stdout: IO[bytes] | None
    ) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Return its exit code, that of a signal negative; ``None`` while it runs."""
        return self.wait(0.0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code once it has ended, or ``None`` after ``timeout`` seconds."""
        if self.returncode is None and self._ended.poll(timeout):
            try:
                self.returncode = int(self._ended.recv_bytes())
            except EOFError:  # the server was killed, and its children with it
                self.returncode = -signal.SIGKILL
            self._ended.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A running ``module`` that ends in ``serve``; ``LabError`` with its last line where it cannot start."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
            )
        self._answers = self._socket.makefile("rb")
        atexit.register(self.close)
        if self._answers.readline() != READY:
            self.close()
            raise LabError(f"{module} did not start: {self._last_words()}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes],
        *,
        hears: bool = False,
        speaks: bool = False,
    ) -> ForkedProcess:
        """Fork a process that calls ``main(*arguments)``.

        What it writes goes to ``log``; one that ``speaks`` has a pipe for its output instead, one that
        ``hears`` a pipe for its input.
        """
        ended, ending = multiprocessing.Pipe(duplex=False)
        heard, said = os.pipe() if hears else (os.open(os.devnull, os.O_RDONLY), None)
        spoken, speaking = os.pipe() if speaks else (None, os.dup(log.fileno()))
        stdin = None if said is None else os.fdopen(said, "wb")
        stdout = None if spoken is None else os.fdopen(spoken, "rb")
        try:
            request = json.dumps([list(arguments), dict(environment)]).encode() + b"\n"
            pid = self._ask(request, [heard, speaking, log.fileno(), ending.fileno()])
        finally:
            ending.close()
            os.close(heard)
            os.close(speaking)
        return ForkedProcess(pid, ended, stdin, stdout)

    def _ask(self, request: bytes, files: Sequence[int]) -> int:
        """Send a request and return the process that answers it; interrupted, nothing is left of either."""
        with self._lock:
            try:
                sent = socket.send_fds(self._socket, [request], list(files))
                self._socket.sendall(request[sent:])
                answer = self._answers.readline()
            except ConnectionError:
                answer = b""
            except BaseException:
                self.close()
                raise
        if not answer:
            self.close()
            raise LabError(f"a process could not be started: {self._last_words()}")
        return int(answer)

    def close(self) -> None:
        """End the server and all that it started."""
        atexit.unregister(self.close)
        self._answers.close()
        self._socket.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no output"


_servers: dict[tuple[int, str], ForkServer] = {}


def server_of(module: str) -> ForkServer:
    """Return this process' running server of ``module``, started where there is none."""
    key = os.getpid(), module  # a forked process asks none of its parent's
    if key not in _servers or _servers[key].has_ended:
        _servers[key] = ForkServer(module)
    return _servers[key]


def _environment() -> dict[str, str]:
    """Libraries that start threads as they are loaded start none."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
