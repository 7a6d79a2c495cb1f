"""What a planner says of its search: predicted figures and counts as a table, what it tried one by one as
curves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from experiments.core.units import human
from webapp.presentation import pretty

#: Numbers in a row that are a curve rather than a list to be read.
CURVE = 12
#: How names of times and sizes end.
UNITS = {"_time": "s", "_seconds": "s", "_bytes": "bytes", "_memory": "bytes", "_fraction": "fraction"}


@dataclass(frozen=True)
class Notes:
    facts: tuple[tuple[str, str], ...]
    curves: tuple[Mapping[str, Any], ...]


def notes_of(plan: Mapping[str, Any]) -> Notes | None:
    notes: Mapping[str, Any] = plan.get("notes") or {}
    if not notes:
        return None
    curves = {name: value for name, value in notes.items() if _is_curve(value)}
    facts = tuple((_words(name), _show(name, value)) for name, value in notes.items() if name not in curves)
    return Notes(facts, tuple(_plot(name, values) for name, values in curves.items()))


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= CURVE and all(isinstance(v, float) for v in value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _show(name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return human(value, _unit(name))
    return pretty(value)


def _plot(name: str, values: list[float]) -> dict[str, Any]:
    """Values in the order in which they were tried; of times also the best so far."""
    unit = _unit(name) or ("s" if name == "curve" else "")
    x = list(range(1, len(values) + 1))
    lines: list[dict[str, Any]] = [{"name": "tried", "x": x, "y": values}]
    if unit == "s":
        lines.append({"name": "best so far", "x": x, "y": list(accumulate(values, min)), "shape": "hv"})
    label = "step time" if name == "curve" else _words(name)
    return {
        "title": f"Search: {label}", "kind": "line", "x_label": "candidate", "x_unit": "", "y_label": label,
        "y_unit": unit, "log": "", "sampled": None, "series": lines,
    }  # fmt: skip
