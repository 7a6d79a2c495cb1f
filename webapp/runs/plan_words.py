"""Values of a plan and of its planner's notes as one line: structure as phrases, figures in their unit."""

from __future__ import annotations

from typing import Any

from experiments.core.units import human
from webapp.presentation import pretty

#: How names of times, sizes and shares end.
UNITS = {"_time": "s", "_seconds": "s", "_bytes": "bytes", "_memory": "bytes", "_fraction": "fraction"}
#: Names that are a unit: so many ``seconds`` of memory are no bytes.
WHOLE_UNITS = ("seconds", "bytes")
#: Of these there is nothing to say.
EMPTY: tuple[Any, ...] = (None, False, [], {})


def words_of(name: str) -> str:
    return name.replace("_", " ")


def unit_of(name: str) -> str:
    """The unit that a figure's name ends with; empty for a plain number."""
    return next((unit for end, unit in UNITS.items() if f"_{name}".endswith(end)), "")


def line_of(name: str, value: Any) -> Any:
    """``updates 32, learning (rate 0.1, optimizer sgd)``, ``160 MB``; text and lists as they are."""
    if isinstance(value, dict):
        unit, whole = unit_of(name), name in WHOLE_UNITS
        return ", ".join(_part(*pair, unit, whole) for pair in value.items() if not _is_empty(pair[1]))
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return human(value, unit_of(name)) if is_figure and unit_of(name) else value


def _is_empty(value: Any) -> bool:
    """Zero is a value: ``0 == False``."""
    return any(value is one for one in EMPTY) or value in ([], {})


def _part(name: str, value: Any, unit: str, whole: bool) -> str:
    """``weights 15.6 GB``: in a unit of its own, else in that of what it is a part of; always in that where
    the ``whole`` is named by its unit.
    """
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    inherits = is_figure and unit and (whole or not unit_of(name))
    said = human(value, unit) if inherits else line_of(name, value)
    return f"{words_of(name)} ({said})" if isinstance(value, dict) else f"{words_of(name)} {pretty(said)}"
