"""The names that a search may use, and the values that it may compare them with."""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db.models import JSONField

from experiments.core import knobs, registry
from experiments.core.metrics import METRICS
from experiments.core.options import WorkloadOptions
from webapp.history.search.tree import Field, Value
from webapp.runs.models import LONGEST_METRIC

#: Columns of a run, by the name in a search: where they stand, and what they are.
COLUMNS: dict[str, tuple[str, str]] = {
    "policy": ("policy", "text"),
    "family": ("family", "text"),
    "mode": ("mode", "text"),
    "state": ("state", "text"),
    "hardware": ("hardware", "text"),
    "artifact": ("artifact__name", "text"),
    "experiment": ("experiment__name", "text"),
    "host": ("host__name", "text"),
    "by": ("owner__username", "text"),
    "note": ("note__text", "text"),
    "seed": ("seed", "number"),
    "time": ("queued_at", "moment"),
}
#: What a number may be followed by, in SI.
UNITS: dict[str, float] = {
    **{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    **{"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
    **{"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    "%": 0.01,
}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
#: Names that would mean something else as a key of a JSON column.
UNSAFE = re.compile(r"[^A-Za-z0-9_]|__|^_|_$")
UNSAFE_PARAM = re.compile(r"[^A-Za-z0-9_.-]|__|^_|_$")
LOOKUPS = frozenset(JSONField.get_class_lookups())


@dataclass(frozen=True)
class Unknown(Exception):
    """A name that nothing has; ``near`` are those that look alike."""

    name: str
    near: tuple[str, ...]


def _is_key(name: str) -> bool:
    return not UNSAFE.search(name) and name not in LOOKUPS


@functools.cache
def knob_names() -> frozenset[str]:
    found = {knob.name for policy in registry.all_policies() for knob in knobs.describe(policy)}
    return frozenset(name for name in found if _is_key(name))


@functools.cache
def option_names() -> frozenset[str]:
    return frozenset(knob.name for knob in knobs.describe(WorkloadOptions) if _is_key(knob.name))


@functools.cache
def all_names() -> tuple[str, ...]:
    """As completion offers them, columns first."""
    own = [f"knob.{name}" for name in sorted(knob_names())]
    return (*COLUMNS, "tag", *sorted(METRICS), *own, *(f"option.{name}" for name in sorted(option_names())))


def field_of(text: str, at: int = 0) -> Field:
    """The field of that name; raises ``Unknown``."""
    kind, _, name = text.partition(".")
    known = {"metric": METRICS, "knob": knob_names(), "option": option_names()}
    if name and kind in known and name in known[kind]:
        return Field(kind, name, at)
    if name and kind == "metric" and len(name) <= LONGEST_METRIC:
        return Field("metric", name, at)  # a figure that somebody's own program named so
    if name and kind == "param" and not UNSAFE_PARAM.search(name) and name not in LOOKUPS:
        return Field("param", name, at)
    if text in COLUMNS:
        return Field("column", text, at)
    if text == "tag":
        return Field("tag", text, at)
    if text in METRICS:
        return Field("metric", text, at)
    raise Unknown(text, tuple(difflib.get_close_matches(text, all_names(), 3)))


def type_of(field: Field) -> str:
    """``text``, ``number``, ``moment``, or ``any`` of what a JSON document holds."""
    if field.kind == "column":
        return COLUMNS[field.name][1]
    return {"metric": "number", "tag": "text"}.get(field.kind, "any")


def number_of(text: str) -> float | None:
    """A number with or without a unit; ``None`` for anything else."""
    found = NUMBER.match(text)
    if found is None:
        return None
    unit = text[found.end() :].strip()
    if unit and unit not in UNITS:
        return None
    value = float(found[0]) * UNITS.get(unit, 1.0)
    return value if abs(value) < 1e300 else None


def value_of(field: Field, text: str) -> Value:
    """``text`` as ``field`` has it; raises ``ValueError`` with what would be right."""
    kind, number = type_of(field), number_of(text)
    if kind == "number":
        if number is None:
            raise ValueError(f"a number for {field}, with a unit where it has one ({', '.join(UNITS)})")
        return number
    if kind == "moment":
        return moment_of(text).isoformat()
    if kind == "any" and number is not None:
        return number
    return text


def moment_of(text: str) -> datetime:
    """A day or a moment of UTC; raises ``ValueError``."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a day or a moment, 2026-11-27 or 2026-11-27T14:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
