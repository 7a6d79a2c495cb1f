"""Speed-ups over eager with their 95 % intervals, the largest on top."""

from __future__ import annotations

from typing import Any

from experiments.core.differences import EQUAL
from experiments.core.units import significant
from webapp.compare.answers import compilation
from webapp.compare.answers.case import Case, value
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, figure_json

SPEEDUP = compilation.SPEEDUP
#: What is said of a ratio, with its hue and shape.
LOOKS = {
    "faster": {"color": "plot-3", "symbol": "circle"},
    "no difference seen": {"color": "plot-8", "symbol": "circle-open"},
    "slower": {"color": "plot-4", "symbol": "square"},
}


def ratios(case: Case) -> dict[str, Any] | None:
    entries = compilation.ranking(case)
    if not entries:
        return None
    groups: dict[str, list[Entry]] = {name: [] for name in LOOKS}
    for entry in entries:
        groups[_say(entry)].append(entry)
    return figure_json(
        "Speed-up over eager, with 95 % intervals",
        "scatter",
        ("times as fast as eager, logarithmic", ""),
        ("", ""),
        log="x",
        series=[_series(name, found, case) for name, found in groups.items() if found],
        lanes=[entry.name for entry in entries],
        limit={"x": EQUAL, "text": "eager", "beyond": ""},
    )


def _say(entry: Entry) -> str:
    if entry.estimates[SPEEDUP].is_unseen:
        return "no difference seen"
    return "faster" if value(entry, SPEEDUP) > EQUAL else "slower"


def _series(name: str, entries: list[Entry], case: Case) -> dict[str, Any]:
    estimates = [entry.estimates[SPEEDUP] for entry in entries]
    return {
        "name": name,
        **LOOKS[name],
        "mode": "markers",
        "x": [one.value for one in estimates],
        "y": [entry.name for entry in entries],
        "low": [one.mean if one.low is None else one.low for one in estimates],
        "high": [one.mean if one.high is None else one.high for one in estimates],
        "hover": [_describe(entry) for entry in entries],
        "hover_only": True,
        "href": addresses(entries, case.project),
    }


def _describe(entry: Entry) -> str:
    own = entry.estimates[SPEEDUP]
    ends = "" if own.low is None or own.high is None else f"<br>{own.low:.3f} to {own.high:.3f}"
    return f"{entry.name}: {own.words or f'{significant(own.mean)} times'}{ends}"
