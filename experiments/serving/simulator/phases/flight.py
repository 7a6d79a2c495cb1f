"""Passes of an instance that are under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.workloads.step import Floats


@dataclass
class Flight:
    """Passes under way over ``entries``: each leaves the instance at one of ``ends``."""

    entries: Sequence[Entry]
    load: StepLoad
    start: float
    free: float
    ends: Floats
    has_landed: bool = False
