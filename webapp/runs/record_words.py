"""Records of a plan in words: figures in their unit, devices by node; the exact value on hover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core.units import human
from webapp.runs.plan_names import add_meaning
from webapp.runs.plan_words import unit_of

#: Columns in seconds.
SECONDS = ("start", "end", "arrival", "admitted", "first_token", "last_token", "answered")


def in_record_words(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: _in_words(name, value) for name, value in row.items()}


def _in_words(name: str, value: Any) -> Any:
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    unit = "s" if name in SECONDS else unit_of(name)
    if unit and is_figure:
        return add_meaning(human(value, unit), f"{value!r} {unit}", value)
    if name == "devices_by_node" and isinstance(value, list):
        return add_meaning(", ".join(f"{count} on node {node}" for node, count in value), str(value), value)
    return value
