"""Optimus, EuroSys'18: as many workers for each job as shorten its time left most, every ten minutes.

Remaining steps follow from a curve fitted to the losses so far (``convergence``), speeds from one fitted to
short trials (``speeds``); every job gets one worker, then one more goes again and again to the job whose
estimated time it shortens most (``gains``), and all are put on the fewest servers (``placing``).

Traces have neither losses nor parameter servers. A worker is a device with a server of its own, so one more
worker is one more device. With ``prediction: oracle`` what is left and how fast steps are is known, with
``noisy`` what is left is known up to an error, with ``fitted`` both are fitted: to losses where the trace has
them, else to the validated metric of the epochs done, and to measured speeds on 1, 2, 4, ... devices. Between
its intervals nothing is resized; who comes then gets a first device if one is free.

Under ``rules: pollux`` it is the oracle of Pollux' simulator: at each tick, steps left by the validated
curves, times measured on a consolidated placement, jobs placed on the nodes with most free devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.policies.optimus.estimates import (
    Estimates,
    FittedWork,
    KnownWork,
    NoisyWork,
    StepsOfRelease,
)
from experiments.cluster.policies.optimus.gains import share_out
from experiments.cluster.policies.optimus.placing import EVEN, gangs_for
from experiments.core.knobs import knob

POLLUX = "pollux"
ORACLE, NOISY, FITTED = "oracle", "noisy", "fitted"


@dataclass(frozen=True)
class Optimus(ClusterPolicy):
    """Gives each further device to the job whose predicted time left it shortens most."""

    name: ClassVar[str] = "optimus"
    mechanism: ClassVar[str] = "resize to the best use"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"throughput", "model", "losses"})
    models: ClassVar[tuple[str, ...]] = ("goodput", "table")
    rigid: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"interval": 12.0}

    rules: str = rules_of(POLLUX)
    interval: float = knob(600.0, "time from one resizing to the next", low=1.0, high=86400.0, unit="s")
    prediction: str = knob(ORACLE, "what is known of steps left and speeds", choices=(ORACLE, NOISY, FITTED))
    sigma: float = knob(
        0.3, "standard deviation of the logarithm of what is left (noisy)", low=0.0, high=10.0
    )
    threshold: float = knob(
        0.01, "a job has converged when its loss falls by less of its range in an epoch", low=1e-6, high=0.5
    )
    placement: str = knob(EVEN, "which free devices a job gets", choices=(*PLACEMENTS, EVEN))

    @property
    def round_seconds(self) -> float | None:
        return self.interval

    def begin(self) -> Decider:
        return _Marginal(self)


class _Marginal:
    """Keeps the estimates of one run."""

    def __init__(self, policy: Optimus) -> None:
        self.policy = policy
        self.estimates = _estimates(policy)

    def allocate(self, view: ClusterView) -> Allocation:
        jobs = sorted([*view.running, *view.waiting])
        if self.policy.rules == OWN and view.running and not view.round_ended:
            return self._start_waiting(view)
        capacity = sum(view.pool.capacity)
        levels = {job: self.estimates.levels(job, capacity, view) for job in jobs}
        wanted = share_out(levels, {job: self.estimates.left(job, view) for job in jobs}, capacity)
        return Allocation(
            start=tuple(gangs_for(wanted, view, self._placement)),
            preempt=tuple(job for job in view.running if not wanted[job]),
        )

    def _start_waiting(self, view: ClusterView) -> Allocation:
        """Let who waits have a first device of those that are free."""
        free, wanted = view.pool.total, {job: gang.size for job, gang in view.running.items()}
        for job in sorted(view.waiting):
            levels = self.estimates.levels(job, free, view)
            if levels and levels[0][0] <= free:
                wanted[job] = levels[0][0]
                free -= levels[0][0]
        return Allocation(start=tuple(gangs_for(wanted, view, self._placement)))

    @property
    def _placement(self) -> str:
        return self.policy.placement if self.policy.rules == OWN else "spread"


def _estimates(policy: Optimus) -> Estimates:
    known = KnownWork() if policy.rules == OWN else StepsOfRelease()
    if policy.prediction == NOISY:
        return NoisyWork(known, policy.sigma)
    if policy.prediction == FITTED:
        return FittedWork(known, policy.threshold)
    return known
