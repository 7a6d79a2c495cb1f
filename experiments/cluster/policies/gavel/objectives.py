"""Gavel's objectives: each divides time among the jobs that are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from experiments.cluster.interface import Contest, Divider, Division
from experiments.cluster.planning.time_programs import SOLVER, TimeProgram, fair_need
from experiments.cluster.policies.gavel.hierarchy import water_filling
from experiments.core.errors import Infeasible
from experiments.workloads.step import Floats

if TYPE_CHECKING:
    from experiments.cluster.policies.gavel import Gavel

#: Between which ends (s) the smallest is looked for, the factor at which that stops, and by how much the
#: upper one grows where nobody ends in time.
SOONEST, LATEST, NEAR, FURTHER = 100.0, 1e6, 1.05, 10.0
#: Relative change of the worst ratio below which it is not looked for any longer, and how often at most.
SAME, TIMES = 1e-3, 50


class Objective(Divider):
    """What all have in common."""

    counts_time: ClassVar[bool] = False

    facts: Mapping[str, Any] = MappingProxyType({"solver": SOLVER})

    def __init__(self, policy: Gavel) -> None:
        self.policy = policy
        self.packs = policy.packing
        self.reset_seconds = policy.reset_interval
        self.heterogeneity = policy.heterogeneity

    @property
    def shuffles(self) -> bool:  # type: ignore[override]
        """Whether types are alike to it."""
        return not self.heterogeneity

    def speed(self, contest: Contest) -> Floats:
        """Speeds; where types are taken to be alike those of each job's fastest type, or time itself."""
        if self.heterogeneity:
            return contest.speed
        if self.counts_time:
            return np.ones((len(contest), len(contest.types)))
        return np.repeat(contest.speed.max(axis=1, keepdims=True), len(contest.types), axis=1)


class MaxMin(Objective):
    """The largest smallest speed, normalized by that of an equal split, per GPU and weight (section 4.1)."""

    counts_time: ClassVar[bool] = True

    def divide(self, contest: Contest) -> Division:
        speed = self.speed(contest)
        program = TimeProgram(contest, speed)
        found = program.highest_level(fair_need(contest, speed))
        if found is None:
            raise Infeasible("finds no division of time", f"policy gavel at t={contest.now:g}")
        return program.division(found[1])


class Makespan(Objective):
    """All jobs end by a common time, the smallest found by bisection (section 4.2)."""

    def divide(self, contest: Contest) -> Division:
        program = TimeProgram(contest, self.speed(contest))
        found = program.highest_level(contest.left)
        if found is None:
            raise Infeasible("finds no division of time", f"policy gavel at t={contest.now:g}")
        level, shares = found
        within = program.any_of(contest.left / first_feasible(1 / level))
        return program.division(shares if within is None else within)


def first_feasible(smallest: float) -> float:
    """The end that the bisection stops at, where ``smallest`` is the smallest that jobs can keep."""
    low, high, last = SOONEST, LATEST, LATEST
    feasible: float | None = None
    while feasible is None:
        while NEAR * low < high:
            middle = (low + high) / 2
            if middle >= smallest:
                feasible = high = middle
            else:
                low = middle
        low, high, last = last, last * FURTHER, last * FURTHER
    return feasible


