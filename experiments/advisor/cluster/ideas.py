"""What a plan divides, in words, and how many plans of each idea there were, with what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.advisor.ask import MEMORY
from experiments.advisor.cluster.candidates import Candidate
from experiments.advisor.cluster.space import Space
from experiments.core.units import human, significant
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: The ideas, the first that applies is a plan's.
IDEAS = (
    "Optimizer on the host",
    "Sequences divided",
    "Experts divided",
    "Tensor parallel and pipelines",
    "Tensor parallel",
    "Pipelines",
    "ZeRO 3 (FSDP)",
    "ZeRO 1 and 2",
    "Data parallel, states whole",
)


class PlanFigures(NamedTuple):
    """Of the chosen plan: its nodes, the seconds of a step and its device-seconds."""

    nodes: int
    seconds: float
    price: float


@dataclass(frozen=True)
class Rejected:
    """How many plans of an idea were not chosen, and why, in words."""

    idea: str
    plans: int
    reason: str


def ideas_of(space: Space) -> Ints:
    """The place in ``IDEAS`` of every plan."""
    plans = space.found.plans
    tensor, pipeline = plans.tensor > 1, plans.pipeline > 1
    applies = [
        plans.host == 1,
        plans.context > 1,
        plans.expert > 1,
        tensor & pipeline,
        tensor,
        pipeline,
        plans.zero == 3,
        plans.zero > 0,
    ]
    found: Ints = np.select(applies, list(range(len(applies))), len(IDEAS) - 1)
    return found


def idea_of(candidate: Candidate) -> str:
    one = candidate.layout
    applies = (
        one.host_optimizer,
        one.context > 1,
        one.expert > 1,
        one.tensor > 1 and one.pipeline > 1,
        one.tensor > 1,
        one.pipeline > 1,
        one.zero == 3,
        one.zero > 0,
    )
    return IDEAS[applies.index(True) if True in applies else -1]


def rejections(space: Space, chosen: Candidate, goal: str, capacity: float, allowed: float) -> list[Rejected]:
    """Why plans were not chosen, by idea, by closed forms; ``allowed`` bytes leave the margin free.

    What arithmetic refuses comes last, counted by its rule.
    """
    found, ideas = space.found, ideas_of(space)
    best = space.figures(chosen.layout)
    told = best or (chosen.step_time or np.inf, chosen.peak_memory or np.inf)
    rows = []
    for number, idea in enumerate(IDEAS):
        places = np.flatnonzero((ideas == number) & np.isfinite(found.step_time))
        own = idea == idea_of(chosen) and space.nodes == chosen.nodes
        if count := len(places) - own:
            figures = found.step_time[places], found.peak_memory[places]
            rows.append(Rejected(idea, count, _why(*figures, told, goal, capacity, allowed, own)))
    refused = [
        Rejected(f"Not evaluated: {rule}", count, "arithmetic") for rule, count in space.refused.items()
    ]
    return [*rows, *refused]


def _why(
    time: Floats,
    memory: Floats,
    best: tuple[float, float],
    goal: str,
    capacity: float,
    allowed: float,
    is_own: bool,
) -> str:
    """``best`` are seconds and bytes of the chosen plan, by closed form as the others are."""
    fits, least = memory <= allowed, float(memory.min())
    if not (memory <= capacity).any():
        return f"need {human(least, 'bytes')} at least: {human(least - capacity, 'bytes')} too much"
    if not fits.any():
        return f"fit, but leave less than the margin: {human(capacity - least, 'bytes')} at most"
    few = f"{int(fits.sum()):,} of {len(fits):,} fit"
    if is_own:
        return f"{few}; the answer is the best of them"
    if goal == MEMORY:
        return few + _compare(least, best[1], "leanest", "larger")
    return few + _compare(float(time[fits].min()), best[0], "fastest", "slower")


def _compare(other: float, best: float, what: str, worse: str) -> str:
    """How much worse the best of an idea is; closed forms may hold it better than what was simulated did."""
    share = significant(100 * abs(other / best - 1))
    if other < best:
        return f"; the {what} is {share} % better by closed form, not when simulated"
    return f", the {what} {share} % {worse}"


def other_sizes(spaces: Sequence[Space], chosen: PlanFigures, allowed: float) -> list[Rejected]:
    """What became of the plans on another number of nodes than the chosen plan's."""
    rows = []
    for space in spaces:
        if space.nodes != chosen.nodes:
            count = len(space.places) + sum(space.refused.values())
            rows.append(Rejected(f"On {space.nodes:,} of the nodes", count, _why_not(space, chosen, allowed)))
    return rows


def _why_not(space: Space, chosen: PlanFigures, allowed: float) -> str:
    fits = np.isfinite(space.found.step_time) & (space.found.peak_memory <= allowed)
    if not fits.any():
        return "none fits with the margin free"
    seconds = float(space.found.step_time[fits].min())
    slower = significant(100 * (seconds / chosen.seconds - 1))
    price = seconds * space.devices / chosen.price
    return f"{int(fits.sum()):,} fit, the fastest {slower} % slower at {significant(price)} times the price"


def misfits(space: Space, capacity: float) -> list[Candidate]:
    """The fastest plan of each idea of those that do not fit."""
    found, ideas = space.found, ideas_of(space)
    chosen = []
    for number in range(len(IDEAS)):
        lacking = (ideas == number) & np.isfinite(found.step_time) & (found.peak_memory > capacity)
        if lacking.any():
            chosen.append(space.candidate(int(np.argmin(np.where(lacking, found.step_time, np.inf)))))
    return chosen
