"""What carries a policy's choices out: by their price on a clock of its own, or for real by the wall clock.

The engines book arrivals, blocks and tokens; an executor says when a pass ends. So a simulated and a live run
differ in nothing else.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from experiments.serving.interface.batch import Batch
from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.interface.view import ServingView

Floats = npt.NDArray[np.float64]
#: Seconds before a moment in which a live engine's processor stays awake, so that it starts at its speed.
AWAKE = 0.005


class BatchExecutor(Protocol):
    """For policies that reserve slots.

    ``beyond``: passes, and their seconds, that were priced beyond what was measured; ``None``: by no measure.
    """

    beyond: tuple[int, float] | None

    def reach(self, time: float) -> float:
        """The time now (s of the trace), which is ``time`` at the earliest."""
        ...

    def ends(self, view: ServingView, batch: Batch, until: float) -> tuple[float, ...]:
        """When each pass of ``batch`` is through the last stage.

        A batch that repeats itself is made until one of its requests ends, or a pass ends at ``until`` or
        later.
        """
        ...


class StepExecutor(Protocol):
    """For policies over KV blocks."""

    def view(self, **fields: Any) -> PagedView:
        """What the policy sees and fills."""
        ...

    def reach(self, time: float) -> float:
        """The time now (s of the trace), which is ``time`` at the earliest."""
        ...

    def carry_out(self, view: PagedView, load: StepLoad, now: float, most: int) -> Floats:
        """When the filled step ends, and further ones like it, ``most`` in all."""
        ...

    def right_drafts(self, view: PagedView, request: int) -> int:
        """How many of the tokens that were drafted for ``request`` are right."""
        ...

    def steps_beyond(self, load: StepLoad, steps: int) -> int:
        """How many of the steps were priced beyond what was measured."""
        ...
