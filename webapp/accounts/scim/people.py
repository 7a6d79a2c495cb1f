"""People as the identity provider knows them: found by its names for them, and told to it.

Who signed in through the provider has the names that it said then (what is typed to sign in, the address,
the number); anybody else is known by the name of their account here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from webapp.accounts.identity import provider
from webapp.accounts.models import User
from webapp.accounts.scim.activity import USER
from webapp.accounts.scim.gate import Refusal
from webapp.settings.saml import EMAILS, USERNAMES

LONGEST_FILTER = 1000
#: The one kind of filter by which providers look somebody up: ``userName eq "grace@example.org"``.
_FILTER = re.compile(r'\s*(\S+|emails\[type eq "work"\]\.value)\s+eq\s+("(?:[^"\\]|\\.)*")\s*', re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """What the provider calls somebody: ``names`` with the one that is typed to sign in first, addresses,
    and numbers. ``of_provider`` says whether they signed in through it.
    """

    names: tuple[str, ...]
    emails: tuple[str, ...]
    numbers: tuple[str, ...]
    of_provider: bool


#: What each attribute of a filter is compared with; only numbers are told apart by case.
ATTRIBUTES: Mapping[str, Callable[[Names], Iterable[str]]] = {
    "username": lambda of: map(str.casefold, of.names),
    "emails.value": lambda of: map(str.casefold, of.emails),
    'emails[type eq "work"].value': lambda of: map(str.casefold, of.emails),
    "externalid": lambda of: of.numbers,
}


def everybody() -> QuerySet[User]:
    return User.objects.prefetch_related("socialaccount_set").order_by("pk")


def find(told: str) -> QuerySet[User]:
    """Those whom the filter names. An account with a password is not meant where the provider's own person
    has that name too (decision 0189: they are two).
    """
    attribute, wanted = _read_filter(told)
    values = ATTRIBUTES[attribute]
    known = [(user.pk, names_of(user)) for user in everybody()]
    found = [(pk, names) for pk, names in known if wanted in values(names)]
    own = [pk for pk, names in found if names.of_provider]
    return everybody().filter(pk__in=own or [pk for pk, _ in found])


def _read_filter(told: str) -> tuple[str, str]:
    """The attribute and the value, folded as it is compared."""
    read = _FILTER.fullmatch(told) if len(told) <= LONGEST_FILTER else None
    attribute = read[1].lower().removeprefix(f"{USER.lower()}:") if read else ""
    if read is None or attribute not in ATTRIBUTES:
        raise Refusal(400, 'filters are userName, emails.value or externalId eq "..."', "invalidFilter")
    try:
        value = str(json.loads(read[2]))
    except ValueError:
        raise Refusal(400, "the filter's value is no JSON string", "invalidFilter") from None
    return attribute, value if attribute == "externalid" else value.casefold()


def names_of(user: User) -> Names:
    accounts = user.socialaccount_set.all()  # type: ignore[attr-defined]  # allauth's relation
    said = [one for account in accounts for one in _answers(account.extra_data)]
    emails = [*_values(said, ("email", *EMAILS)), user.email]
    numbers = [account.uid for account in accounts]
    own = () if accounts else (user.username,)
    names = [*own, *_values(said, _username_keys()), *emails, *numbers]
    return Names(_distinct(names), _distinct(emails), _distinct(numbers), bool(accounts))


def _username_keys() -> tuple[str, ...]:
    """Where providers put the name that is typed to sign in: a setting's, OpenID Connect's, SAML's."""
    mapping = provider().get("settings", {}).get("attribute_mapping", {})
    return (*mapping.get("username", ()), "preferred_username", "upn", *USERNAMES)


def _answers(told: Any) -> Iterator[dict[str, Any]]:
    """The provider's answers of the last sign-in, as they are kept for either protocol."""
    if isinstance(told, dict):
        yield from (
            one for one in (told.get("userinfo"), told.get("id_token"), told) if isinstance(one, dict)
        )


def _values(said: Iterable[dict[str, Any]], keys: Iterable[str]) -> list[str]:
    """What stands under these keys; SAML has lists there."""
    return [value for one in said for key in keys for value in _texts(one.get(key))]


def _texts(value: Any) -> list[str]:
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, str)]


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name)


def describe(user: User, location: str) -> dict[str, Any]:
    """The person as a SCIM resource; ``displayName`` is the name of the account here."""
    known = names_of(user)
    told: dict[str, Any] = {
        "schemas": [USER],
        "id": str(user.pk),
        "userName": known.names[0],
        "displayName": user.username,
        "name": {"givenName": user.first_name, "familyName": user.last_name},
        "emails": [{"value": one, "type": "work", "primary": one == known.emails[0]} for one in known.emails],
        "active": user.is_active,
        "meta": {"resourceType": "User", "created": user.date_joined.isoformat(), "location": location},
    }
    return told | ({"externalId": known.numbers[0]} if known.numbers else {})
