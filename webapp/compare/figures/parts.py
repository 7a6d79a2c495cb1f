"""Where the step of each parallel plan goes, in seconds that add up to its step time."""

from __future__ import annotations

from typing import Any

from experiments.core.units import human, significant
from experiments.parallel.simulator.step_parts import parts_of_step
from webapp.compare.answers import parallel
from webapp.compare.answers.case import Case, value
from webapp.compare.entries import Entry
from webapp.compare.figures.marks import addresses, figure_json
from webapp.runs.waterfall import HUES

#: So many plans are read next to one another, the fastest first.
MOST = 14


def parts(case: Case) -> dict[str, Any] | None:
    """One bar for each plan, its parts end to end; a part that no plan has is left out."""
    divided = {id(entry): _parts_of(entry) for entry in parallel.ranking(case)}
    entries = [entry for entry in parallel.ranking(case) if divided[id(entry)]][:MOST]
    if not entries:
        return None
    names = [entry.name for entry in entries]
    series = []
    for part, hue in HUES.items():
        seconds = [divided[id(entry)][part] for entry in entries]
        if any(seconds):
            hover = [_describe(entry, part, one) for entry, one in zip(entries, seconds, strict=True)]
            look = {"color": hue, "hover_only": True, "href": addresses(entries, case.project)}
            series.append({"name": part, **look, "x": seconds, "y": names, "hover": hover})
    axes = (("seconds of a step", "s"), ("", ""))
    return figure_json("Where the step goes", "rows", *axes, series=series, lanes=names)


def _parts_of(entry: Entry) -> dict[str, float]:
    return parts_of_step({name: found.value for name, found in entry.estimates.items()})


def _describe(entry: Entry, part: str, seconds: float) -> str:
    step = value(entry, "step_time")
    share = significant(100 * seconds / step)
    return f"{entry.name}: {part}<br>{human(seconds, 's')} of {human(step, 's')}, {share} %"
