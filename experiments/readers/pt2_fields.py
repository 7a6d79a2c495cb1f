"""Fields of an exported program's JSON, or ``BadInput`` that says where and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput


def only_entry(entry: Any, where: str) -> tuple[str, Any]:
    """Key and content of a tagged union: an object of one key."""
    if not isinstance(entry, dict) or len(entry) != 1:
        raise BadInput(f"{entry!r:.80}", where, "an object of one key")
    return next(iter(entry.items()))


def object_at(content: Any, key: str, where: str) -> Mapping[str, Any]:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, dict):
        raise BadInput(f"{key!r} is {value!r:.40}", where, f"an object {key!r}")
    return value


def list_at(content: Any, key: str, where: str) -> list[Any]:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, list):
        raise BadInput(f"{key!r} is {value!r:.40}", where, f"a list {key!r}")
    return value


def text_at(content: Any, key: str, where: str) -> str:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, str) or not value or len(value) > 1000:
        raise BadInput(f"{key!r} is {value!r:.40}", where, f"a name {key!r}")
    return value


def name_of(entry: Any, where: str) -> str:
    return text_at(entry, "name", where)
