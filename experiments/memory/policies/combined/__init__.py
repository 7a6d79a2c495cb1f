"""Micro-batches, recomputation, offload of activations and of the model's state, together: the fastest plan
that fits.

Each part is another policy's whole answer: ``gradient_accumulation``, ``checkpoint`` and
``selective_recompute``, the activation swaps of vDNN and its heirs, ``zero_offload`` and ``zero_infinity``.
Here a plan says how much of each: parts of the batch; which activations run again, the cheapest a byte first
(``recomputation``); which leave for the host, those that are idle longest, as many as the device then still
lacks bytes for (``copies``); how much of the update runs on the host, and whether its parameters pass through
the device layer by layer (``state``). The host's update begins after the passes and takes the time of
ZeRO-Offload's kernel, as there. No link, no host and no recomputation is used where everything fits.

The search (``search``) is ours and no optimum is claimed: compositions are tried in the simulator in the
order of the time that they take at least, fewest parts of the batch first, until none left can beat the best.
A model is captured anew for each number of parts, which costs as much as many trials: it is done where enough
of the ``work`` allowed is left. Not composed: storage, compression, other orders of the ops, and an update
that begins during the backward pass or ends during the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.budget import Budget
from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.core.units import human
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.batch_parts import divisors
from experiments.memory.policies.combined.composition import Composer
from experiments.memory.policies.combined.search import Found, Search
from experiments.memory.policies.combined.words import explain
from experiments.workloads.step import Step

#: Trials that take as long as capturing a model anew.
CAPTURE = 60


@dataclass(frozen=True)
class Combined(MemoryPolicy):
    """Micro-batches, recomputation and offload of activations and state together: the fastest that fits."""

    name: ClassVar[str] = "combined"
    mechanism: ClassVar[str] = "offload and recompute"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    oversubscribes: ClassVar[bool] = True
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"work": 40_000}

    work: int = knob(600_000, "ops that all trials together may simulate", low=1, high=10**10)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan(notes={"reason": "everything fits: nothing to do"})
        budget = Budget(self.work, device.progress, "ops simulated")
        searches: list[Search] = []
        for search in self._searches(step, device, budget):
            before = searches[-1] if searches else None
            search.best = before.best if before else None
            search.run()
            searches.append(search)
            helpless = before is not None and search.best is None and search.smallest >= before.smallest
            if helpless or search.is_beaten(search.least_seconds()):
                break
        best = self._finish(searches, step, device)
        trials = {"trials": sum(search.trials for search in searches)}
        return replace(best.plan, notes={**explain(best, step, device), **trials, **budget.caveat("work")})

    def _searches(self, step: Step, device: DeviceView, budget: Budget) -> Iterator[Search]:
        """One for each number of parts, as long as the budget has a capture left."""
        for parts in divisors(step):
            if parts > 1 and not budget.take(CAPTURE * len(step.ops)):
                return
            try:
                split = step if parts == 1 else device.split(parts)
            except BadInput:
                return
            yield Search(Composer(split, device.machine), device, parts, budget)

    def _finish(self, searches: Sequence[Search], step: Step, device: DeviceView) -> Found:
        """The best of all with the last improvements; ``Infeasible`` where there is none."""
        best = searches[-1].best
        if best is None:
            smallest = min(search.smallest for search in searches)
            needs = f"no composition fits: the smallest needs {human(smallest, 'bytes')}"
            raise Infeasible(needs, "combined", smallest - device.capacity)
        own = next(search for search in searches if search.splits == best.plan.splits)
        own.best = best
        own.keep_more()
        return own.best or best
