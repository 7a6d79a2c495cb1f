"""Requests that no browser sends, drawn from the URLconf, the OpenAPI document and the pages' own forms."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from hypothesis import strategies as st

from tests.webapp.pages_read import Offered, Pairs
from tests.webapp.routes import METHODS, Route

#: What numbers, names and keys are replaced by; as bytes, so that text that is no UTF-8 is among them.
VALUES: tuple[bytes, ...] = (
    b"", b" ", b"0", b"-1", b"1", b"2.5", b"1e999", b"NaN", b"-inf", b"99999999", b"9" * 19, b"9" * 5000,
    b"true", b"null", b"[]", b"{}", b"{", b'{"a": [1, NaN]}', b"[" * 2000, b"\x00", b"a\x00b", b"\xff\xfe",
    b"\xed\xa0\x80", b"\xf0\x9f\x92\xa5", "٣".encode(), "\u202e\u2028".encode(), b"a" * 20_000, b"%00", b"%",
    b"../../etc/passwd", b"' OR 1=1 --", b"<script>", b"{{ 7 }}", b"x\r\ny: z", b"_", b"-name", b"--", b",,,",
    b"00000000-0000-0000-0000-000000000007", b"artifact:1", b"sha256:0", b"package:../x", b"12 GiB", b"0-4",
    b"0-999999999", b"2026-13-45", b"25:99", b"memory/baseline", b"csv", b"latex", b"json", b"trash-",
)  # fmt: skip
#: Parameters that a list has, after its prefix, and some that nothing has.
LISTS = (
    "page",
    "per_page",
    "sort",
    "column",
    "q",
    "export",
    "table",
    "order_by",
    "limit",
    "after",
    "x[]",
    "",
)
PREFIXED = re.compile(r"(\w+-)(?:q|column|page|sort)")
CONTENT_TYPES = (
    "application/x-www-form-urlencoded; charset=utf-16", "application/x-www-form-urlencoded; charset=",
    "application/x-www-form-urlencoded; charset=rot13", "text/plain; charset=undefined",
    "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\xff",
    "multipart/form-data; boundary=" + "b" * 300, "multipart/form-data; boundary=b; charset=utf-16",
    "multipart/mixed; boundary=b", "application/json", "application/json; charset=utf-7", "text/plain", "",
    "/", "application/octet-stream", "image/svg+xml; charset=idna", "application/xml",
)  # fmt: skip
BODIES: tuple[bytes, ...] = (
    b"", b"&", b"=", b"a=%ff%fe&b", b"&".join(b"a=%d" % n for n in range(1100)), b"\x00", b"{", b"null",
    b"[" * 5000, b'{"a": NaN}', b'{"\\ud800": "\\u0000"}', b"9" * 6000, b"--b\r\n\r\n--b--", b"--b--\r\n",
    b'--b\r\nContent-Disposition: form-data; name="files"; filename="a\x00.csv"\r\n\r\nx\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../x"\r\n\r\nx\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\xfe\x00\r\n--b--\r\n',
    b'--b\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name="a"\r\n\r\n*\r\n--b--',
    b"--b\r\n" + b"x" * 20_000, b"\xff\xfen\x00a\x00m\x00e\x00=\x00x\x00", b"name=" + b"x" * 300_000,
)  # fmt: skip
#: None has what the server's parser (h11) refuses: NUL and ends of lines.
HEADERS: tuple[tuple[str, str], ...] = (
    ("range", "bytes=0-"), ("range", "bytes=9-1,-,x"), ("range", "bytes=-99999999999999999999"),
    ("if-modified-since", "yesterday"), ("if-none-match", '"\xff", *,,"'), ("if-match", "*"),
    ("if-unmodified-since", "Thu, 99 Foo 99999 25:61:61 GMT"), ("if-range", '"x'), ("accept", "*/*;q=x,,;"),
    ("accept", "a" * 9000), ("accept-language", "xx-" * 400), ("accept-encoding", "gzip;q=9, *;q=x"),
    ("accept-charset", "utf-16"), ("cookie", "sessionid=\"\\000\\000aaaaaaaaaaaa\"; csrftoken=\"\\000\""),
    ("cookie", "sessionid=" + "x" * 5000), ("cookie", "messages=[[; sessionid=;;=;"), ("cookie", "\xff=\xfe"),
    ("host", "a b"), ("host", "[::1"), ("host", "localhost:99999999"), ("referer", "http://[x"),
    ("origin", "null"), ("origin", "http://[x"), ("hx-request", "true"), ("hx-current-url", "http://[::1"),
    ("hx-current-url", "%ff\xff"), ("hx-prompt-uri-autoencoded", "true"), ("x-forwarded-for", "999.1.1.1, x"),
    ("x-forwarded-host", "evil, x"), ("x-forwarded-proto", "\xff"), ("forwarded", "for=;;"),
    ("x-csrftoken", "x"), ("x-requested-with", "XMLHttpRequest"), ("upload-offset", "\xd9\xa3"),
    ("upload-offset", "-1"), ("upload-offset", "9" * 30), ("content-length", "99999999999"),
    ("content-encoding", "gzip"), ("transfer-encoding", "chunked"), ("expect", "x"),
    ("authorization", "Bearer"), ("authorization", "Bearer lab_\xff"), ("authorization", "Basic !!!"),
    ("authorization", "Bearer " + "x" * 5000), ("user-agent", "\xff" * 400), ("user-agent", "x" * 3000),
    ("x-http-method-override", "DELETE"), ("upgrade", "websocket"),
)  # fmt: skip
MORE_METHODS = ("trace", "connect", "propfind", "x")


@dataclass(frozen=True)
class MadeUp:
    """One request: ``path`` is percent-encoded ASCII, ``actor`` says who sends it."""

    actor: str
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    content_type: str
    body: bytes

    def __str__(self) -> str:
        shown = f"{self.method} {self.path:.200}?{self.query:.300} by {self.actor}, {self.headers!r:.300}"
        return f"{shown}, {self.content_type!r:.100}: {self.body[:300]!r}"


def requests(
    known: list[Route],
    values: Mapping[str, Any],
    offers: list[Offered],
    operations: Mapping[str, list[str]],
    bodies: Mapping[str, Any],
    actors: tuple[str, ...],
) -> st.SearchStrategy[MadeUp]:
    """Requests to ``known`` routes, to forms and links that pages offer and to API ``operations`` (parameters
    by route), whose JSON ``bodies`` are good before one place in them is replaced.
    """
    names = sorted({name for one in offers for name, _ in one.fields} | set(LISTS))

    @st.composite
    def draw_one(draw: st.DrawFn) -> MadeUp:
        route = draw(st.sampled_from(known))
        path = draw(_paths(route, values))
        own = operations.get("/" + route.pattern, [])
        pairs = draw(_pairs([(name, "1") for name in own], names))
        method = draw(st.sampled_from((*METHODS, "get", "get", "post", "post", "post", *MORE_METHODS)))
        content_type, body = draw(_content(offers, bodies, path, names)) if method != "get" else ("", b"")
        return MadeUp(
            draw(st.sampled_from(actors)), method, path, _encoded(pairs), draw(_headers()), content_type, body
        )

    @st.composite
    def draw_offered(draw: st.DrawFn) -> MadeUp:
        offer = draw(st.sampled_from(offers))
        pairs = draw(_pairs(offer.fields, names))
        is_query = offer.method == "get"
        content = ("", b"") if is_query else draw(st.sampled_from((_form(pairs), _multipart(pairs))))
        path = urlsplit(offer.address).path
        query = _encoded(pairs) if is_query else ""
        actor = draw(st.sampled_from(actors))
        return MadeUp(actor, offer.method, path, query, draw(_headers()), *content)

    @st.composite
    def draw_list(draw: st.DrawFn) -> MadeUp:
        """A list that is asked to sort, turn, search or leave in ways that it does not know."""
        path = quote(draw(st.sampled_from(pages)).address(values))
        asked = draw(st.lists(st.tuples(st.sampled_from(lists), _values()), min_size=1, max_size=3))
        actor = draw(st.sampled_from(actors))
        return MadeUp(actor, "get", path, _encoded(asked), draw(_headers()), "", b"")

    prefixes = {"", *(found[1] for name in names if (found := PREFIXED.fullmatch(name)))}
    lists = sorted(f"{prefix}{name}".encode() for prefix in prefixes for name in LISTS)
    pages = [route for route in known if "<slug:team>" in route.pattern]
    return st.one_of(draw_one(), draw_offered(), draw_list())


@st.composite
def _paths(draw: st.DrawFn, route: Route, values: Mapping[str, Any]) -> str:
    """Mostly what exists, sometimes a value that nothing has in one place of it."""
    if not route.parts or draw(st.integers(0, 3)):
        return quote(route.address(values))
    mark = "\x01"
    path = route.address({**values, draw(st.sampled_from(route.parts)): mark})
    return quote(path).replace(quote(mark), quote(draw(_values()), safe="/"))


def _values() -> st.SearchStrategy[bytes]:
    return st.sampled_from(VALUES) | st.binary(max_size=12) | st.text(max_size=8).map(_bytes)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@st.composite
def _pairs(draw: st.DrawFn, given: Pairs, names: list[str]) -> list[tuple[bytes, bytes]]:
    """The fields as they are, some with another value, left out or twice, and some more."""
    made = [(_bytes(name), _bytes(value)) for name, value in given]
    for _ in range(draw(st.integers(0, 2)) if made else 0):
        place = draw(st.integers(0, len(made) - 1))
        how = draw(st.sampled_from(("replace", "replace", "twice", "leave out")))
        name = made[place][0]
        made[place : place + 1] = {
            "replace": [(name, draw(_values()))],
            "twice": [made[place], (name, draw(_values()))],
            "leave out": [],
        }[how]
        if not made:
            break
    for _ in range(draw(st.integers(0, 2))):
        made.append((_bytes(draw(st.sampled_from(names))), draw(_values())))
    return made


def _encoded(pairs: list[tuple[bytes, bytes]]) -> str:
    return urlencode(pairs)


def _form(pairs: list[tuple[bytes, bytes]]) -> tuple[str, bytes]:
    return "application/x-www-form-urlencoded", _encoded(pairs).encode()


def _multipart(pairs: list[tuple[bytes, bytes]]) -> tuple[str, bytes]:
    """Fields as they are, those of files as files."""
    parts = []
    for name, value in pairs:
        file = b'; filename="a.csv"' if name in (b"files", b"file") else b""
        parts.append(
            b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name, file, value)
        )
    return "multipart/form-data; boundary=b", b"".join(parts) + b"--b--\r\n"


@st.composite
def _content(
    draw: st.DrawFn, offers: list[Offered], bodies: Mapping[str, Any], path: str, names: list[str]
) -> tuple[str, bytes]:
    """A body: of any kind, JSON with something wrong in it, or a form that some page offers there."""
    kind = draw(st.sampled_from(("any", "json", "form")))
    if kind == "any":
        return draw(st.sampled_from(CONTENT_TYPES)), draw(st.sampled_from(BODIES) | st.binary(max_size=40))
    if kind == "json":
        good = bodies.get(path) or draw(st.sampled_from(sorted(bodies.values(), key=str)))
        return "application/json", json.dumps(draw(_spoilt(good))).encode()
    same = [offer.fields for offer in offers if offer.address == path] or [[]]
    pairs = draw(_pairs(draw(st.sampled_from(same)), names))
    return draw(st.sampled_from((_form(pairs), _multipart(pairs))))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _spoilt(draw: st.DrawFn, good: Any) -> Any:
    """Another value, or two, in any place of a good body."""
    for _ in range(draw(st.integers(0, 2))):
        good = replaced(good, draw(st.sampled_from(places(good))), draw(JSON_VALUES))
    return good


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in items for place in places(child, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """``value`` with ``new`` at a place of it."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def _headers() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return st.lists(st.sampled_from(HEADERS), max_size=2).map(tuple)
