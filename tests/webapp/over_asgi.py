"""A request as the server hands it on, byte for byte: Django's test client tidies requests up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

Headers = Sequence[tuple[str, str]]
STREAM = b"text/event-stream"


class Application:
    """The pages over ASGI, in the thread of the test and so within its transaction."""

    def __init__(self, handler: Any = None) -> None:
        self._handler = handler or get_asgi_application()

    def ask(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> int:
        """The status of the answer. A stream of events is left as soon as it has begun."""
        with _connection_kept():
            return async_to_sync(self._ask)(_scope(method, path, query, headers), body)

    async def _ask(self, scope: dict[str, Any], body: bytes) -> int:
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        statuses: list[int] = []
        leaving = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if any(STREAM in value for _, value in message["headers"]):
                    leaving.set()

        await self._handler(scope, receive, send)
        return statuses[0]


@contextmanager
def _connection_kept() -> Iterator[None]:
    """The test's connection is not closed at the end of a request, as Django's test client sees to it."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)


def _scope(method: str, path: str, query: str, headers: Headers) -> dict[str, Any]:
    """As uvicorn makes it: names of headers in lower case, the path without its per cent signs."""
    given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if not any(name == b"host" for name, _ in given):
        given.append((b"host", b"testserver"))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": given,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }
