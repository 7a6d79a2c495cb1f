"""What runs on this host now: each job's present stay on its slots, and what its processes say of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.cluster.interface import Execution, Gang
from experiments.cluster.interface.measurements import Measurement
from experiments.cluster.live.gang_process import GangProcess

#: What a stay was told: nothing yet, to save and exit, to wait in memory.
RUN, STOP, PAUSE = "run", "stop", "pause"
#: So much has to be seen of a stay before it has a speed of its own.
FEWEST_STEPS, FEWEST_SECONDS = 10, 0.3


@dataclass(slots=True)
class Stay:
    """A job's processes on ``gang`` since ``start``.

    - ``begun``: when its first step began; before, it starts.
    - ``before``: the steps that it was known to have done, ``first`` the one it began at, ``step`` the last
      one it told, at ``told``.
    - ``kept`` and ``kept_at``: the step of its last checkpoint, and when that was written.
    - ``computing``: processor seconds of rank 0 as it told at the end.
    - ``ordered``: what it was told, and whether so that it ``moves``.
    - ``frozen``: it was stopped while it started.
    - ``resumed``: it went on in memory, beyond its last checkpoint.
    - ``measured``: what it said last of its own steps, where its batch is the scheduler's to choose.
    """

    gang: Gang
    process: GangProcess
    start: float
    before: float
    step: float
    kept: float
    first: float = 0.0
    told: float = math.nan
    begun: float = math.inf
    kept_at: float = math.inf
    computing: float = math.nan
    ordered: str = RUN
    moves: bool = False
    frozen: bool = False
    resumed: bool = False
    measured: Measurement | None = None

    @property
    def is_starting(self) -> bool:
        return math.isinf(self.begun)

    def begin(self, now: float, step: float) -> None:
        """Its first step begins."""
        self.begun = self.told = self.kept_at = now
        self.first = self.step = step

    def tell(self, now: float, step: float) -> None:
        """It has done so many steps."""
        self.step, self.told = step, now

    def observe(self, said: Mapping[str, Any]) -> None:
        """It has measured its steps, and the noise of their gradients."""
        if said.get("timed", 0) < FEWEST_STEPS:
            return
        self.measured = Measurement(
            nodes=1,
            gpus=self.gang.size,
            each=said["each"],
            accumulations=said["accumulations"],
            step=said["step_seconds"],
            sync=said["sync_seconds"],
            square=said["square"],
            variance=said["variance"],
        )

    def speed(self) -> float | None:
        """Steps per second as told since its first; ``None`` where that is too little to say."""
        made, seconds = self.step - self.first, self.told - self.begun
        return made / seconds if made >= FEWEST_STEPS and seconds > FEWEST_SECONDS else None

    def keep(self, now: float, step: float) -> None:
        """A checkpoint was written."""
        self.tell(now, step)
        self.kept, self.kept_at = step, now

    def record(self, now: float, how: str, lost: float) -> Execution:
        """Return its record."""
        held = now - self.start
        restarting = min(held, self.begun - self.start)
        made = held - restarting
        given = made * self.gang.share
        busy = 1.0 if math.isnan(self.computing) or given <= 0 else min(1.0, self.computing / given)
        return Execution(self.gang, self.start, now, self.step - self.before, restarting, lost, busy, how)
