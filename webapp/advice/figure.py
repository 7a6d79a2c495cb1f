"""The figure of an answer: plans by memory and time, the named ones by letter, capacity as a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.core.units import human

#: Points farther away are left out, or those that matter would lie on one another.
WIDEST, SLOWEST = 1.8, 1.3
#: Hues of the four named plans, in the order of their letters; each has a shape of its own too.
HUES = ("plot-3", "plot-1", "plot-2", "plot-5")
SHAPES = ("diamond", "circle", "square", "triangle-up")


def figure_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plot in the form that ``plots.js`` draws."""
    capacity, slowest = answer["capacity"], max(plan["seconds"] for plan in answer["plans"])
    near = [
        point
        for point in answer["points"]
        if point["peak"] <= WIDEST * capacity and point["seconds"] <= SLOWEST * slowest
    ]
    others = [point for point in near if point["fits"] and not point["letter"]]
    beyond = [point for point in near if not point["fits"]]
    series = [_name(number, plan) for number, plan in enumerate(answer["plans"])]
    series += [_crowd("simulated", others, "circle")] if others else []
    series += [_crowd("do not fit", beyond, "x")] if beyond else []
    return {
        "title": "Plans worth knowing",
        "kind": "scatter",
        "x_label": "peak memory of the fullest device",
        "x_unit": "bytes",
        "y_label": "step time",
        "y_unit": "s",
        "log": "",
        "limit": {
            "x": capacity,
            "is_capacity": True,
            "text": f"{answer['device']}: {human(capacity, 'bytes')}",
            "beyond": "does not fit" if beyond else "",
        },
        "x_range": _widen([x for line in series for x in line["x"]] + [capacity]),
        "y_range": _widen([y for line in series for y in line["y"]]),
        "series": series,
    }


def _widen(values: list[float]) -> list[float]:
    """From the least to the most, with room for what is written next to the marks."""
    room = 0.12 * (max(values) - min(values)) or 0.1 * max(values)
    return [max(0.0, min(values) - room), max(values) + room]


def _name(number: int, plan: Mapping[str, Any]) -> dict[str, Any]:
    words = f"{plan['letter']} chosen" if number == 0 else plan["letter"]
    look = {"color": HUES[number], "symbol": SHAPES[number], "size": 14}
    point = {"x": [plan["peak"]], "y": [plan["seconds"]], "text": [words], "hover": [plan["name"]]}
    return {"name": words, "mode": "markers+text", "always": True, **look, **point}


def _crowd(name: str, points: list[Mapping[str, Any]], symbol: str) -> dict[str, Any]:
    return {
        "name": name,
        "mode": "markers",
        "always": True,
        "color": "plot-8",
        "symbol": symbol,
        "size": 7,
        "x": [point["peak"] for point in points],
        "y": [point["seconds"] for point in points],
        "hover": [point["name"] for point in points],
    }
