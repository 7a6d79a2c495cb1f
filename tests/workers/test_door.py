"""TLS in front of the embedded servers: clients that check the certificate get through, others do not."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection

from tests.workers.crew import until
from workers.certificate import ensure_certificate
from workers.services import free_port

pytestmark = pytest.mark.django_db


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[int, int, Path]]:
    """The ports of both servers behind TLS, and the certificate."""
    certificate, key = ensure_certificate(tmp_path / "tls", "127.0.0.1")
    database, broker = connection.settings_dict, urlsplit(settings.REDIS_URL)
    ports = free_port(), free_port()
    doors = [
        f"127.0.0.1:{ports[0]}={database['HOST']}:{database['PORT']}",
        f"127.0.0.1:{ports[1]}={broker.hostname}:{broker.port}",
    ]
    command = ["-m", "workers.door", "--certificate", str(certificate), "--key", str(key), *doors]
    server = subprocess.Popen([sys.executable, *command])
    try:
        until(lambda: all(map(answers, ports)), 60, "the door is open")
        yield *ports, certificate
    finally:
        server.terminate()
        assert server.wait(20) in (0, -15)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_both_servers_are_reached_by_tls_with_this_certificate_and_not_without(
    door: tuple[int, int, Path], tmp_path: Path
) -> None:
    database_port, broker_port, certificate = door
    login = {name: str(connection.settings_dict[name.upper()]) for name in ("user", "password")}
    where = {"host": "127.0.0.1", "port": database_port, "dbname": connection.settings_dict["NAME"]}
    tls = {"sslmode": "verify-full", "sslnegotiation": "direct", "sslrootcert": str(certificate)}
    with psycopg.connect(**where, **login, **tls) as found:  # type: ignore[arg-type]
        assert found.pgconn.ssl_in_use
        assert found.execute("SELECT repeat('x', 1000000)").fetchone() == ("x" * 1_000_000,)
    another, _ = ensure_certificate(tmp_path / "other", "127.0.0.1")
    for refused in ({"sslmode": "disable"}, {**tls, "sslrootcert": str(another)}):
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(**where, **login, **refused, connect_timeout=10)  # type: ignore[arg-type]
    password = urlsplit(settings.REDIS_URL).password
    address = f"rediss://:{password}@127.0.0.1:{broker_port}/0?ssl_cert_reqs=required&ssl_ca_certs="
    assert redis.Redis.from_url(f"{address}{certificate}").ping()
    with pytest.raises(redis.exceptions.ConnectionError):
        redis.Redis.from_url(f"{address}{another}").ping()


def test_a_certificate_is_kept_for_its_name_and_made_anew_for_another(tmp_path: Path) -> None:
    certificate, key = ensure_certificate(tmp_path, "lab.example.org")
    first = certificate.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    ensure_certificate(tmp_path, "lab.example.org")
    assert certificate.read_bytes() == first
    ensure_certificate(tmp_path, "192.0.2.7")
    assert certificate.read_bytes() != first
    context = ssl.create_default_context(cafile=str(certificate))
    assert context.get_ca_certs()
