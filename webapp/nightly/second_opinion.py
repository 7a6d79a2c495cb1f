"""Otava's opinion of the steps that we found, where ``OTAVA_PYTHON`` names a Python that has it."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence

from django.conf import settings

from webapp.nightly import otava
from webapp.nightly.history import History
from webapp.nightly.steps import Alert

#: Nights that two methods may place the same step apart.
NEAR = 3

logger = logging.getLogger(__name__)


def second(found: History, alerts: Sequence[Alert]) -> list[bool | None]:
    """Whether Otava sees each step too, asked once for all; ``None`` where it cannot be asked."""
    if not settings.OTAVA_PYTHON or not alerts:
        return [None] * len(alerts)
    points = [found.of(alert.metric)[alert.title] for alert in alerts]
    values = [[one.value for one in series] for series in points]
    try:
        told = otava.change_points(settings.OTAVA_PYTHON, values)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("no second opinion of nightly steps, by OTAVA_PYTHON: %s", error)
        return [None] * len(alerts)
    places = [series.index(alert.first_after) for alert, series in zip(alerts, points, strict=True)]
    return [any(abs(one - place) <= NEAR for one in own) for own, place in zip(told, places, strict=True)]
