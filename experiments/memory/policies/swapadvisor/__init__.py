"""SwapAdvisor (Huang et al., ASPLOS 2020): a genetic search over schedules and memory layouts; the swaps
follow.

A candidate is an order of the ops and a layout of a pool: which class of objects serves which tensor size,
how many objects each class has. For a candidate the swaps are planned by Belady's rule in two passes, the
second of which begins with the persistent tensors that the first one ended with; its fitness is the time of
the step with three streams (``belady``). Parents are drawn with probability softmax(-time / best time). A
child takes a prefix of one parent's order and the rest in the other's; sizes and classes are cut likewise. A
mutation runs any ready op instead of the next one, moves a size to the next class, or gives objects of a
class to another.

Left open by the paper: the constants (population, chance of mutation, elite) are knobs; the first candidate
is the order of the step with each size in its own class. Where powers of two leave too few bytes for some op,
classes are the sizes themselves. If the second pass ends with other persistent tensors than it began with,
moves at the end restore them (not shown in the paper). A tensor whose copy on the host is still good leaves
for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from experiments.core.budget import Budget
from experiments.core.errors import Infeasible
from experiments.core.knobs import knob
from experiments.core.policy import SECONDS
from experiments.memory.interface import (
    DeviceView,
    MemoryMove,
    MemoryPlan,
    MemoryPolicy,
    MemoryPool,
    Offload,
    PlaceTensor,
    Prefetch,
)
from experiments.memory.policies.swapadvisor.belady import Problem, Schedule, step_time, swaps_of
from experiments.memory.policies.swapadvisor.precedence import Precedence
from experiments.memory.policies.swapadvisor.size_classes import Layout, SizeClasses
from experiments.workloads.step import Floats, Step


@dataclass(frozen=True)
class Candidate:
    """An order and a layout with the swaps that follow and the time of the step.

    There are no swaps where an op lacks objects.
    """

    order: tuple[int, ...]
    layout: Layout
    schedule: Schedule | None
    time: float


@dataclass
class Search:
    """A population of candidates. ``best`` are the best times after each generation."""

    problem: Problem
    precedence: Precedence
    classes: SizeClasses
    random: np.random.Generator
    chance: float
    reorder: bool
    budget: Budget
    best: list[float] = field(default_factory=list)

    def evaluate(self, order: Sequence[int], layout: Layout) -> Candidate:
        kinds = [layout.serves[group] for group in self.classes.group_of.tolist()]
        schedule = swaps_of(self.problem, order, kinds, layout.counts)
        time = float("inf") if schedule is None else step_time(self.problem, order, schedule)
        return Candidate(tuple(order), layout, schedule, time)

    def mutant(self, parent: Candidate) -> Candidate:
        order = (
            self.precedence.mutate(parent.order, self.chance, self.random) if self.reorder else parent.order
        )
        return self.evaluate(order, self.classes.mutate(parent.layout, self.chance, self.random))

    def child(self, first: Candidate, second: Candidate) -> Candidate:
        cut = self.random.random()
        order = self.precedence.cross(first.order, second.order, int(cut * len(first.order)))
        layout = self.classes.cross(first.layout, second.layout, self.random.random())
        if self.reorder:
            order = self.precedence.mutate(order, self.chance, self.random)
        return self.evaluate(order, self.classes.mutate(layout, self.chance, self.random))

    def run(self, first: Candidate, population: int, elite: int) -> Candidate:
        """Generations until the budget's candidates have been evaluated."""
        group = [first]
        while len(group) < population and self.budget.take():
            group.append(self.mutant(first))
        group.sort(key=lambda candidate: candidate.time)
        self.best.append(group[0].time)
        while self.budget.done < self.budget.most:
            group = self._generation(group, population, elite)
            self.best.append(group[0].time)
        return group[0]

    def _generation(self, group: list[Candidate], population: int, elite: int) -> list[Candidate]:
        chances = selection([candidate.time for candidate in group])
        found = group[:elite]
        while len(found) < population and self.budget.take():
            first, second = self.random.choice(len(group), 2, p=chances).tolist()
            found.append(self.child(group[first], group[second]))
        return sorted(found, key=lambda candidate: candidate.time)


