"""Watches pages for N+1 queries while they are tested (docs/decisions/0233)."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware
from zeal.middleware import zeal_middleware


@sync_and_async_middleware
def watch_reading(get_response: Any) -> Any:
    """Middleware by which zeal watches what only reads; what changes rows may lock them one after another."""
    watched = zeal_middleware(get_response)

    def respond(request: HttpRequest) -> Any:
        return (watched if request.method in ("GET", "HEAD") else get_response)(request)

    return markcoroutinefunction(respond) if iscoroutinefunction(get_response) else respond
