"""A web process keeps its connections to Postgres, and finds the way back when they break."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.conftest import ROOT
from tests.proxy import Proxy
from tests.workers.crew import until
from workers.services import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
OTHERS = """
    SELECT {} FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()"""


@contextmanager
def web(folder: Path, place: str) -> Iterator[str]:
    """The address of a web process whose database is at ``place``; it must end by itself when told to."""
    told, port = connection.settings_dict, free_port()
    environment = os.environ | {
        "DATABASE_URL": f"postgresql://{told['USER']}:{told['PASSWORD']}@{place}/{told['NAME']}",
        "REDIS_URL": settings.REDIS_URL,
        "LAB_VAR": str(folder),
        "DJANGO_SETTINGS_MODULE": "webapp.settings.test",
    }
    program = [sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--lifespan=off"]
    with subprocess.Popen([*program, f"--port={port}"], cwd=ROOT, env=environment) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            until(lambda: status(f"{address}/healthz") == 200, 60, "the web process answers")
            yield address
            process.send_signal(signal.SIGTERM)
            # uvicorn raises the signal again once it has ended its requests.
            assert process.wait(30) in (0, -signal.SIGTERM)
        finally:
            process.kill()


def status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def others(what: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(OTHERS.format(what))
        return sorted(value for (value,) in cursor.fetchall())


@pytest.fixture
def place() -> str:
    return f"{connection.settings_dict['HOST']}:{connection.settings_dict['PORT']}"


def test_requests_take_over_a_connection_and_one_that_was_ended_is_replaced(
    tmp_path: Path, place: str
) -> None:
    with web(tmp_path, place) as address:
        assert status(f"{address}/readyz") == 200
        first = others("pid")
        assert [status(f"{address}/readyz") for _ in range(5)] == [200] * 5
        assert others("pid") == first and len(first) <= 2
        assert set(others("pg_terminate_backend(pid)::int")) == {1}
        assert [status(f"{address}/readyz") for _ in range(3)] == [200] * 3
        assert others("pid") and not set(others("pid")) & set(first)


def test_an_outage_is_said_in_time_and_over_soon_after_the_database_is_back(
    tmp_path: Path, place: str
) -> None:
    host, port = place.split(":")
    network = Proxy((host, int(port)))
    with web(tmp_path, f"127.0.0.1:{network.port}") as address:
        assert status(f"{address}/readyz") == 200
        network.cut()
        began = time.monotonic()
        assert status(f"{address}/readyz") == 503
        assert time.monotonic() - began < 15
        time.sleep(20)  # longer than anybody goes on to look for it
        network.mend()
        until(lambda: status(f"{address}/readyz") == 200, 15, "requests are served again")
    network.close()
