"""A program from which processes are forked once it has loaded what they need; ``forked.ForkServer`` asks it.

The program imports its libraries and ends in ``serve(main)``. It computes nothing itself, so that it has one
thread and no device whenever it forks, and it ends with all that it started when its socket closes: that is
with whoever asked, however that ends.

The standard library's own fork server imports the caller's main program into each process, and gives none an
input, output or environment.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import NoReturn

from experiments.core.errors import LabError
from experiments.core.heap import keep_freed_memory
from experiments.core.processes import die_with_parent

READY = b"ready\n"
#: Bytes of a request that are read at once, and the files that come with it: input, output, errors, and where
#: its end is told.
CHUNK, FILES = 65536, 4


@dataclass(frozen=True)
class Request:
    """A process that is to be forked: arguments, environment, and ``files`` of its own."""

    arguments: Sequence[str]
    environment: dict[str, str]
    files: Sequence[int]


def serve(main: Callable[..., object]) -> NoReturn:
    """Fork a process that calls ``main`` for each request by the socket that the command line names."""
    _refuse_threads()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: whoever asked decides what ends
    keep_freed_memory()
    gc.freeze()  # a collection would write to pages that all processes share
    ForkLoop(main, socket.socket(fileno=int(sys.argv[1]))).run()


class ForkLoop:
    """``running`` are the processes by their sentinels, each with the pipe that tells its end."""

    def __init__(self, main: Callable[..., object], requests: socket.socket) -> None:
        self.main, self.requests = main, requests
        self.running: dict[int, tuple[ForkProcess, Connection]] = {}

    def run(self) -> NoReturn:
        self.requests.sendall(READY)
        while True:
            for ready in wait([self.requests, *self.running]):
                if isinstance(ready, int):
                    self._report(*self.running.pop(ready))
                elif request := receive(self.requests):
                    self._fork(request)
                else:
                    self._leave()

    def _report(self, process: ForkProcess, ending: Connection) -> None:
        process.join()
        with ending, suppress(BrokenPipeError):  # nobody waits for it
            ending.send_bytes(str(process.exitcode).encode())

    def _fork(self, request: Request) -> None:
        *files, ending = request.files
        process = multiprocessing.get_context("fork").Process(target=self._become, args=(request,))
        process.start()
        for file in files:
            os.close(file)
        self.running[process.sentinel] = process, Connection(ending, readable=False)
        self.requests.sendall(b"%d\n" % (process.pid or 0))

    def _become(self, request: Request) -> None:
        """In the new process: take what it was given and nothing that is the server's."""
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.requests.close()
        for _, ending in self.running.values():
            ending.close()
        for number, file in enumerate(request.files[:-1]):
            os.dup2(file, number)
        for file in request.files:
            os.close(file)
        sys.stdin = os.fdopen(0, closefd=False)
        os.environ.clear()
        os.environ.update(request.environment)
        self.main(*request.arguments)

    def _leave(self) -> NoReturn:
        for process, _ in self.running.values():
            process.kill()
        os._exit(0)


def receive(requests: socket.socket) -> Request | None:
    """Return the next request; ``None`` once nobody can send one any more."""
    read, files, _, _ = socket.recv_fds(requests, CHUNK, FILES)
    while read and not read.endswith(b"\n"):
        more = requests.recv(CHUNK)
        read = read + more if more else b""
    if not read:
        return None
    arguments, environment = json.loads(read)
    return Request(arguments, environment, files)


def _refuse_threads() -> None:
    """A process has none of its parent's threads, which may have held a lock that it waits for."""
    tasks = Path("/proc/self/task")
    count = len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()
    if count > 1:
        were = "thread was" if count == 2 else "threads were"
        raise LabError(f"{count - 1} {were} started by what was loaded")
