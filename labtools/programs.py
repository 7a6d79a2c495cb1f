"""The programs that `./lab up` runs, and the environment they share."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from labtools import preflight, private_files
from labtools.layout import Layout
from labtools.problems import Problem
from labtools.supervisor import Program

if TYPE_CHECKING:
    from workers.services import Server

SERVER_STOP_SECONDS = 30
# A worker gets this long to hand its runs back before it is killed; the runs are taken up again anyway.
WORKER_STOP_SECONDS = 15
#: Open event streams would hold a graceful end up without limit; whose word is taken for another's address is
#: the settings' to say (``TRUSTED_PROXIES``).
WEB_OPTIONS = ("--lifespan=off", "--no-proxy-headers", "--timeout-graceful-shutdown=3", "--no-access-log")
DEFAULT_SETTINGS = "webapp.settings.local"


@dataclass(frozen=True)
class Endpoints:
    """Where the database and the message broker are, and which servers must be started for that."""

    database_url: str
    redis_url: str
    servers: tuple[Program, ...]
    database_is_embedded: bool


def endpoints(layout: Layout) -> Endpoints:
    """The servers named by DATABASE_URL and REDIS_URL, an embedded one for each that is not named."""
    from workers import embedded, services

    servers: list[Program] = []
    database_url, redis_url = os.environ.get("DATABASE_URL"), os.environ.get("REDIS_URL")
    if database_url:
        preflight.require_database(database_url)
    else:
        postgres = embedded.Postgres(layout.var / "postgres", services.free_port())
        servers.append(_server(postgres, layout))
        database_url = postgres.url
    if redis_url:
        preflight.require_redis(redis_url)
    else:
        valkey = embedded.Valkey(layout.var / "valkey", services.free_port())
        servers.append(_server(valkey, layout))
        redis_url = valkey.url
    return Endpoints(database_url, redis_url, tuple(servers), not os.environ.get("DATABASE_URL"))


def _server(server: Server, layout: Layout) -> Program:
    from workers.embedded import ServiceError

    try:
        server.prepare()
    except ServiceError as error:
        raise Problem(str(error), error.remedy) from error
    return Program(
        name=server.name,
        command=server.command(),
        log=layout.logs / f"{server.name}.log",
        ready=server.ready,
        options=server.popen_options(),
        is_server=True,
        stop_signal=server.stop_signal,
        stop_seconds=SERVER_STOP_SECONDS,
    )


def environment(layout: Layout, at: Endpoints, unsafe: bool) -> dict[str, str]:
    """What web, worker, beat and manage.py read."""
    return os.environ | {
        "LAB_UNSAFE": "1" if unsafe else os.environ.get("LAB_UNSAFE", ""),
        "DATABASE_URL": at.database_url,
        "REDIS_URL": at.redis_url,
        "SECRET_KEY": private_files.secret(layout.secret_key),
        "ALLOWED_HOSTS": "localhost,127.0.0.1,[::1]",
        "LAB_VAR": str(layout.var),
        "DJANGO_SETTINGS_MODULE": os.environ.get("DJANGO_SETTINGS_MODULE", DEFAULT_SETTINGS),
        "PYTHONUNBUFFERED": "1",
    }


def applications(layout: Layout, shared: Mapping[str, str], port: int, workers: int) -> list[Program]:
    """Web, worker and beat."""
    program = partial(Program, environment=shared, options={"cwd": str(layout.root)})
    python = [str(layout.python), "-m"]
    celery = [*python, "celery", "-A", "workers.app"]
    web = [*python, "uvicorn", "webapp.asgi:application", "--host", "127.0.0.1", "--port", str(port)]
    return [
        program(
            "web",
            [*web, *WEB_OPTIONS],
            layout.logs / "web.log",
            ready=partial(answers, f"http://127.0.0.1:{port}/healthz"),
        ),
        program(
            "worker",
            [*celery, "worker", "--loglevel", "INFO", "--concurrency", str(workers)],
            layout.logs / "worker.log",
            stop_seconds=WORKER_STOP_SECONDS,
        ),
        program(
            "beat",
            # No pid file: the lock on the folder already keeps a second beat away.
            [*celery, "beat", "--loglevel", "INFO", "--pidfile="],
            layout.logs / "beat.log",
        ),
    ]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
