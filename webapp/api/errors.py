"""Refusals as JSON: what is wrong, in which field, with which value, and what would have been accepted."""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation, TooManyFilesSent
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import ValidationError

from experiments.core import jsonio
from experiments.core.errors import BadInput
from webapp.api.gate import read_body, value_at
from webapp.api.rate import TooOften
from webapp.outages import answer_outage, outage_of

#: A longer value is shown as the beginning of its JSON.
VALUE_LENGTH = 200


def handle(api: NinjaAPI) -> None:
    """Every error that a caller can cause becomes an answer of the one form (``schemas.Problem``)."""

    @api.exception_handler(BadInput)
    def bad_input(request: HttpRequest, error: BadInput) -> HttpResponse:
        field = (error.where or "body").removeprefix("spec.").removeprefix("outcome.")
        answer = _problem(str(error), field, _value(request, field), error.expected)
        return api.create_response(request, answer, status=422)

    @api.exception_handler(ValidationError)
    def bad_parameter(request: HttpRequest, error: ValidationError) -> HttpResponse:
        first = error.errors[0]
        field = str(first["loc"][-1])
        detail = f"{field}: {first['msg']}"
        return api.create_response(request, _problem(detail, field, request.GET.get(field), None), status=422)

    @api.exception_handler(TooOften)
    def too_often(request: HttpRequest, error: TooOften) -> HttpResponse:
        answer = api.create_response(request, _problem(str(error), None, None, None), status=429)
        answer["Retry-After"] = str(error.seconds)
        return answer

    def report_malformed(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
        too_big = isinstance(error, RequestDataTooBig)
        detail = "the body is larger than this server takes" if too_big else f"malformed request: {error}"
        return api.create_response(
            request, _problem(detail, "body", None, None), status=413 if too_big else 400
        )

    def report_outage(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
        outage = outage_of(error if isinstance(error, Exception) else None)
        if not outage:
            raise error
        return answer_outage(request, outage)

    for kind in (BadRequest, MultiPartParserError, TooManyFilesSent, SuspiciousOperation):
        api.add_exception_handler(kind, report_malformed)
    for cause in (OperationalError, InterfaceError, OSError):
        api.add_exception_handler(cause, report_outage)


def _problem(detail: str, field: str | None, value: Any, expected: str | None) -> dict[str, Any]:
    return {"detail": detail[:2000], "field": field, "value": value, "expected": expected}


def _value(request: HttpRequest, field: str) -> Any:
    """The offending value, shortened; ``None`` where the body is no JSON or has nothing there."""
    if field in request.GET:
        return request.GET[field][:VALUE_LENGTH]
    try:
        found = value_at(jsonio.loads(read_body(request), "body"), field)
    except BadInput:
        return None
    shown = json.dumps(found)
    return found if len(shown) < VALUE_LENGTH and "\\u" not in shown else shown[:VALUE_LENGTH]