class FinishTimeFairness(Objective):
    """The smallest worst ratio of a job's time to that on a part of its own of the cluster (section 4.2).

    With ``X`` given, the worst ratio follows; with a ratio given, the speeds that it needs do. The two take
    turns until the ratio stays.
    """

    def __init__(self, policy: Gavel) -> None:
        super().__init__(policy)
        self.spent: dict[int, float] = {}
        self.before: dict[int, tuple[float, float]] = {}

    def divide(self, contest: Contest) -> Division:
        speed = self.speed(contest)
        alone = isolated_speed(contest, speed)
        self._count_isolated(contest, alone)
        isolated = np.array([self.spent[job] for job in contest.jobs]) + contest.left / alone
        program = TimeProgram(contest, speed)
        shares = isolated_shares(contest)
        shares = np.concatenate((shares.ravel(), np.zeros(program.size - shares.size)))
        worst = self._worst(program, shares, contest, isolated)
        for _ in range(TIMES):
            need = contest.left / np.maximum(worst * isolated - contest.elapsed, 1e-9)
            found = program.highest_level(need)
            if found is None:
                break
            ratio = self._worst(program, found[1], contest, isolated)
            if ratio >= worst * (1 - SAME):
                break
            worst, shares = ratio, found[1]
        return program.division(shares)

    def _count_isolated(self, contest: Contest, alone: Floats) -> None:
        """Add to each job the time that what it did since the last division takes on a part of its own."""
        for row, job in enumerate(contest.jobs):
            left = float(contest.left[row])
            before, speed = self.before.get(job, (left, 1.0))
            self.spent[job] = self.spent.get(job, 0.0) + (before - left) / speed
            self.before[job] = (left, float(alone[row]))

    @staticmethod
    def _worst(program: TimeProgram, shares: Floats, contest: Contest, isolated: Floats) -> float:
        rates = np.maximum(program.rates @ shares, 1e-300)
        return float(((contest.elapsed + contest.left / rates) / isolated).max())


def isolated_shares(contest: Contest) -> Floats:
    """An equal part of each type for each job, of which no job can use more than all its time."""
    shares = contest.counts / len(contest) / contest.gpus[:, None]
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def isolated_speed(contest: Contest, speed: Floats) -> Floats:
    """Work per second of each job on its equal part."""
    return np.asarray((speed * isolated_shares(contest)).sum(axis=1))


class Throughput(Objective):
    """The largest sum of speeds; ``priced``: by the price of the device, deadlines kept where all can be."""

    def __init__(self, policy: Gavel, *, priced: bool = False) -> None:
        super().__init__(policy)
        self.priced = priced

    def divide(self, contest: Contest) -> Division:
        program = TimeProgram(contest, self.speed(contest))
        prices = self._prices(contest) if self.priced else np.ones(len(contest.types))
        worth = np.asarray(program.rates.sum(axis=0)).ravel() / np.tile(prices, len(program.sharers))
        shares = program.most(worth, self._least(contest)) if self.priced else None
        if shares is None:
            shares = program.most(worth)
        if shares is None:
            raise Infeasible("finds no division of time", f"policy gavel at t={contest.now:g}")
        return program.division(shares)

    def _prices(self, contest: Contest) -> Floats:
        named = self.policy.price_by_type()
        known = zip(contest.types, contest.prices.tolist(), strict=True)
        return np.array([told or _price(kind, named) for kind, told in known])

    @staticmethod
    def _least(contest: Contest) -> Floats:
        """Speeds that keep the deadlines which are still ahead."""
        if contest.deadline is None:
            return np.zeros(len(contest))
        until = contest.deadline - contest.now
        return np.where(until > 0, contest.left / np.maximum(until, 1e-9), 0.0)


def _price(kind: str, named: Mapping[str, float]) -> float:
    fits = [name for name in named if kind == name or kind.startswith(f"{name}-")]
    if not fits:
        raise Infeasible(f"has no price of {kind or 'a device without a type'}", "knobs.prices")
    return named[max(fits, key=len)]


class Hierarchical(Objective):
    """Fairness of tenants, and of each one's jobs or in their order (section 4.3)."""

    counts_time: ClassVar[bool] = True

    def divide(self, contest: Contest) -> Division:
        speed = self.speed(contest)
        program = TimeProgram(contest, speed)
        shares = water_filling(program, contest, speed, in_order=self.policy.inside == "fifo")
        return program.division(shares)


OBJECTIVES: Mapping[str, Callable[[Gavel], Objective]] = MappingProxyType(
    {
        "max_min": MaxMin,
        "makespan": Makespan,
        "ftf": FinishTimeFairness,
        "throughput": Throughput,
        "cost": partial(Throughput, priced=True),
        "hierarchical": Hierarchical,
    }
)
