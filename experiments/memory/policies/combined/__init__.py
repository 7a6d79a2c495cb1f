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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.core.units import human
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.memory.planning.batch_parts import caveats, divisors
from experiments.memory.policies.combined.composition import Composer
from experiments.memory.policies.combined.search import Effort, Found, Search
from experiments.memory.policies.combined.words import explain
from experiments.workloads.step import Step

#: Trials that take as long as capturing a model anew.
CAPTURE = 60


@dataclass(frozen=True)
class Combined(MemoryPolicy):
    """Micro-batches, recomputation and offload of activations and state together: the fastest that fits."""

    name: ClassVar[str] = "combined"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    oversubscribes: ClassVar[bool] = True
    effort: ClassVar[str] = SECONDS

    work: int = knob(600_000, "ops that all trials together may simulate", low=1, high=10**10)

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan(notes={"reason": "everything fits: nothing to do"})
        effort = Effort(self.work)
        best: Found | None = None
        trials, smallest = 0, step.live_peak
        for search in self._searches(step, device, effort):
            search.best = best
            search.run()
            best, trials = search.best, trials + search.trials
            smallest = min(smallest, search.smallest)
            if search.is_beaten(search.least_seconds()):
                break
        if best is None:
            needs = f"no composition fits: the smallest needs {human(smallest, 'bytes')}"
            raise Infeasible(needs, "combined", smallest - device.capacity)
        return replace(best.plan, notes=self._notes(step, device, best, trials, effort))

    def _searches(self, step: Step, device: DeviceView, effort: Effort) -> Iterator[Search]:
        """One for each number of parts, as long as there is work left for a capture."""
        for parts in divisors(step):
            if parts > 1 and effort.ops < CAPTURE * len(step.ops):
                return
            try:
                split = step if parts == 1 else device.split(parts)
            except BadInput:
                return
            yield Search(Composer(split, device.machine), device, parts, effort)

    def _notes(
        self, step: Step, device: DeviceView, best: Found, trials: int, effort: Effort
    ) -> dict[str, Any]:
        return {
            **explain(best, step, device),
            "trials": trials,
            "search": "ended when its work was done" if effort.ops <= 0 else "ended with nothing left to try",
            **(caveats(step) if best.plan.splits > 1 else {}),
        }
