"""When the database or the file storage is away for a while: 503 with what to do, and no traceback of ours.

What is sent waits a few seconds for the database first; a page that is read tries again by itself.
"""

from __future__ import annotations

import errno
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from kombu.exceptions import OperationalError as BrokerError

from webapp.refusals import failed
from webapp.runs import queue

#: After so many seconds whoever was refused may ask again.
RETRY_SECONDS = 5
#: How long is slept between two tries to reach the database (seconds).
PAUSE_SECONDS = 0.2
READING = ("GET", "HEAD", "OPTIONS")
#: What Postgres says of itself when it cannot serve: the connection, its end, its start, a full disk, no more
#: connections.
AWAY = ("08", "57P01", "57P02", "57P03", "53100", "53300")
#: What a file system says whose disk is full or whose server is gone.
STORAGE_AWAY = frozenset(
    (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN)
)

log = logging.getLogger(__name__)


def outage_of(error: BaseException | None) -> str:
    """Return what is away where ``error`` comes of that, ``database`` or ``file storage``; else empty."""
    for cause in _causes(error):
        if isinstance(cause, DatabaseError | InterfaceError) and _is_about_the_connection(cause):
            return "database"
        if isinstance(cause, OSError) and cause.errno in STORAGE_AWAY:
            return "file storage"
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Return an error and those during whose handling it was raised: a broken transaction hides the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_about_the_connection(error: Exception) -> bool:
    if isinstance(error, InterfaceError):
        return True
    state = getattr(error.__cause__, "sqlstate", None)
    return isinstance(error, OperationalError) and (state is None or state.startswith(AWAY))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer what no view answered: an outage by 503, anything else is a fault of ours."""
    outage = outage_of(sys.exc_info()[1])
    return answer_outage(request, outage) if outage else failed()


def answer_outage(request: HttpRequest, outage: str) -> HttpResponse:
    """Answer 503: JSON to programs, to people a page that tries again or keeps what they sent."""
    log.warning("%s %s: the %s does not answer", request.method, request.path, outage)
    detail = f"the {outage} does not answer; nothing was stored, try again in {RETRY_SECONDS} seconds"
    if request.path.startswith("/api/"):
        answer: HttpResponse = JsonResponse(
            {"detail": detail, "field": None, "value": None, "expected": None}
        )
        answer.status_code = 503
    else:
        answer = HttpResponse(render_to_string("503.html", _page(request, outage)), status=503)
    answer["Retry-After"] = str(RETRY_SECONDS)
    answer["Cache-Control"] = "no-store"
    return answer


def _page(request: HttpRequest, outage: str) -> dict[str, Any]:
    """Return what the page shows, without what asks the database."""
    reading = request.method in READING
    sent = [] if reading else [(name, one) for name, all_ in request.POST.lists() for one in all_]
    files = not reading and bool(request.FILES)
    shown = {"reading": reading, "sent": sent, "files": files, "address": request.get_full_path()}
    return {"outage": outage, "seconds": RETRY_SECONDS, **shown}


def read_troubles() -> list[str]:
    """Return what ``./lab up``, where it runs, says of its programs that end again and again."""
    try:
        told = json.loads((Path(settings.VAR) / "lab.json").read_text()).get("troubles", {})
    except (OSError, ValueError):
        return []
    return [f"{text}. It is tried again by itself; runs wait meanwhile." for text in told.values()]


Respond = Callable[[HttpRequest], HttpResponse]


def wait_for_database(respond: Respond) -> Respond:
    """Middleware: what is sent waits ``OUTAGE_WAIT_SECONDS`` for a database that does not answer."""

    def respond_when_it_answers(request: HttpRequest) -> HttpResponse:
        if request.method not in READING:
            _wait(settings.OUTAGE_WAIT_SECONDS)
        return respond(request)

    return respond_when_it_answers


def _wait(seconds: float) -> None:
    """Return once there is a connection, which the request then uses, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if _answers(connection.ensure_connection):
            return
        time.sleep(PAUSE_SECONDS)


def readyz(request: HttpRequest) -> JsonResponse:
    """Say whether requests can be served: what they need answers.

    Without the broker they can: workers look for runs by themselves.
    """
    parts = {
        "database": _answers(_ask_database),
        "files": _answers(_ask_storage),
        "broker": _answers(_ask_broker),
    }
    ready = parts["database"] and parts["files"]
    said = {name: "ok" if well else "away" for name, well in parts.items()}
    return JsonResponse(
        {"ready": ready, **said}, status=200 if ready else 503, headers={"Cache-Control": "no-store"}
    )


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except (DatabaseError, InterfaceError, BrokerError, OSError):
        return False
    return True


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _ask_storage() -> None:
    default_storage.exists("unfinished")


def _ask_broker() -> None:
    with queue.client().connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, timeout=2)
