"""Request-level batching: what engines did before iteration-level scheduling, and the baseline that papers
beat.

It waits until ``max_batch`` requests are queued; what is left at the end of the trace runs as it is. How a
batch runs is in ``planning.request_level``.

Sources: NVIDIA's FasterTransformer and Triton as described in Orca, OSDI'22, sections 2 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from experiments.serving.interface import ServingView
from experiments.serving.planning.request_level import RequestLevelBatching


@dataclass(frozen=True)
class StaticBatching(RequestLevelBatching):
    """Waits for a full batch and runs it until its longest answer is done."""

    name: ClassVar[str] = "static_batching"
    mechanism: ClassVar[str] = "whole batches"
    sees: ClassVar[frozenset[str]] = frozenset({"output", "no_more_arrivals"})

    def wait_for(self, oldest: float, queued: int, view: ServingView) -> float | None:
        return None if queued >= self.max_batch or view.no_more_arrivals else math.inf
