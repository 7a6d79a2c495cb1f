"""The one gate for JSON from outside: strict syntax, bounded, and no text that Postgres cannot keep."""

from __future__ import annotations

import re
from types import UnionType
from typing import Any

from django.http import HttpRequest
from django.http.request import RawPostDataException

from experiments.core import jsonio
from experiments.core.errors import BadInput

#: NUL, which Postgres cannot store, and lone surrogates, which are no text.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def read_json(request: HttpRequest) -> Any:
    """The body as JSON. ``BadInput`` names the position, or the field and its value."""
    value = jsonio.loads(read_body(request), "body")
    check_storable(value)
    return value


def read_fields(request: HttpRequest, **kinds: type) -> dict[str, Any]:
    """The body's fields, all of them there and of these kinds, and no others."""
    body = read_given(request, **kinds)
    for name, kind in kinds.items():
        _check_kind(name, body.get(name), kind)
    return body


def read_given(request: HttpRequest, **kinds: type | UnionType) -> dict[str, Any]:
    """Those of the fields that are in the body, of these kinds, and no others."""
    body = read_json(request)
    if not isinstance(body, dict):
        raise BadInput("not an object", "body", ", ".join(kinds))
    for name, found in body.items():
        if name not in kinds:
            raise BadInput(f"unknown field {name!r:.80}", name[:80], ", ".join(kinds))
        _check_kind(name, found, kinds[name])
    return body


def _check_kind(name: str, found: Any, kind: type | UnionType) -> None:
    if not isinstance(found, kind) or isinstance(found, bool) is not (kind is bool):
        expected = kind.__name__ if isinstance(kind, type) else str(kind)
        raise BadInput(f"{found!r:.80} is not what {name} is", name, expected)


def check_length(text: str, name: str, longest: int, least: int = 0) -> str:
    """``text`` without blanks around it; ``BadInput`` where it is longer, or too little is left."""
    if not least <= len(text.strip()) or len(text) > longest:
        raise BadInput(f"{name} has {len(text)} characters", name, f"{least} to {longest}")
    return text.strip()


def read_body(request: HttpRequest) -> bytes:
    """The bytes of the body; ``BadInput`` where they were read as a form."""
    try:
        return request.body
    except RawPostDataException:
        raise BadInput("a form", "body", "JSON") from None


def check_storable(value: Any, where: str = "") -> None:
    """``BadInput`` for text that Postgres cannot keep, wherever it stands in ``value``.

    Iterative: what is nested deeply has been refused already, but costs nothing to be safe from.
    """
    todo: list[tuple[str, Any]] = [(where, value)]
    while todo:
        where, item = todo.pop()
        if isinstance(item, str):
            _check_text(item, where or "body")
        elif isinstance(item, dict):
            for key, child in item.items():
                _check_text(key, where or "body")
                todo.append((f"{where}.{key}".lstrip("."), child))
        elif isinstance(item, list):
            todo.extend((f"{where}[{index}]", child) for index, child in enumerate(item))


def _check_text(text: str, where: str) -> None:
    if _UNSTORABLE.search(text):
        raise BadInput(
            f"{text!a:.80} holds NUL or half a character", where, "text without U+0000 and U+D800-DFFF"
        )


def value_at(body: Any, where: str | None) -> Any:
    """What stands at ``knobs.lookahead`` or ``runs[3].policy`` in the body; ``None`` where nothing does.

    Where the way ends early in a plain value, that value: ``hardware.device`` of ``{"hardware": "a100"}``.
    """
    found = body
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", where or ""):
        if isinstance(found, dict) and name:
            found = found.get(name)
        elif isinstance(found, list) and index and int(index) < len(found):
            found = found[int(index)]
        else:
            return None if isinstance(found, dict | list) else found
    return found
