"""Strict JSON in, canonical JSON out: no NaN, no duplicate keys, no surprises in the hash."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from experiments.core.errors import BadInput

MAX_DEPTH = 64


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} appears twice")
    return out


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError(f"integer of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value


_STRICT: dict[str, Any] = {
    "object_pairs_hook": _unique,
    "parse_constant": _no_constant,
    "parse_int": _integer,
    "parse_float": _number,
}


def loads(text: str | bytes, where: str) -> Any:
    """Parse JSON; ``BadInput`` names ``where`` and the position.

    Refuses NaN, Infinity, duplicate keys, depth > 64, and text that no database takes (NUL, lone surrogates).
    """
    if isinstance(text, bytes):
        text = _decode(text, where)
    try:
        value = json.loads(text, **_STRICT)
    except RecursionError:
        raise BadInput("nested too deeply", where, f"at most {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise BadInput(f"not valid JSON: {error}", where, "a JSON document") from None
    refuse_odd(value, "\\u" in text, where)
    return value


def decoder() -> json.JSONDecoder:
    """Return a decoder as strict as ``loads``, for values inside a longer text (``raw_decode``)."""
    return json.JSONDecoder(**_STRICT)


def refuse_odd(value: Any, is_escaped: bool, where: str) -> None:
    """Raise ``BadInput`` for what is nested too deeply or holds text that no database takes.

    ``is_escaped``: whether its text has an escape by number, which alone can spell such text.
    """
    if depth(value) > MAX_DEPTH:
        raise BadInput("nested too deeply", where, f"at most {MAX_DEPTH} levels")
    if is_escaped:
        _refuse_unstorable(value, where)


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"byte 0x{data[error.start]:02x} at offset {error.start} is not UTF-8"
        raise BadInput(what, where, "a JSON document in UTF-8") from None


def _refuse_unstorable(value: Any, where: str) -> None:
    """NUL and lone surrogates can be spelled as escapes only."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo.extend([*item.keys(), *item.values()])
        elif isinstance(item, list):
            todo.extend(item)
        elif isinstance(item, str) and ("\0" in item or any("\ud800" <= c <= "\udfff" for c in item)):
            raise BadInput(f"a NUL or lone surrogate in {item[:40]!r}", where, "plain Unicode text")


def depth(value: Any) -> int:
    """Nesting depth of a JSON value: 0 for a scalar. Level by level, so that none exhausts the stack."""
    levels, level = 0, [value] if isinstance(value, dict | list) else []
    while level:
        levels += 1
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
    return levels


def canonical(value: Any) -> str:
    """Return the one spelling of a JSON value: sorted keys, no spaces, UTF-8.

    NaN and Infinity raise ``ValueError``.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical spelling, as 64 hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