def selection(times: Sequence[float]) -> Floats:
    """softmax(-time / best time); a candidate that cannot run is never chosen."""
    relative = np.array(times) / min(times)
    weights: Floats = np.where(np.isfinite(relative), np.exp(1 - np.minimum(relative, 700.0)), 0.0)
    total = float(weights.sum())
    return weights / total


def moves_of(problem: Problem, schedule: Schedule) -> tuple[MemoryMove, ...]:
    """Return the moves of a schedule; departures come before returns at one position.

    Persistent tensors that do not begin on the device are resident on the host.
    """
    placed = [PlaceTensor(0, t) for t in problem.persistent if not schedule.start[t]]
    out = [Offload(at, tensor, at - 1) for at, tensor, _ in schedule.departures.tolist()]
    back = [Prefetch(at, tensor, keep=bool(kept)) for at, tensor, *_, kept in schedule.returns.tolist()]
    moves: list[MemoryMove] = [*placed, *out, *sorted(back, key=lambda move: move.at)]
    return tuple(
        sorted(moves, key=lambda move: (move.at, move.action == "prefetch", move.action == "offload"))
    )


@dataclass(frozen=True)
class SwapAdvisor(MemoryPolicy):
    """A genetic search over the order of ops and the classes of a memory pool, with Belady's swaps."""

    name: ClassVar[str] = "swapadvisor"
    mechanism: ClassVar[str] = "offload"
    modes: ClassVar[tuple[str, ...]] = ("simulated", "measured")
    effort: ClassVar[str] = SECONDS
    quick: ClassVar[Mapping[str, Any]] = {"evaluations": 60, "population": 12}

    evaluations: int = knob(300, "candidates evaluated", low=1, high=1_000_000)
    population: int = knob(48, "candidates of a generation", low=2, high=1000)
    elite: int = knob(2, "best candidates that live on", low=1, high=100)
    mutation: float = knob(0.05, "chance that an element mutates", low=0.0, high=1.0)
    reorder: bool = knob(True, "the order of ops is searched too")
    classes: str = knob("power_of_two", "sizes of objects", choices=("power_of_two", "exact"))

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        if step.live_peak <= device.capacity:
            return MemoryPlan()
        classes = self._classes(step, device.capacity)
        problem = Problem(step, device.machine, self.evaluations)
        budget = Budget(self.evaluations, device.progress, "candidates")
        search = Search(
            problem, Precedence(step), classes, device.random, self.mutation, self.reorder, budget
        )
        budget.spend(1)
        first = search.evaluate(range(len(step.ops)), classes.first())
        best = search.run(first, self.population, self.elite)
        assert best.schedule is not None  # the first candidate has objects enough for every op
        return MemoryPlan(
            moves_of(problem, best.schedule),
            notes={
                "evaluations": budget.done,
                "first_time": first.time,
                "predicted_time": best.time,
                "best_by_generation": search.best,
                **(budget.caveat("evaluations") if budget.ended_for_time else {}),
            },
            order=() if best.order == first.order else best.order,
            space=pool_of(step, classes, best.layout),
        )

    def _classes(self, step: Step, capacity: int) -> SizeClasses:
        """Powers of two if every op then has its objects, else exact sizes; ``Infeasible`` where these are
        too many.
        """
        for exact in (False, True) if self.classes == "power_of_two" else (True,):
            classes = SizeClasses(step, capacity, exact)
            if classes.feasible(classes.own):
                return classes
        missing = classes.total(classes.least(classes.own)) - classes.capacity
        raise Infeasible(
            f"the objects that single ops need together lack {missing} bytes of {classes.capacity}",
            "swapadvisor",
            missing,
        )


def pool_of(step: Step, classes: SizeClasses, layout: Layout) -> MemoryPool:
    """The layout as a plan says it, with an object for scratch where ops use any."""
    scratch = int(step.ops.workspace.max(initial=0))
    sizes = [*zip(classes.bytes, layout.counts, strict=True), *([(scratch, 1)] if scratch else [])]
    serves = [
        (tensor, layout.serves[group])
        for tensor, group in enumerate(classes.group_of.tolist())
        if step.tensors.bytes[tensor]
    ]
    return MemoryPool("classes", classes=tuple(sizes), serves=tuple(serves))
