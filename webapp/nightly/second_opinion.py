"""Otava's opinion of the changes that we found, where ``OTAVA_PYTHON`` names a Python that has it."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Sequence

from django.conf import settings

from webapp.nightly import otava
from webapp.nightly.history import History
from webapp.nightly.models import Change

#: Nights that two methods may place the same step apart.
NEAR = 3

logger = logging.getLogger(__name__)


def ask(found: History, kept: Sequence[Change]) -> None:
    """Note whether Otava sees each change too, asked once for all their series; where it cannot be asked
    nothing is noted.
    """
    if not settings.OTAVA_PYTHON or not kept:
        return
    series = {(one.metric, one.title): found.of(one.metric)[one.title] for one in kept}
    values = [[point.value for point in points] for points in series.values()]
    try:
        told = dict(zip(series, otava.change_points(settings.OTAVA_PYTHON, values), strict=True))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        logger.warning("no second opinion of nightly steps, by OTAVA_PYTHON: %s", error)
        return
    for change in kept:
        key = (change.metric, change.title)
        place = [point.slot for point in series[key]].index(change.slot)
        change.seconded = any(abs(one - place) <= NEAR for one in told[key])
    Change.objects.bulk_update(kept, ["seconded"])
