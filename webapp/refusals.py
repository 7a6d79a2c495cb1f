"""Answers to requests that are refused before or instead of a page, as HTML or, to the API, as its JSON.

They read nothing of the request but its address: Django's own handlers read the form once more (for its CSRF
token), which raises again where it could not be read in the first place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from http import HTTPStatus

from django.core.exceptions import BadRequest, RequestDataTooBig
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

API = "/api/"
#: Seconds after which who asked too often may ask again.
ASK_AGAIN_AFTER = 60


Handler = Callable[[HttpRequest, Exception], HttpResponse]


def close_connection(handler: Handler) -> Handler:
    """A handler whose page asks the database, over a connection that it closes where it opened it.

    Over ASGI Django calls it in another thread than the request's, whose connection nobody else would close
    or look after: each such thread would keep one, and fail for good once the database was started anew.
    """

    @functools.wraps(handler)
    def handle(request: HttpRequest, exception: Exception) -> HttpResponse:
        is_requests = connection.connection is not None
        try:
            return handler(request, exception)
        finally:
            if not is_requests:
                connection.close()

    return handle


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400 for what cannot be read, 413 for what is too large; the words of a ``BadRequest`` are shown."""
    if isinstance(exception, RequestDataTooBig):
        return refuse(request, 413, "The form is larger than this server takes.")
    known = isinstance(exception, BadRequest)
    return refuse(request, 400, str(exception) if known else "Its address, headers or form are malformed.")


@close_connection
def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403, with the role that is needed."""
    return render(request, "403.html", {"exception": str(exception)}, status=403)


@close_connection
def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 without the reason: whether something exists elsewhere is not told."""
    return render(request, "404.html", status=404)


def failed() -> HttpResponse:
    """500 without anything of the request: any part of it may be what failed."""
    return render(None, "500.html", status=500)


def too_many(request: HttpRequest, seconds: int = ASK_AGAIN_AFTER) -> HttpResponse:
    """429 that says after how many seconds to ask again, in words and as ``Retry-After``."""
    minutes = -(-seconds // 60)
    words = f"Too many attempts. Try again in {minutes} minute{'s' if minutes > 1 else ''}."
    answer = refuse(request, 429, words)
    answer["Retry-After"] = str(seconds)
    return answer


def refuse(request: HttpRequest, status: int, words: str) -> HttpResponse:
    """The refusal in words; a page has no menu, since who asks is not looked up."""
    if request.path.startswith(API):
        problem = {"detail": words, "field": None, "value": None, "expected": None}
        return JsonResponse(problem, status=status)
    page = {"refusal": HTTPStatus(status).phrase, "words": words}
    return render(None, "refused.html", page, status=status)
