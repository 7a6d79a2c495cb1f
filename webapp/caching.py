"""Pages stay with whom they were made for: no browser and no proxy keeps one."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin


class NoStore(MiddlewareMixin):
    """``Cache-Control: no-store`` on every answer of a view; static files are everybody's: they are answered
    before it and stay cacheable.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response["Cache-Control"] = "no-store"
        return response
