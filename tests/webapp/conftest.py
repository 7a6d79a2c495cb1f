"""Fixtures of the page tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.core.cache import cache
from zeal.signals import nplusone_detected
from zeal.util import get_stack

from tests.webapp.cast import Cast, make_cast


@pytest.fixture
def cast(db: None) -> Cast:
    return make_cast()


@pytest.fixture(autouse=True)
def files_of_its_own(request, settings, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Uploads of a test land in its own folder; those of a populated lab stay in that one's."""
    if "lab" not in request.fixturenames:
        settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture(autouse=True)
def counts_of_its_own() -> None:
    """Sign-ups and second factors are counted by address in the cache: another test's are not this one's."""
    cache.clear()


@pytest.fixture(autouse=True)
def n_plus_one() -> Iterator[dict[str, str]]:
    """What zeal finds in the pages that a test asks for, and where: the test fails with it.

    It is not raised at its place: the tables library takes that for a cell without a value.
    """
    found: dict[str, str] = {}

    def note(exception: Exception, **more: Any) -> None:
        lines = [f"{file}:{line}" for file, line, _ in get_stack() if file != __file__]
        found[str(exception)] = lines[0] if lines else ""

    nplusone_detected.connect(note)
    yield found
    nplusone_detected.disconnect(note)
    assert not found, "\n".join(f"{what} at {where}" for what, where in found.items())


@pytest.fixture(scope="module")
def lab(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A ``Populated``: two teams with one of everything, made once for a whole file of tests."""
    # It takes from files of tests, which pytest has to be the first to import.
    from tests.webapp.populated import populated

    with django_db_blocker.unblock(), populated(tmp_path_factory.mktemp("files")) as found:
        yield found


@pytest.fixture
def ear(settings: Any) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]], list[int]]]:
    """A server that keeps what it is posted, and answers with the last of the codes."""
    settings.NOTIFY_PRIVATE = True
    heard: list[tuple[dict[str, str], bytes]] = []
    codes = [204]

    class Ear(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((dict(self.headers), body))
            self.send_response(codes[-1])
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Ear)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", heard, codes
    server.shutdown()
