"""A sample of sixty nights, drawn at random with one true step in it, until a project has nights of its own.

The figures are drawn here and marked as a sample wherever they are shown; that they stepped, and where, is
found by the same code as in a project's own nights.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from webapp.nightly import charts, steps
from webapp.nightly.history import History, Point
from webapp.nightly.steps import Alert
from webapp.runs.models import Run

NIGHTS, STEP_AFTER = 60, 41
#: Seconds a step takes, its noise from night to night, and by how much it is slower after the change.
LEVEL, NOISE, CHANGE = 0.1, 0.015, 0.07
SEED = 60


def sample_history(now: datetime) -> History:
    """Sixty nights up to ``now`` of a step time that is 7 % longer after the 41st."""
    draw = random.Random(SEED)
    slots = [now - timedelta(days=NIGHTS - 1 - night) for night in range(NIGHTS)]
    revisions = [f"{draw.getrandbits(48):012x}" for _ in slots]
    points = [
        Point(
            "a training step, as a sample",
            "step_time",
            LEVEL * (1 + CHANGE * (night >= STEP_AFTER)) * draw.gauss(1, NOISE),
            revisions[night],
            Run(mode="measured"),
            slot,
        )
        for night, slot in enumerate(slots)
    ]
    return History(tuple(points), tuple(slots))


def sample_page(now: datetime) -> dict[str, Any]:
    """The sample's chart and the one alert that was found in it."""
    found = sample_history(now)
    alerts: list[Alert] = steps.alerts(found)
    return {"chart": charts.chart(found, "step_time", None, ()), "alerts": alerts, "nights": NIGHTS}
