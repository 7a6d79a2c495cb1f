"""The identity provider's door: who may come in, what may be sent, and every refusal in SCIM's form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.csrf import csrf_exempt

from experiments.core.errors import BadInput
from webapp.api import rate
from webapp.api.gate import read_json

MEDIA_TYPE = "application/scim+json"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
#: A person with all that a provider knows of them is a few kB.
MOST_BYTES = 2**16
View = Callable[..., HttpResponse]


class Refusal(Exception):
    """A request that is not done; ``kind`` is the ``scimType`` where the protocol has one for it."""

    def __init__(self, status: int, detail: str, kind: str = "", **headers: str) -> None:
        super().__init__(detail)
        self.status, self.kind, self.headers = status, kind, headers

    def answer(self) -> HttpResponse:
        told = {"schemas": [ERROR], "status": str(self.status), "detail": str(self)[:1000]}
        made = answer(told | ({"scimType": self.kind} if self.kind else {}), self.status)
        for name, value in self.headers.items():
            made[name.replace("_", "-")] = value
        return made


def answer(document: dict[str, Any], status: int = 200) -> HttpResponse:
    return JsonResponse(document, status=status, content_type=MEDIA_TYPE)


def for_provider(**views: View) -> View:
    """The address with a view for each method; without ``SCIM_TOKEN`` in the settings there is none."""

    @csrf_exempt
    def enter(request: HttpRequest, **where: str) -> HttpResponse:
        if not settings.SCIM_TOKEN:
            raise Http404
        try:
            _check_token(request)
            return _view_of(request, views)(request, **where)
        except (Refusal, BadInput, RequestDataTooBig, rate.TooOften) as error:
            return _refusal(error).answer()

    return enter


def _check_token(request: HttpRequest) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(given.strip(), settings.SCIM_TOKEN):
        raise Refusal(401, "send the lab's SCIM_TOKEN as bearer token", WWW_Authenticate="Bearer")
    rate.count_as("scim")


def _view_of(request: HttpRequest, views: dict[str, View]) -> View:
    method = (request.method or "").lower().replace("head", "get")
    if method not in views:
        allowed = ", ".join(views).upper()
        raise Refusal(405, f"this address has {allowed}", Allow=allowed)
    return views[method]


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, rate.TooOften):
        return Refusal(429, str(error), Retry_After=str(error.seconds))
    if isinstance(error, RequestDataTooBig):
        return Refusal(413, f"a body has at most {MOST_BYTES:,} bytes")
    return Refusal(400, str(error), "invalidSyntax")


def read_object(request: HttpRequest) -> dict[str, Any]:
    """The body, which is one JSON object of a bounded size."""
    if len(request.body) > MOST_BYTES:
        raise RequestDataTooBig
    body = read_json(request)
    if not isinstance(body, dict):
        raise Refusal(400, "the body is no object", "invalidSyntax")
    return body
