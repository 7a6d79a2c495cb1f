"""Executors on a clock of their own: a pass takes what it is priced at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.serving.interface import Batch, Engine, ServingView
from experiments.serving.interface.branched_view import BranchedView
from experiments.serving.interface.branches import Branches
from experiments.serving.interface.pace import Pace
from experiments.serving.interface.paged import PagedView
from experiments.serving.interface.speculation import Speculation
from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.workloads.step import Floats


class PricedBatches:
    """Batches in a pipeline of stages; ``output`` is the truth that policies may not see.

    ``pace`` of the host, where it is known.
    """

    def __init__(self, engine: Engine, output: Sequence[int], pace: Pace | None = None) -> None:
        self.engine, self.output, self.pace = engine, output, pace
        self.beyond: tuple[int, float] | None = (0, 0.0) if engine.cost.is_measured else None
        self.stage_free = [float("-inf")] * engine.stages

    def reach(self, time: float) -> float:
        return time

    def ends(self, view: ServingView, batch: Batch, until: float) -> tuple[float, ...]:
        now, cost = view.now, self.engine.cost
        idle = now - max(self.stage_free)
        woken = cost.wake_seconds(idle) if idle > 0 else 0.0
        steps = self._steps_until_change(view, batch, until) if batch.repeat else batch.steps
        if steps == 1 and not batch.micro_batch:
            seconds = float(cost.pass_seconds(batch.tokens, batch.contexts)) + woken
            for stage, free in enumerate(self.stage_free):
                now = self.stage_free[stage] = self._after(max(now, free), seconds)
            self._count_beyond(batch, view.now, (now,))
            return (now,)
        times = self._pass_times(batch, steps)
        times[0] += woken
        ends = now + np.cumsum(times) if self.pace is None else self.pace.after(now, np.cumsum(times))
        if batch.repeat:
            ends = ends[: int(np.searchsorted(ends, until)) + 1]
        self.stage_free = [float(ends[-1])] * self.engine.stages
        found = tuple(ends.tolist())
        self._count_beyond(batch, now, found)
        return found

    def _after(self, now: float, seconds: float) -> float:
        return now + seconds if self.pace is None else float(self.pace.after(now, np.array(seconds)))

    def _count_beyond(self, batch: Batch, begin: float, ends: Sequence[float]) -> None:
        """Passes, and their seconds, that were priced beyond what was measured: the last of a row."""
        if self.beyond is None:
            return
        cost, steps = self.engine.cost, len(ends)
        count = max(
            cost.steps_beyond(batch.tokens[chunk], batch.contexts[chunk], steps)
            for chunk in batch.micro_batches
        )
        if count:
            since = begin if count == len(ends) else ends[-count - 1]
            self.beyond = (self.beyond[0] + count, self.beyond[1] + ends[-1] - since)

    def _steps_until_change(self, view: ServingView, batch: Batch, until: float) -> int:
        """Passes until the first of the requests ends, or so many that the next event falls into them."""
        steps = min(self.output[request] - view.generated[request] for request in batch.requests)
        once = float(self.engine.cost.pass_seconds(batch.tokens, batch.contexts))
        first = self.engine.stages * once
        passes = self._usual_seconds(view.now, until) / first if first > 0 else math.inf
        return max(1, min(steps, math.ceil(passes) + 1 if passes < steps else steps))

    def _usual_seconds(self, now: float, until: float) -> float:
        if self.pace is None or math.isinf(until):
            return until - now
        return self.pace.done(until) - self.pace.done(now)

    def _pass_times(self, batch: Batch, steps: int) -> Floats:
        """A pass split into m micro-batches fills and drains the pipeline: (stages + m - 1) x the slowest
        stage.
        """
        chunks = batch.micro_batches
        slowest = np.zeros(steps)
        for chunk in chunks:
            seconds = self.engine.cost.pass_seconds(batch.tokens[chunk], batch.contexts[chunk], steps)
            slowest = np.maximum(slowest, seconds)
        times: Floats = (self.engine.stages + len(chunks) - 1) * slowest
        return times


class PricedSteps:
    """Steps over KV blocks, each ``swap_seconds`` longer for every block that is copied to or from the host.

    ``seed`` draws which drafted tokens are right, and which beams go on of ``branches``. ``pace`` of the
    host, where it is known.
    """

    def __init__(
        self,
        price: StepPrice,
        swap_seconds: float = 0.0,
        speculation: Speculation | None = None,
        seed: int = 0,
        branches: Branches | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.price, self.swap_seconds, self.pace = price, swap_seconds, pace
        self.speculation, self.branches = speculation, branches
        self.rng = np.random.default_rng(seed)
        self._until = float("-inf")

    def view(self, **fields: Any) -> PagedView:
        if self.branches is None:
            return PagedView(**fields)
        return BranchedView(**fields, branches=self.branches, rng=self.rng)

    def reach(self, time: float) -> float:
        return time

    def carry_out(self, view: PagedView, load: StepLoad, now: float, most: int) -> Floats:
        times = self.price.seconds(load, most)
        times[0] += self.swap_seconds * view.swapped_blocks + self._draft_seconds(view)
        if now > self._until:
            times[0] += self.price.wake_seconds(now - self._until)
        seconds = np.cumsum(times)
        ends: Floats = now + seconds if self.pace is None else self.pace.after(now, seconds)
        self._until = float(ends[-1])
        return ends

    def _draft_seconds(self, view: PagedView) -> float:
        """The small model's passes, one after another, before those of the served one."""
        if not view.drafted or self.speculation is None:
            return 0.0
        decodes = [Entry(r, 1, context) for r, _, context in view.entries if r in view.drafted]
        one = float(self.price.seconds(StepLoad.of(decodes))[0])
        return max(view.drafted.values()) * self.speculation.cost * one

    def right_drafts(self, view: PagedView, request: int) -> int:
        assert self.speculation is not None
        drafts, wrong = view.drafted[request], 1 - self.speculation.acceptance
        return min(drafts, int(self.rng.geometric(wrong)) - 1) if wrong > 0 else drafts

    def steps_beyond(self, load: StepLoad, steps: int) -> int:
        return self.price.steps_beyond(load, steps)
