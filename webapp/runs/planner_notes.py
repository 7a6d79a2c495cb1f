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
from webapp.runs.plan_words import line_of, unit_of, words_of

#: Numbers in a row that are a curve rather than a list to be read.
CURVE = 12


@dataclass(frozen=True)
class Notes:
    facts: tuple[tuple[str, str], ...]
    curves: tuple[Mapping[str, Any], ...]


def notes_of(plan: Mapping[str, Any]) -> Notes | None:
    notes: Mapping[str, Any] = plan.get("notes") or {}
    if not notes:
        return None
    curves = {name: value for name, value in notes.items() if _is_curve(value)}
    facts = tuple((words_of(name), _show(name, value)) for name, value in notes.items() if name not in curves)
    return Notes(facts, tuple(_plot(name, values) for name, values in curves.items()))


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= CURVE and all(isinstance(v, float) for v in value)


def _show(name: str, value: Any) -> str:
    is_figure = isinstance(value, int | float) and not isinstance(value, bool)
    return human(value, unit_of(name)) if is_figure else pretty(line_of(name, value))


def _plot(name: str, values: list[float]) -> dict[str, Any]:
    """Values in the order in which they were tried; of times also the best so far."""
    unit = unit_of(name) or ("s" if name == "curve" else "")
    x = list(range(1, len(values) + 1))
    lines: list[dict[str, Any]] = [{"name": "tried", "x": x, "y": values}]
    if unit == "s":
        lines.append({"name": "best so far", "x": x, "y": list(accumulate(values, min)), "shape": "hv"})
    label = "step time" if name == "curve" else words_of(name)
    return {
        "title": f"Search: {label}", "kind": "line", "x_label": "candidate", "x_unit": "", "y_label": label,
        "y_unit": unit, "log": "", "sampled": None, "series": lines,
    }  # fmt: skip
