"""The gate for text: what Postgres cannot keep is refused once, before any page looks it up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from webapp.refusals import API, refuse

NUL = "\0"
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


class ReadableText(MiddlewareMixin):
    """Answers 400 where the address, a parameter, a cookie or a field of a form holds NUL, or the length of
    what was sent is no number.

    Cookies can: their octal escapes are read.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        length = request.META.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()):
            return refuse(request, 400, "The length of what was sent is no number.")
        asked = (*_texts(request.GET.lists()), *_texts(request.COOKIES.items()))
        return _refuse_nul(request, "The address or a cookie", (request.path, *asked))

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], arguments: Any, named: Any
    ) -> HttpResponse | None:
        """The form, once its CSRF token was checked; the API reads its own once it knows who asks."""
        is_form = request.method == "POST" and request.content_type in FORMS
        if not is_form or request.path.startswith(API):
            return None
        return _refuse_nul(request, "A field of the form", _texts(request.POST.lists()))


def _texts(named: Iterable[tuple[str, str | Sequence[object]]]) -> Iterator[str]:
    """Names and values."""
    for name, values in named:
        yield name
        yield from (values,) if isinstance(values, str) else map(str, values)


def _refuse_nul(request: HttpRequest, where: str, texts: Iterable[str]) -> HttpResponse | None:
    if any(NUL in text for text in texts):
        return refuse(request, 400, f"{where} holds the character NUL, which is no text.")
    return None
