"""What the identity provider asks and changes."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from webapp.accounts.models import User
from webapp.accounts.scim import activity, services
from webapp.accounts.scim.gate import Refusal, answer, read_object
from webapp.accounts.scim.people import describe, everybody, find

LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
CONFIG = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
MOST_PER_PAGE = 200
NO_CREATION = (
    "people are not made over SCIM: they get an account here when they first sign in through the identity "
    "provider, or by an invitation of their team's"
)


def config(request: HttpRequest) -> HttpResponse:
    """What of SCIM there is."""
    absent = {"supported": False}
    bearer = {"type": "oauthbearertoken", "name": "Bearer token", "description": "the lab's SCIM_TOKEN"}
    return answer(
        {
            "schemas": [CONFIG],
            "patch": {"supported": True},
            "filter": {"supported": True, "maxResults": MOST_PER_PAGE},
            "bulk": absent | {"maxOperations": 0, "maxPayloadSize": 0},
            **dict.fromkeys(("changePassword", "sort", "etag"), absent),
            "authenticationSchemes": [bearer],
            "meta": {"resourceType": "ServiceProviderConfig", "location": request.build_absolute_uri()},
        }
    )


def people(request: HttpRequest) -> HttpResponse:
    """Everybody by pages, or those whom the filter names."""
    told = request.GET.get("filter")
    rows = everybody() if told is None else find(told)
    return answer(_page(request, rows))


def refuse_creation(request: HttpRequest) -> HttpResponse:
    raise Refusal(403, NO_CREATION)


def groups(request: HttpRequest) -> HttpResponse:
    """None: Okta asks for them before it asks for people."""
    return answer(_page(request, User.objects.none()))


def person(request: HttpRequest, person: str) -> HttpResponse:
    return answer(_resource(request, _find(person)))


def patch(request: HttpRequest, person: str) -> HttpResponse:
    return _change(request, _find(person), activity.asked_by_patch(read_object(request)))


def put(request: HttpRequest, person: str) -> HttpResponse:
    return _change(request, _find(person), activity.asked_by_put(read_object(request)))


def delete(request: HttpRequest, person: str) -> HttpResponse:
    """Deactivates; the row stays, since runs name it."""
    services.deactivate(_find(person))
    return HttpResponse(status=204)


def _change(request: HttpRequest, found: User, active: bool | None) -> HttpResponse:
    if active is not None:
        (services.reactivate if active else services.deactivate)(found)
    return answer(_resource(request, found))


def _find(person: str) -> User:
    is_number = person.isascii() and person.isdigit() and len(person) <= 18
    found = everybody().filter(pk=int(person)).first() if is_number else None
    if found is None:
        raise Refusal(404, f"there is nobody with the id {person!r:.80}")
    return found


def _resource(request: HttpRequest, found: User) -> dict[str, Any]:
    return describe(found, request.build_absolute_uri(reverse("scim_person", args=[found.pk])))


def _page(request: HttpRequest, rows: QuerySet[User]) -> dict[str, Any]:
    start = max(1, _number(request, "startIndex", 1))
    count = min(max(0, _number(request, "count", MOST_PER_PAGE)), MOST_PER_PAGE)
    page = [_resource(request, one) for one in rows[start - 1 : start - 1 + count]]
    return {
        "schemas": [LIST],
        "totalResults": rows.count(),
        "startIndex": start,
        "itemsPerPage": len(page),
        "Resources": page,
    }


def _number(request: HttpRequest, name: str, default: int) -> int:
    told = request.GET.get(name, "").strip() or str(default)
    if not told.removeprefix("-").isascii() or not told.removeprefix("-").isdigit() or len(told) > 9:
        raise Refusal(400, f"{name} is {told!r:.80}: a number", "invalidValue")
    return int(told)
