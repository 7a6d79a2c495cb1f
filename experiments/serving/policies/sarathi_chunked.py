"""Sarathi-Serve, OSDI'24 (Agrawal et al.): stall-free batches (section 4, algorithm 3).

Every running decode is in each step; what is left of a budget of tokens goes to parts of prompts, those
that have begun first, then new ones in the order of arrival, whose whole prompt must find blocks. No
decode therefore waits for longer than a step of ``token_budget`` tokens. The paper's budgets are 512
(strict objective) and 2,048 (relaxed); the whole step counts against it, decodes included, as in the authors'
release.

With an objective on the time between tokens, the budget is the largest whose step keeps it (section 4.3):
all sequences decode at a long context, and the rest of the budget is the end of a prompt as long. From a
tile of a matrix product on it is whole tiles, since a part of one costs as much."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.units import human
from experiments.serving.interface.paged import PagedPolicy, PagedView, StepFiller
from experiments.serving.interface.step_load import Entry, StepLoad, StepPrice
from experiments.serving.planning.prompts_first import reject_too_large

MOST_TOKENS = 10**6
#: Rows of a matrix product that a device computes together (section 4.3).
TILE = 128


@dataclass(frozen=True)
class SarathiChunked(PagedPolicy):
    """Decodes in every step, parts of prompts in the rest of its budget of tokens."""

    name: ClassVar[str] = "sarathi_chunked"
    mechanism: ClassVar[str] = "every iteration"

    max_batch: int = knob(128, "sequences at once", low=1, high=65536)
    token_budget: int = knob(512, "tokens in one step", low=1, high=MOST_TOKENS, unit="tokens")
    watermark: float = knob(0.01, "share of blocks left free when a prompt is admitted", low=0.0, high=0.5)

    slo_tbt: float | None = knob(
        None, "objective: the budget is chosen so that no step takes longer", low=1e-6, high=1e6, unit="s"
    )
    context: int | None = knob(
        None,
        "tokens that a decode has behind it, of which an objective is kept; empty: as 99 % of prompts",
        low=1,
        high=10**8,
        unit="tokens",
    )

    def settle(self, price: StepPrice, prompts: Sequence[int]) -> SarathiChunked:
        if self.slo_tbt is None:
            return self
        context = self.context or int(np.percentile(prompts, 99, method="higher"))

        def seconds(budget: int) -> float:
            return float(price.seconds(self._longest(budget, context))[0])

        budget = bisect_right(range(1, MOST_TOKENS + 1), self.slo_tbt, key=seconds)
        if not budget:
            least = seconds(1)
            what = f"one token behind {context:,} takes {human(least, 's')}, over {human(self.slo_tbt, 's')}"
            raise Infeasible(what, "knobs.slo_tbt", least - self.slo_tbt)
        return replace(self, token_budget=budget - budget % TILE if budget > TILE else budget)

    def _longest(self, budget: int, context: int) -> StepLoad:
        """The step of ``budget`` tokens that takes longest when nothing is longer than ``context``."""
        decodes = min(self.max_batch, budget)
        entries = [Entry(request, 1, context) for request in range(decodes)]
        # The part of a prompt takes the place of one sequence.
        if budget > decodes:
            entries[-1] = Entry(decodes - 1, budget - decodes + 1, context)
        return StepLoad.of(entries)

    def begin(self) -> StepFiller:
        return _StallFree(self.max_batch, self.token_budget, self.watermark)


@dataclass(frozen=True)
class _StallFree:
    max_batch: int
    budget: int
    watermark: float

    def fill(self, view: PagedView) -> bool:
        left = self._decode(view)
        known, computed = view.known, view.computed
        if len(view.entries) < len(view.running):
            for request in [one for one in view.running if known[one] - computed[one] > 1]:
                if left > 0:
                    left -= self._continue(view, request, left)
        if not view.preempted:
            self._begin(view, left)
        return not view.admitted and view.is_all_decodes

    def _decode(self, view: PagedView) -> int:
        """One token of every decode, while blocks last: the latest request gives way."""
        left = self.budget
        if len(view.running) <= left and view.extend_all(only_decodes=True):
            return left - len(view.entries)
        for request in list(view.running):
            if left == 0 or request not in view.held or view.lacking(request) != 1:
                continue
            while not view.extend(request, 1):
                victim = max(r for r in view.running if not view.is_in_step(r))
                view.preempt(victim)
                if victim == request:
                    break
            else:
                left -= 1
        return left

    def _continue(self, view: PagedView, request: int, left: int) -> int:
        tokens = min(view.lacking(request), left)
        return tokens if view.extend(request, tokens) else 0

    def _begin(self, view: PagedView, left: int) -> None:
        reserve = int(self.watermark * view.pool.total)
        while view.waiting and left > 0 and len(view.running) < self.max_batch:
            if reject_too_large(view, reserve):
                continue
            request = view.waiting[0]
            taken = view.admit(request, left, reserve=reserve)
            if not taken:
                break
            view.reserve(request, view.known[request])
            left -= taken
