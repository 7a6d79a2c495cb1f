"""Who knocks at a host's addresses: a joined host, by the token that was made for it alone."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from webapp.hosts.models import Host

#: So that a token found in a log is recognized as one.
MARK = "host_"


class HostRequest(HttpRequest):
    """A request of a joined host."""

    host: Host


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def for_hosts(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """For views that only joined hosts call: ``view(request: HostRequest, ...)``; 401 for all others."""

    @functools.wraps(view)
    def enter(request: HttpRequest, *args: Any, **where: Any) -> HttpResponseBase:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = Host.objects.filter(access__token_sha256=digest(token), access__revoked_at=None).first()
        if scheme != "Bearer" or found is None:
            return JsonResponse({"detail": "this address takes the token of a joined host"}, status=401)
        request.host = found  # type: ignore[attr-defined]
        return view(request, *args, **where)

    return csrf_exempt(enter)  # a token in a header is nothing that a foreign page could send
