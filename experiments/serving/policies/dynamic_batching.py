"""Request-level batching with a time limit: as soon as the engine is idle, run what is queued, up to
``max_batch``, but wait for more until the oldest request has waited ``timeout``. The batch itself runs as in
static batching (``planning.request_level``).

Source: Triton's dynamic batcher as described in Orca, OSDI'22, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.serving.interface import ServingView
from experiments.serving.planning.request_level import RequestLevelBatching


@dataclass(frozen=True)
class DynamicBatching(RequestLevelBatching):
    """Runs what is queued once the oldest request has waited long enough, until all answers end."""

    name: ClassVar[str] = "dynamic_batching"
    mechanism: ClassVar[str] = "whole batches"

    timeout: float = knob(0.0, "longest wait for more requests", low=0.0, high=3600.0, unit="s")

    def wait_for(self, oldest: float, queued: int, view: ServingView) -> float | None:
        due = oldest + self.timeout
        return None if queued >= self.max_batch or view.now >= due else due
