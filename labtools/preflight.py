"""Is the way clear? Each check raises a Problem that says what is in the way and what to do."""

from __future__ import annotations

import errno
import socket
from urllib.parse import urlsplit

from labtools.problems import Problem


def require_free_port(port: int) -> None:
    with socket.socket() as probe:
        # As the web server does: a port in TIME_WAIT after the last stop counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise Problem(f"only root may use port {port}", "./lab up --port 8000") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise _port_taken(port) from error


def _port_taken(port: int) -> Problem:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    return Problem(f"port {port} is used by another program", f"./lab up --port {free}")


def require_database(url: str) -> None:
    """The given server must let us in; the password never appears in the message."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        remedy = "check DATABASE_URL, or unset it to use the embedded server"
        raise Problem(f"DATABASE_URL ({without_password(url)}): {lines[0].strip()}", remedy) from error


def require_redis(url: str) -> None:
    import redis

    try:
        redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2).ping()
    except (redis.RedisError, ValueError) as error:
        remedy = "check REDIS_URL, or unset it to use the embedded server"
        raise Problem(f"REDIS_URL ({without_password(url)}): {error}", remedy) from error


def require_walls(unsafe: bool) -> None:
    """Root must be able to put walls around what it carries out for others, or be told not to mind."""
    from workers import sandbox

    try:
        sandbox.best_tier(unsafe)
    except sandbox.NoWalls as error:
        raise Problem(str(error), error.remedy) from error


def without_password(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{host}{parts.path}"
