"""Requests that may be sent again: an ``Idempotency-Key`` of the caller's makes something once.

The key and the answer are stored in the transaction that makes it. Another request with the same key waits
for that one, and gets the same answer; with other content it is refused. What was refused is not kept:
corrected, it may be sent with the same key.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Status
from ninja.responses import NinjaJSONEncoder

from experiments.core.errors import BadInput
from webapp.api.gate import read_body
from webapp.api.models import ApiToken, KeptAnswer

HEADER = "Idempotency-Key"
KEPT = timedelta(days=7)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def once(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, made once for each key of a token."""

    @functools.wraps(operation)
    def answer_once(request: HttpRequest, **values: Any) -> Any:
        key = request.headers.get(HEADER)
        if key is None or request.method != "POST":
            return operation(request, **values)
        if not _KEY.fullmatch(key):
            raise BadInput(f"{key!r:.80} is not a key", HEADER, "1 to 255 visible ASCII characters")
        token: ApiToken = request.auth  # type: ignore[attr-defined]
        return _answer(token, key, fingerprint(request), lambda: operation(request, **values))

    return answer_once


def _answer(token: ApiToken, key: str, asked: str, carry_out: Callable[[], Any]) -> Any:
    with transaction.atomic():
        KeptAnswer.objects.filter(token=token, made_at__lt=timezone.now() - KEPT).delete()
        try:
            with transaction.atomic():
                row = KeptAnswer.objects.create(token=token, key=key, request=asked)
        except IntegrityError:
            return _again(KeptAnswer.objects.get(token=token, key=key), asked)
        made = carry_out()
        if isinstance(made, HttpResponse):  # of an operation that makes nothing twice by itself
            row.delete()
            return made
        status, value = (made.status_code, made.value) if isinstance(made, Status) else (200, made)
        row.status, row.answer = status, orjson.dumps(value, default=NinjaJSONEncoder().default).decode()
        row.save(update_fields=["status", "answer"])
        return made


def _again(row: KeptAnswer, asked: str) -> Any:
    if row.request != asked:
        what = f"{row.key!r:.80} was sent with another request"
        raise BadInput(what, HEADER, "a new key for each request, the same for its repetitions")
    return Status(row.status or 200, orjson.loads(row.answer))


def fingerprint(request: HttpRequest) -> str:
    """SHA-256 of what is asked: address, and the body or the files of a form."""
    found = hashlib.sha256(f"{request.get_full_path()}\n".encode())
    if not request.FILES:
        found.update(read_body(request))
    for name, files in sorted(request.FILES.lists()):
        for file in files:
            found.update(f"{name}\n{file.name}\n{file.size}\n".encode())
            for chunk in file.chunks():
                found.update(chunk)
            file.seek(0)
    return found.hexdigest()
