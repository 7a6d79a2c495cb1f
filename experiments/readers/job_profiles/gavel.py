"""Gavel's tables of speeds: JSON by device type, model with its number of devices, and who shares them.

A type called ``v100_unconsolidated`` holds the speeds on several servers. Entries are steps per second: of
the model alone under ``null``, of both under the name of the other.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core import jsonio
from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.device_speeds import DeviceSpeeds, SpeedsOfType, Variant

SPREAD = "_unconsolidated"
ALONE = "null"
MAX_BYTES = 1 << 27
MAX_SPEED = 1e12
#: What the first bytes of a table hold.
_MARKS = (b"('", b'"null"')


def _recognizes(members: Sequence[Member]) -> bool:
    head = members[0].data[:4096].lstrip() if len(members) == 1 else b""
    return head.startswith(b"{") and all(mark in head for mark in _MARKS)


def _read(members: Sequence[Member], name: str) -> DeviceSpeeds:
    (member,) = members
    if len(member.data) > MAX_BYTES:
        raise BadInput(f"{len(member.data)} bytes", member.name, f"at most {MAX_BYTES}")
    table = _object(jsonio.loads(member.data, member.name), member.name, "a device type with its models")
    compact, spread = dict[str, SpeedsOfType](), dict[str, SpeedsOfType]()
    for kind, models in table.items():
        where = f"{member.name}: {kind}"
        speeds = _speeds_of_type(_object(models, where, "models with their speeds"), where)
        (spread if kind.endswith(SPREAD) else compact)[kind.removesuffix(SPREAD)] = speeds
    if not compact:
        raise BadInput("no device type", member.name, "speeds on one type or more")
    return DeviceSpeeds(name, compact, spread)


def _speeds_of_type(models: Mapping[str, Any], where: str) -> SpeedsOfType:
    alone = dict[Variant, float]()
    together = dict[tuple[Variant, Variant], tuple[float, float]]()
    for text, entries in models.items():
        variant, place = _variant(text, where), f"{where}: {text}"
        entries = _object(entries, place, "null and the models beside it, with speeds")
        if ALONE not in entries:
            raise BadInput("no speed alone", place, "an entry null")
        for other, value in entries.items():
            at = f"{place}: {other}"
            if other == ALONE:
                alone[variant] = _speed(value, at)
            else:
                together[variant, _variant(other, place)] = _both(value, at)
    return SpeedsOfType(alone, together)


def _object(value: Any, where: str, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not value:
        raise BadInput("is not an object with entries", where, expected)
    return value


def _variant(text: str, where: str) -> Variant:
    """``('ResNet-50 (batch size 64)', 2)`` as a name and a number."""
    found = _value_of(text) if len(text) <= 500 else None
    if not (
        isinstance(found, tuple)
        and len(found) == 2
        and isinstance(found[0], str)
        and isinstance(found[1], int)
        and not isinstance(found[1], bool)
        and 1 <= found[1] <= 10**6
    ):
        raise BadInput(f"{text!r:.60} is no model", where, "('model', number of devices)")
    return found[0], found[1]


@functools.lru_cache(maxsize=4096)
def _value_of(text: str) -> Any:
    """The literal that a name is, which stands in a table once for each model it may share devices with."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _speed(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SPEED:
        raise BadInput(f"{value!r:.60} is no speed", where, f"0 to {MAX_SPEED:g} steps per second")
    return float(value)


def _both(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput(f"{value!r:.60} are no speeds of two", where, "a list of two speeds")
    return _speed(value[0], where), _speed(value[1], where)


PROFILES = ProfileReader(
    "gavel",
    "Gavel's JSON of speeds by device type, model and who shares the devices",
    _recognizes,
    _read,
)
