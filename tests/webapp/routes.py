"""Every address that the URLconf has, made from the resolver: a new page is walked without being named."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
#: A part of an address that a converter reads: ``<uuid:run>`` or ``<slug>``.
PART = re.compile(r"<(?:(?P<converter>\w+):)?(?P<name>\w+)>")


@dataclass(frozen=True)
class Route:
    """``pattern`` as the URLconf spells it (``t/<slug:team>/``) and its whole name (``runs:run``)."""

    pattern: str
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of what stands in its address."""
        return tuple(found["name"] for found in PART.finditer(self.pattern))

    def address(self, values: Mapping[str, Any]) -> str:
        """Its address with these values; what has none gets one of its kind that nothing has.

        ``int:token`` is another value than the ``token`` that is text.
        """

        def fill(found: re.Match[str]) -> str:
            kind = found["converter"] or "str"
            value = values.get(f"{kind}:{found['name']}", values.get(found["name"]))
            return NOTHING[kind] if value is None else str(value)

        return "/" + PART.sub(fill, self.pattern)


NOBODYS = str(uuid.UUID(int=7))
NOTHING = {"int": "1", "uuid": NOBODYS, "uuidstr": NOBODYS, "slug": "x", "str": "x", "path": "x"}


def routes() -> list[Route]:
    """Every leaf of the URLconf."""
    return list(_leaves(get_resolver(), "", ""))


def _leaves(resolver: URLResolver, prefix: str, namespace: str) -> Iterator[Route]:
    for entry in resolver.url_patterns:
        pattern = prefix + str(entry.pattern).removeprefix("^")
        if isinstance(entry, URLResolver):
            inside = f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            yield from _leaves(entry, pattern, inside)
        elif isinstance(entry, URLPattern):
            yield Route(pattern, namespace + (entry.name or ""))
