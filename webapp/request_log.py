"""Lines of the log: each with the id of its request, which the answer carries too; one for each refusal."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar

from django.http import HttpRequest, HttpResponse

HEADER = "X-Request-ID"
#: An id that a proxy gave, which may stand in a log as it is.
GIVEN = re.compile(r"[A-Za-z0-9_-]{8,64}")

_current: ContextVar[str] = ContextVar("request", default="-")

Respond = Callable[[HttpRequest], HttpResponse]


def name_request(respond: Respond) -> Respond:
    """Middleware: give each request an id, a proxy's own where that sent one."""

    def respond_by_name(request: HttpRequest) -> HttpResponse:
        given = request.headers.get(HEADER, "")
        name = given if GIVEN.fullmatch(given) else secrets.token_hex(6)
        request.request_id = name  # type: ignore[attr-defined]
        known = _current.set(name)
        try:
            answer = respond(request)
        finally:
            _current.reset(known)
        answer[HEADER] = name
        return answer

    return respond_by_name


class RequestFilter(logging.Filter):
    """Adds ``request_id`` to a record, and leaves no traceback to what was refused or is an outage."""

    def filter(self, record: logging.LogRecord) -> bool:
        # What Django says of a whole request it says after the last middleware.
        record.request_id = getattr(getattr(record, "request", None), "request_id", _current.get())
        status = getattr(record, "status_code", 0)
        if 400 <= status < 500 or status == 503:
            record.exc_info, record.exc_text = None, None
        return True
