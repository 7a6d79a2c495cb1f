"""`./lab up --listen ADDRESS`: what other hosts join by. All of it is TLS, with a certificate of this lab.

The embedded servers speak in the open and stay on loopback; a door in front of each ends the TLS. The web
page has a second server of its own, which says https of itself.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from labtools import programs
from labtools.layout import Layout
from labtools.supervisor import Program

FIRST_PORT = 8443
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Address:
    """``host`` is what others call this machine; the web page, PostgreSQL and Valkey have a port each."""

    host: str
    port: int

    @property
    def place(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        return f"https://{self.place}:{self.port}"


def address(text: str) -> Address:
    """``ADDRESS`` or ``ADDRESS:PORT``; not a wildcard, since a certificate and other hosts need the name."""
    parts = urlsplit(f"//{text}")
    try:
        host, port = parts.hostname or "", parts.port or FIRST_PORT
    except ValueError:
        host, port = "", 0
    if not _is_name(host) or not 1 <= port <= 65533 or parts.path:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address of this machine, such as 192.0.2.7")
    return Address(host, port)


def _is_name(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return NAME.fullmatch(host) is not None


def settings(layout: Layout, at: Address, database_url: str) -> dict[str, str]:
    """What the web app tells hosts that join; the certificate is made where there is none for the address."""
    from workers.certificate import ensure_certificate

    certificate, _ = ensure_certificate(layout.var / "tls", at.host)
    name = urlsplit(database_url).path.lstrip("/")
    return {
        "LAB_ADDRESS": at.place,
        "HOSTS_URL": at.url,
        "HOSTS_DATABASE_URL": (
            f"postgresql://{at.place}:{at.port + 1}/{name}?sslmode=verify-full&sslnegotiation=direct"
        ),
        "HOSTS_REDIS_URL": f"rediss://{at.place}:{at.port + 2}/0",
        "HOSTS_CERTIFICATE": str(certificate),
        "HOSTS_PINNED": "1",
    }


def doors(layout: Layout, shared: Mapping[str, str], at: Address) -> list[Program]:
    """The web page by https, and the door of both servers."""
    certificate, key = (str(layout.var / "tls" / name) for name in ("certificate.pem", "key.pem"))
    python = [str(layout.python), "-m"]
    web = [*python, "uvicorn", "webapp.asgi:application", "--host", at.host, "--port", str(at.port)]
    web += ["--ssl-certfile", certificate, "--ssl-keyfile", key, *programs.WEB_OPTIONS]
    targets = [
        f"{at.place}:{at.port + 1 + number}={_place(shared[name])}"
        for number, name in enumerate(("DATABASE_URL", "REDIS_URL"))
    ]
    program = partial(Program, environment=shared, options={"cwd": str(layout.root)})
    return [
        program("web-tls", web, layout.logs / "web-tls.log"),
        program(
            "door",
            [*python, "workers.door", "--certificate", certificate, "--key", key, *targets],
            layout.logs / "door.log",
        ),
    ]


def _place(url: str) -> str:
    """Host and port of a server's address."""
    parts = urlsplit(url)
    default = 5432 if parts.scheme.startswith("postgres") else 6379
    return f"{parts.hostname}:{parts.port or default}"
