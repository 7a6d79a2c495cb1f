"""Frozen dataclasses from their JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from experiments.core.errors import BadInput

T = TypeVar("T")


def load_record(kind: type[T], row: Mapping[str, Any], where: str) -> T:
    """Return a ``kind`` with these fields, lists as tuples.

    ``BadInput`` names the field that does not belong.
    """
    try:
        return kind(**{name: frozen(value) for name, value in row.items()})
    except TypeError as error:
        message = str(error).replace("__init__()", "")
        raise BadInput(message, where, f"the fields of {kind.__name__}") from None


def frozen(value: Any) -> Any:
    """Return ``value`` with lists as tuples, at every depth."""
    return tuple(frozen(part) for part in value) if isinstance(value, list | tuple) else value
