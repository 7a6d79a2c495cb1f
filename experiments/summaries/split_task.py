"""A model between a device and a cloud: its operators on either side, and the link over time."""

from __future__ import annotations

from typing import Any

from experiments.summaries.drawing import card, plot, points
from experiments.summaries.summary import summary
from experiments.workloads.split_task import SplitTask

#: Operators that the figure names.
MOST_OPERATORS = 200


@summary.register
def _split_task(value: SplitTask) -> dict[str, Any]:
    timed = [one for one in value.operators if one.device is not None]
    cards = [
        card("operators", len(value)),
        card("in the cloud together", sum(one.cloud for one in value.operators), "s"),
        card("input", value.input, "bytes"),
        card("round trip", value.round_trip, "s"),
        card("slowest uplink", min(link.up for link in value.links), "bytes/s"),
    ]
    if len(timed) == len(value):
        cards.insert(1, card("on the device together", sum(one.device or 0.0 for one in timed), "s"))
    shown = value.operators[:MOST_OPERATORS]
    names = [one.name for one in shown]
    series = [points("cloud", names, [one.cloud for one in shown])]
    if len(timed) == len(value):
        series.insert(0, points("device", names, [one.device or 0.0 for one in shown]))
    return {
        "cards": cards,
        "estimates": [],
        "plots": [plot("seconds of operators", "bar", "", "s", series)],
    }
