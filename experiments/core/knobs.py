"""Knobs: the typed, bounded, documented fields of a policy. They give the web form, the JSON and the
identity.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput


def knob(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unit: str = "",
    words: bool = False,
) -> Any:
    """A dataclass field with its bounds (inclusive), choices, unit and meaning.

    ``words``: the value is itself a list, of words with commas between them.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": choices, "unit": unit, "words": words}
    return dataclasses.field(default=default, metadata=metadata)


#: What the help of an open knob ends in, and what forms show instead of a default.
LEFT_OPEN = "from the model and the cluster"


def open_knob(help: str, **limits: Any) -> Any:
    """Declare a knob that a spec may leave open (``None``): its policy then settles it for the workload.

    ``limits`` are those of ``knob``.
    """
    return knob(None, f"{help}; empty: {LEFT_OPEN}", **limits)


def fixed_knob(value: Any) -> Any:
    """Declare a knob of the base class that a preset sets once and for all; nobody is asked for it."""
    return dataclasses.field(default=value, init=False)


@dataclasses.dataclass(frozen=True)
class Knob:
    """One knob as forms, tables and the command line show it. ``type`` is bool, int, float or str."""

    name: str
    type: str
    optional: bool
    default: Any
    help: str
    low: float | None
    high: float | None
    choices: tuple[Any, ...] | None
    unit: str
    words: bool = False

    @property
    def is_open(self) -> bool:
        """Whether its policy settles it where a spec says nothing."""
        return self.default is None and self.help.endswith(LEFT_OPEN)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _plain_type(annotation: Any) -> tuple[type, bool]:
    """``int | None`` -> ``(int, True)``; ``float`` -> ``(float, False)``."""
    if isinstance(annotation, types.UnionType):
        inner = [a for a in annotation.__args__ if a is not type(None)]
        return inner[0], True
    return annotation, False


def describe(cls: type) -> tuple[Knob, ...]:
    """Return the knobs of a frozen dataclass in the order declared, without ``fixed_knob`` ones.

    Any other field is an error.
    """
    return _describe(cls)


@functools.cache
def _describe(cls: type) -> tuple[Knob, ...]:
    annotations = typing.get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        kind, optional = _plain_type(annotations[field.name])
        if "help" not in field.metadata or kind not in (bool, int, float, str):
            raise TypeError(
                f"{cls.__name__}.{field.name} is not a knob (use core.knobs.knob; bool, int, float or str)"
            )
        found.append(Knob(field.name, kind.__name__, optional, field.default, **field.metadata))
    return tuple(found)


def load(cls: type, given: Mapping[str, Any], where: str) -> Any:
    """``cls(**given)`` after strict checks. ``BadInput`` names the field, its value and what was expected."""
    known = {k.name: k for k in describe(cls)}
    for name in given:
        if name not in known:
            names = ", ".join(known) or "no fields"
            raise BadInput(f"unknown field {name!r} = {given[name]!r}", where, names)
    return cls(**{name: check(known[name], value, f"{where}.{name}") for name, value in given.items()})


def dump(instance: Any) -> dict[str, Any]:
    """All knobs of ``instance`` with their values, defaults included, each in its declared type.

    A default of 25 * 2**20 of a float is written as the float that loading it again gives.
    """
    return {k.name: _as_declared(k, getattr(instance, k.name)) for k in describe(type(instance))}


def check(knob: Knob, value: Any, where: str) -> Any:
    """``value`` in the knob's type, or ``BadInput``."""
    if value is None and knob.optional:
        return None
    value = _convert(knob, value, where)
    if knob.choices is not None and value not in knob.choices:
        raise BadInput(f"{value!r} is not a choice", where, "one of " + ", ".join(map(str, knob.choices)))
    if knob.low is not None and value < knob.low:
        raise BadInput(f"{value!r} is too small", where, f"at least {knob.low}")
    if knob.high is not None and value > knob.high:
        raise BadInput(f"{value!r} is too large", where, f"at most {knob.high}")
    return value


def _as_declared(knob: Knob, value: Any) -> Any:
    return None if value is None else _convert(knob, value, knob.name)


def _convert(knob: Knob, value: Any, where: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if knob.type == "float" and is_number and math.isfinite(value):
        return float(value)
    if knob.type == "int" and is_number and float(value).is_integer():
        return int(value)
    if knob.type == "bool" and isinstance(value, bool):
        return value
    if knob.type == "str" and isinstance(value, str):
        return value
    raise BadInput(
        f"{value!r} has the wrong type", where, f"a {'finite ' if knob.type == 'float' else ''}{knob.type}"
    )
