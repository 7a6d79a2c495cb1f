"""Adaptation as KungFu has it (OSDI'20): jobs of any scheduler resize themselves while they train.

A host policy decides who runs, as if jobs asked for what they now have. Inside each job the noise scale of
its gradients is looked at every ``interval``: above twice the batch for three evaluations, the job asks for
twice its workers and trains at twice the batch; below half of it, it gives up half of both. The cluster
grants what is free and wanted by nobody who waits. New workers get the state from the others: a resize costs
5 s and no checkpoint (in a measured run it goes through one, and costs what that costs there). A job whose
gradients are not measured stays as it was submitted.

The paper has mechanisms and examples and no numbers for these rules; the limits are chosen here. Not
reproduced: changing how replicas synchronize (pair-wise averaging, other trees), of which profiles tell
nothing; ``parallel/kungfu`` has that. Learning rates, taken to follow the batch, are not seen at all.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.cluster.interface import Allocation, ClusterPolicy, ClusterView, Decider, Demand, Gang, Pool
from experiments.cluster.policies.kungfu_adapt.adaptation import (
    DOUBLE,
    HALVE,
    KEEP,
    NoiseAdaptation,
    noise_scale,
)
from experiments.cluster.policies.kungfu_adapt.resizing import doubled, halved
from experiments.core import registry
from experiments.core.knobs import knob


@dataclass(frozen=True)
class KungFuAdapt(ClusterPolicy):
    """Lets the jobs of another scheduler double or halve their workers as their gradients get noisy."""

    name: ClassVar[str] = "kungfu_adapt"
    mechanism: ClassVar[str] = "resize to the best use"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    sees: ClassVar[frozenset[str]] = frozenset({"gradients", "model"})
    models: ClassVar[tuple[str, ...]] = ("goodput",)
    rigid: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {"interval": 2.0}
    exceptions: ClassVar[Mapping[str, str]] = {
        "closed_form": "a job whose gradients are noisy gets more devices while it runs"
    }

    host: str = knob("fifo", "who decides which jobs run", choices=("fifo", "tiresias"))
    interval: float = knob(60.0, "time from one evaluation to the next", low=1.0, high=86400.0, unit="s")
    evaluations: int = knob(3, "evaluations in a row before a job is resized", low=1, high=1000)
    above: float = knob(2.0, "noise scale over batch above which workers are doubled", low=0.1, high=1e6)
    below: float = knob(0.5, "noise scale over batch below which they are halved", low=0.0, high=1e6)
    resize_cost: float | None = knob(
        5.0, "time without progress when it gets another number of devices", low=0.0, high=86400.0, unit="s"
    )

    @property
    def round_seconds(self) -> float | None:
        return self.interval

    def insists_on(self, demand: Demand) -> Demand:
        """A job begins with all that it asks for."""
        return demand

    def begin(self) -> Decider:
        host = registry.create("cluster", self.host, {"placement": self.placement})
        assert isinstance(host, ClusterPolicy)
        return _Adapting(self, host.begin())


class _Adapting:
    """``sizes`` and ``batches`` of jobs that were resized, and what each one's monitor has seen."""

    def __init__(self, policy: KungFuAdapt, host: Decider) -> None:
        self.policy, self.host = policy, host
        self.sizes: dict[int, int] = {}
        self.batches: dict[int, int] = {}
        self.monitors: dict[int, NoiseAdaptation] = {}

    def allocate(self, view: ClusterView) -> Allocation:
        for job in view.ended:
            self.monitors.pop(job, None)
        decided = self.host.allocate(replace(view, jobs=self._as_they_are(view), round_ended=False))
        started = tuple(replace(gang, batch=self.batches.get(gang.job, 0)) for gang in decided.start)
        if not view.round_ended or view.agents is None:
            return replace(decided, start=started)
        resized = self._adapt(view, decided)
        return replace(decided, start=(*started, *resized))

    def _as_they_are(self, view: ClusterView) -> Any:
        """The jobs, wanting what they were resized to."""
        jobs = copy.copy(view.jobs)
        jobs.gpus = [self.sizes.get(job, gpus) for job, gpus in enumerate(view.jobs.gpus)]
        return jobs

    def _adapt(self, view: ClusterView, decided: Allocation) -> list[Gang]:
        """Resize running jobs that the host leaves alone; those that shrink first, then those that grow."""
        starting = {gang.job for gang in decided.start}
        pool = _pool_after(view, decided)
        nobody_waits = not view.waiting.keys() - starting
        actions = {
            job: self._evaluate(job, view)
            for job in view.running
            if job not in decided.preempt and job not in starting
        }
        resized = []
        for wanted in (HALVE, DOUBLE) if nobody_waits else (HALVE,):
            for job in [job for job, action in actions.items() if action == wanted]:
                gang = self._resize(view.running[job], wanted, view, pool)
                if gang is not None:
                    pool.give_back(view.running[job])
                    pool.take(gang)
                    self.sizes[job], self.batches[job] = gang.size, gang.batch
                    resized.append(gang)
        return resized

    def _evaluate(self, job: int, view: ClusterView) -> str:
        measured = view.measured(job)
        if measured is None:
            return KEEP
        policy = self.policy
        monitor = self.monitors.setdefault(
            job, NoiseAdaptation(policy.evaluations, policy.above, policy.below)
        )
        batch = measured.gpus * measured.each * (measured.accumulations + 1)
        return monitor.evaluate(noise_scale(measured, view.batch_limits(job).initial), batch)

    def _resize(self, gang: Gang, action: str, view: ClusterView, pool: Pool) -> Gang | None:
        """The gang with twice or half the workers and batch; ``None`` where limits or devices forbid it."""
        limits, measured = view.batch_limits(gang.job), view.measured(gang.job)
        assert measured is not None
        batch = measured.gpus * measured.each * (measured.accumulations + 1)
        if action == DOUBLE:
            devices = doubled(gang, pool)
            if devices is None or 2 * batch > limits.most or len(devices) > limits.most_gpus:
                return None
            return Gang(gang.job, devices, batch=2 * batch)
        if gang.size < 2 or batch / 2 < limits.initial:
            return None
        return Gang(gang.job, halved(gang, pool.machines), batch=batch // 2)


def _pool_after(view: ClusterView, decided: Allocation) -> Pool:
    """What is free once the host's decision is carried out."""
    pool = view.pool.copy()
    for job in decided.preempt:
        pool.give_back(view.running[job])
    for gang in decided.start:
        if gang.job in view.running:
            pool.give_back(view.running[gang.job])
        pool.take(gang)
    return pool
