"""A request as the server hands it on, byte for byte: Django's test client tidies requests up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

Headers = Sequence[tuple[str, str]]
STREAM = "text/event-stream"


@dataclass
class Answer:
    """What was answered; of a stream of events nothing but that it began."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


class Application:
    """The pages over ASGI, in the thread of the test and so within its transaction."""

    def __init__(self, handler: Any = None) -> None:
        self._handler = handler or get_asgi_application()

    def ask(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Answer:
        """The answer. A stream of events is left as soon as it has begun."""
        with _connection_kept():
            return async_to_sync(self._ask)(_scope(method, path, query, headers), body)

    async def _ask(self, scope: dict[str, Any], body: bytes) -> Answer:
        incoming = [{"type": "http.request", "body": body, "more_body": False}]
        answer = Answer()
        leaving = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if incoming:
                return incoming.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                named = (
                    (name.decode().lower(), value.decode("latin-1")) for name, value in message["headers"]
                )
                answer.headers.update(named)
                if answer.headers.get("content-type", "").startswith(STREAM):
                    leaving.set()
            else:
                answer.content += message.get("body", b"")

        await self._handler(scope, receive, send)
        return answer


class Views:
    """The same pages without the server's part: middleware and views are called in this thread, which takes
    a third of the time. For walks of thousands of requests that are whole.
    """

    def __init__(self) -> None:
        self._handler = BaseHandler()
        self._handler.load_middleware()

    def ask(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Answer:
        """The answer; of a stream its beginning."""
        with _connection_kept():
            request = ASGIRequest(_scope(method, path, query, headers), BytesIO(body))
            response = self._handler.get_response(request)
            content = b"" if response.streaming and response.is_async else b"".join(response)
            response.close()
        named = {name.lower(): value for name, value in response.items()}
        return Answer(response.status_code, named, content)


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
