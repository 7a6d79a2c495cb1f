"""What a page offers: its forms with their fields as they are, and the parameters of its links."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urljoin, urlsplit

Pairs = list[tuple[str, str]]


@dataclass
class Offered:
    """A form or a link: what is sent where it is followed as it stands."""

    method: str
    address: str
    fields: Pairs = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.found: list[Offered] = []
        self._form: Offered | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form":
            self._form = Offered(given.get("method", "get").lower(), self._absolute(given.get("action", "")))
            self.found.append(self._form)
        elif tag == "a" and "href" in given:
            self._follow(given["href"], "get")
        elif tag == "select":
            self._select = given.get("name", "")
        elif tag == "option" and self._select and self._form:
            self._form.fields.append((self._select, given.get("value", "")))
        elif given.get("name") and self._form and tag in ("input", "button", "textarea"):
            self._form.fields.append((given["name"], given.get("value", "")))
        for method in ("get", "post"):
            if f"hx-{method}" in given:
                self._follow(given[f"hx-{method}"], method)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._select = ""

    def _absolute(self, address: str) -> str:
        return urljoin(self.address, address)

    def _follow(self, address: str, method: str) -> None:
        parts = urlsplit(self._absolute(address))
        if not parts.netloc:
            self.found.append(Offered(method, parts.path, parse_qsl(parts.query, keep_blank_values=True)))


def offered_by(page: str, address: str) -> list[Offered]:
    """Every form and link of the page that leads to an address of the same server."""
    reader = _Reader(address)
    reader.feed(page)
    return reader.found
