"""Sia, SOSP'23: a type of device and a number of them for every job, by an integer program each minute.

A configuration is a type and a power of two of one node's devices or whole nodes (``configurations``). Each
job's goodput in each, over its own least, is raised to a power; the sum over all jobs is optimized by HiGHS
under the devices of each type (``program``). A configuration other than the present one is worth less by the
part of its life that a job would have lost to restarts. What is chosen is placed so that no job is scattered.

Jobs that choose their batch know no more than their agents measured, as Pollux' do (``planning.agents``);
they begin on one device and at most double. Where a table tells speeds by type of device instead, jobs keep
their GPUs and batch, and only the type is chosen. Between rounds nobody is started while something runs.

Not reproduced: jobs of several pipeline stages, and short profiles on each type before a job begins. Under
``rules: pollux`` restarts cost 30 s, also to the program. A measured run has the one type of this host, and
jobs that choose their batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Demand, Gang
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.policy import OWN, rules_of
from experiments.cluster.planning.agents import Agents
from experiments.cluster.planning.performance.oracle import DeviceTypeSpeed
from experiments.cluster.planning.placing import gangs_for
from experiments.cluster.policies.sia.configurations import Configuration, configurations
from experiments.cluster.policies.sia.goodputs import adaptive, rigid
from experiments.cluster.policies.sia.program import Offers, choose
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS

POLLUX = "pollux"
#: What a restart costs in the release.
RELEASE_DELAY = 30.0
NO_DEVICES = Demand(0)


@dataclass(frozen=True)
class Sia(ClusterPolicy):
    """Gives each job the type and number of devices that an integer program finds best for all."""

    name: ClassVar[str] = "sia"
    mechanism: ClassVar[str] = "resize to the best use"
    effort: ClassVar[str] = SECONDS
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"gradients", "throughput"})
    models: ClassVar[tuple[str, ...]] = ("goodput", "oracle")
    rigid: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"interval": 6.0}
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "a job starts on one device and gets more as it measures itself"
    }

    rules: str = rules_of(POLLUX)
    interval: float = knob(60.0, "time from one program to the next", low=1.0, high=86400.0, unit="s")
    power: float = knob(-0.5, "of goodputs in the sum; the smaller the fairer", low=-10.0, high=1.0)
    placement: str = knob("buddy", "which free devices a job gets", choices=tuple(PLACEMENTS))

    @property
    def round_seconds(self) -> float | None:
        return self.interval

    def begin(self) -> Decider:
        return _Rounds(self)


class _Rounds:
    """Keeps agents and what each running job was given."""

    facts: ClassVar[Mapping[str, Any]] = {"solver": "HiGHS (scipy milp)"}

    def __init__(self, policy: Sia) -> None:
        self.policy = policy
        self.delay = policy.restart_cost if policy.rules == OWN else RELEASE_DELAY
        self.agents = Agents()
        self.given: dict[int, Configuration] = {}

    def allocate(self, view: ClusterView) -> Allocation:
        if view.agents is not None:
            self.agents.follow(view)
        if (not view.running and not view.waiting) or (view.running and not view.round_ended):
            return Allocation()
        jobs = sorted((*view.running, *view.waiting))
        chosen = self._choose(jobs, view)
        wanted = {
            job: NO_DEVICES if option is None else Demand(option.gpus, types=(option.kind,))
            for job, option in chosen.items()
        }
        self.given = {job: option for job, option in chosen.items() if option is not None}
        start = [self._with_batch(gang) for gang in gangs_for(wanted, view, self.policy.placement)]
        moved = {gang.job for gang in start}
        for job in moved & self.agents.keys():
            self.agents[job].restarts += 1
        start += [
            again
            for gang in view.running.values()
            if gang.job in self.given and gang.job not in moved
            if (again := self._with_batch(gang)) != gang
        ]
        return Allocation(
            start=tuple(start), preempt=tuple(job for job in view.running if not wanted[job].gpus)
        )

    def _choose(self, jobs: list[int], view: ClusterView) -> dict[int, Configuration | None]:
        machines, free = view.pool.machines, view.pool.capacity
        options = configurations(machines, free)
        offers = [self._offers(job, options, view) for job in jobs]
        capacity = {
            kind: sum(free[node] for node in range(len(machines)) if machines[node].device == kind)
            for kind in machines.types
        }
        return dict(zip(jobs, choose(offers, capacity, self.policy.power), strict=True))

    def _offers(self, job: int, options: list[Configuration], view: ClusterView) -> Offers:
        """What a job may have; everything but what it has now is worth less."""
        model = view.performance
        if isinstance(model, DeviceTypeSpeed):
            offers, factor = rigid(job, model, view), self._factor(job, view)
        else:
            offers, factor = adaptive(self.agents[job], options), self._factor(job, view)
        now = self.given.get(job) if job in view.running else None
        if now is None:
            return offers
        return {option: worth * (1 if option == now else factor) for option, worth in offers.items()}

    def _factor(self, job: int, view: ClusterView) -> float:
        if view.now - view.jobs.submit[job] < self.delay:
            return 1.0
        if job in self.agents:
            return self.agents.restart_factor(job, self.delay, view)
        restarts = max(view.attained.executions[job] - 1, 0)
        age = view.now - view.jobs.submit[job]
        return max(age - self.delay * restarts, 0.0) / (age + self.delay) if age + self.delay else 1.0

    def _with_batch(self, gang: Gang) -> Gang:
        if gang.job not in self.agents:
            return gang
        several = self.given[gang.job].nodes > 1
        return replace(gang, batch=self.agents[gang.job].best_batch(several, gang.size))
