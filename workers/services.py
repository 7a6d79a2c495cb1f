"""Run the embedded servers: launch, wait until ready, stop; and a pair of them for tests."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workers.embedded import STOP_SECONDS, Postgres, ServiceError, Valkey, explain, last_line

START_SECONDS = 60


class Server(Protocol):
    """What a supervisor needs to know of a server it runs as its child."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def stop_signal(self) -> signal.Signals: ...
    def prepare(self) -> None: ...
    def command(self) -> list[str]: ...
    def popen_options(self) -> dict[str, Any]: ...
    def ready(self) -> bool: ...


@dataclass(frozen=True)
class Endpoints:
    """Where the started servers are, ready for DATABASE_URL and REDIS_URL."""

    database_url: str
    redis_url: str


@contextmanager
def temporary_servers(folder: Path) -> Iterator[Endpoints]:
    """Both servers in `folder` on free ports, fast rather than durable, ended on leaving."""
    postgres = Postgres(folder / "postgres", free_port(), durable=False)
    valkey = Valkey(folder / "valkey", free_port())
    with running(postgres, folder / "postgres.log"), running(valkey, folder / "valkey.log"):
        yield Endpoints(postgres.url, valkey.url)


@contextmanager
def running(server: Server, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The server, prepared, started and ready; stopped on leaving, however the block ends."""
    server.prepare()
    process = launch(server, log)
    try:
        wait_until_ready(server, process, log)
        yield process
    finally:
        stop(server, process)


def launch(server: Server, log: Path) -> subprocess.Popen[bytes]:
    """Start the server in its own session, so that Ctrl-C in a terminal reaches only its parent."""
    with log.open("ab") as output:
        return subprocess.Popen(
            server.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            **server.popen_options(),
        )


def wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.ready():
        if process.poll() is not None:
            raise explain_exit(server.name, process.returncode, log)
        if time.monotonic() > deadline:
            raise ServiceError(f"{server.name} was not ready after {START_SECONDS} s", f"read {log}")
        time.sleep(0.02)


def stop(server: Server, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(server.stop_signal)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def explain_exit(name: str, code: int, log: Path) -> ServiceError:
    """The error for a server that ended while it was expected to run."""
    text = log.read_text(errors="replace")[-4000:]
    return explain(f"{name} ended with exit code {code}: {last_line(text)}", text, log)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
