"""The plan that is chosen under the goal, and three others of the Pareto front of memory, time and price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.advisor.ask import COST, MEMORY, TIME
from experiments.advisor.cluster.trials import PlanTrial
from experiments.core.units import human, significant

#: Alternatives that are named.
ALTERNATIVES = 3
#: Simulated figures that differ by less are no reason to name a plan.
SAME = 0.01
#: A plan whose step takes so many times that of the chosen one is no alternative to it.
SLOWEST = 2.5
GOALS: dict[str, Callable[[PlanTrial], float]] = {
    TIME: lambda trial: trial.seconds,
    MEMORY: lambda trial: trial.peak,
    COST: lambda trial: trial.price,
}


@dataclass(frozen=True)
class Choice:
    """The chosen trial, alternatives with why one might, the next best, and one that the margin refused."""

    chosen: PlanTrial
    alternatives: tuple[tuple[PlanTrial, str], ...]
    refused: PlanTrial | None
    keeps_margin: bool
    runner_up: PlanTrial | None = None

    @property
    def named(self) -> tuple[PlanTrial, ...]:
        return self.chosen, *(trial for trial, _ in self.alternatives)


def choose(trials: Sequence[PlanTrial], goal: str, capacity: float, margin: float) -> Choice | None:
    """Return the best of the trials that fit, within the margin if any is; ``None`` where none fits.

    On all nodes, unless the price is the goal: fewer would be another question.
    """
    allowed = (1 - margin) * capacity
    fitting = [trial for trial in trials if trial.fits]
    if not fitting:
        return None
    most = max(trial.candidate.nodes for trial in trials)
    own = [trial for trial in fitting if goal == COST or trial.candidate.nodes == most] or fitting
    within = [trial for trial in own if trial.peak <= allowed]
    rank = lambda trial: (GOALS[goal](trial), trial.seconds, trial.peak)  # noqa: E731
    chosen = min(within or own, key=rank)
    better = min(own, key=rank)
    refused = better if GOALS[goal](better) < GOALS[goal](chosen) else None
    others = sorted((trial for trial in within or own if trial is not chosen), key=rank)
    alternatives = tuple(_alternatives(fitting, chosen, refused, capacity))
    return Choice(chosen, alternatives, refused, bool(within), others[0] if others else None)


def front(trials: Sequence[PlanTrial]) -> list[PlanTrial]:
    """Those of which no other is as good in memory, time and price, and better in one."""
    return [one for one in trials if not any(_dominates(other, one) for other in trials)]


def _dominates(other: PlanTrial, one: PlanTrial) -> bool:
    pairs = [(rate(other), rate(one)) for rate in GOALS.values()]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _alternatives(
    fitting: Sequence[PlanTrial], chosen: PlanTrial, refused: PlanTrial | None, capacity: float
) -> list[tuple[PlanTrial, str]]:
    """What the margin refused, the fastest, the leanest, the cheapest, then those farthest from all named."""
    near = [trial for trial in fitting if _is_worth_naming(trial, chosen)]
    others = [trial for trial in front(near) if not _is_same(trial, chosen)]
    if not others:
        return []
    wanted = [refused] if refused in others else []
    wanted += [min(others, key=GOALS[goal]) for goal in (TIME, MEMORY, COST)]
    wanted += sorted(others, key=lambda trial: _distance(trial, [chosen, *wanted]), reverse=True)
    found: list[PlanTrial] = []
    for trial in wanted:
        if trial is not None and not any(_is_same(trial, one) for one in (*found, chosen)):
            found.append(trial)
    named = sorted(found[:ALTERNATIVES], key=lambda trial: -trial.peak)
    return [(trial, _why(trial, chosen, refused, capacity)) for trial in named]


def _is_worth_naming(trial: PlanTrial, chosen: PlanTrial) -> bool:
    """Not much slower; on fewer nodes it must be cheaper."""
    on_fewer = trial.candidate.nodes < chosen.candidate.nodes
    return trial.seconds <= SLOWEST * chosen.seconds and not (on_fewer and trial.price >= chosen.price)


def _is_same(one: PlanTrial, other: PlanTrial) -> bool:
    return all(abs(rate(one) - rate(other)) <= SAME * rate(other) for rate in GOALS.values())


def _distance(trial: PlanTrial, others: Sequence[PlanTrial | None]) -> float:
    """How far its memory is from that of the nearest of the others, as a share."""
    return min(abs(trial.peak / other.peak - 1) for other in others if other is not None)


def _why(trial: PlanTrial, chosen: PlanTrial, refused: PlanTrial | None, capacity: float) -> str:
    free = human(capacity - trial.peak, "bytes")
    faster = 100 * (1 - trial.seconds / chosen.seconds)
    if trial is refused:
        return f"better under the goal, but {free} to spare is under the margin"
    if trial.candidate.nodes < chosen.candidate.nodes:
        cheaper = significant(100 * (1 - trial.price / chosen.price))
        devices = f"{trial.candidate.devices:,} devices instead of {chosen.candidate.devices:,}"
        return f"{devices}: a step is {cheaper} % cheaper"
    if faster > 0:
        return f"{significant(faster)} % faster, {free} to spare"
    return f"{free} to spare, for larger micro-batches, longer sequences or smaller devices"
