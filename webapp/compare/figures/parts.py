"""Where the step of each parallel plan goes, in seconds that add up to its step time."""

from __future__ import annotations

from typing import Any

from experiments.core.units import human, significant
from webapp.compare.answers import parallel
from webapp.compare.answers.case import Case, value
from webapp.compare.comparison import Entry
from webapp.compare.figures.marks import addresses, figure_json

NEEDED = ("step_time", "mfu", "hfu", "bubble_fraction", "exposed_communication_time")
#: So many plans are read beside one another, the fastest first.
MOST = 14
#: Parts from the ideal on, each with its hue.
HUES = {
    "ideal: the model's FLOPs at peak": "plot-3",
    "recompute, at peak": "plot-2",
    "kernels below peak": "plot-6",
    "pipeline bubble": "plot-8",
    "exposed communication": "plot-4",
}


def parts_of(entry: Entry) -> dict[str, float]:
    """Seconds by part. Idle and exposed time are the simulator's; what is left of the step computes.

    ``step = busy + bubble + exposed``, and of the busy time MFU and HFU say what the peak would have taken.
    """
    step, mfu, hfu, bubble, exposed = (value(entry, name) for name in NEEDED)
    busy = step * (1 - bubble) - exposed
    seconds = (mfu * step, (hfu - mfu) * step, busy - hfu * step, bubble * step, exposed)
    return dict(zip(HUES, seconds, strict=True))


def parts(case: Case) -> dict[str, Any] | None:
    """One bar for each plan, its parts end to end."""
    entries = [entry for entry in parallel.ranking(case) if set(NEEDED) <= set(entry.estimates)][:MOST]
    if not entries:
        return None
    divided = [parts_of(entry) for entry in entries]
    names = [entry.name for entry in entries]
    href = addresses(entries, case.project)
    series = []
    for part, hue in HUES.items():
        seconds = [one[part] for one in divided]
        hover = [_describe(entry, part, one[part]) for entry, one in zip(entries, divided, strict=True)]
        series.append(
            {
                "name": part,
                "color": hue,
                "x": seconds,
                "y": names,
                "hover": hover,
                "href": href,
                "hover_only": True,
            }
        )
    return figure_json(
        "Where the step goes", "rows", ("seconds of a step", "s"), ("", ""), series=series, lanes=names
    )


def _describe(entry: Entry, part: str, seconds: float) -> str:
    step = value(entry, "step_time")
    share = significant(100 * seconds / step)
    return f"{entry.name}: {part}<br>{human(seconds, 's')} of {human(step, 's')}, {share} %"
