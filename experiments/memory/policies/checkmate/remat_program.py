"""Checkmate's rematerialization program (Jain et al., MLSys 2020) on groups of forward ops and stages of the
backward pass.

The forward pass is n groups, the backward pass stages. A *value* is what a group leaves behind: what later
groups read (its border), or what only the backward pass reads. Variables, as in the paper: R[s,i], group i
runs again at the beginning of stage s; S[s,v], value v is kept into stage s; FREE[s,v,i], v is given back
right after group i ran again in stage s. The frontier form of the paper is built in: every group has run once
before the first stage, and backward ops run once. Cost is the time of all reruns; memory is bounded while
each group runs, first or again, and in each stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.memory.planning.milp import MixedIntegerProgram, MixedIntegerSolution, NodeBound

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GroupValue:
    """The ``bytes`` that ``group`` leaves behind for others.

    No group from ``rests`` on reads them in the first forward pass.
    """

    group: int
    bytes: float
    rests: int


@dataclass(frozen=True)
class Problem:
    """The groups and stages of a step, of which recomputation is to be decided.

    Groups have ``seconds``, scratch ``bytes`` and the values they read (``inputs``); stages what each
    reads.

    ``forward`` and ``stages`` are the bytes left for values while each group first runs, and during each
    stage.
    """

    seconds: Sequence[float]
    scratch: Sequence[float]
    inputs: Sequence[Sequence[int]]
    values: Sequence[GroupValue]
    forward: Sequence[float]
    stages: Sequence[float]
    required: Sequence[Sequence[int]]

    def fronts(self) -> list[int]:
        """For each stage the last group of which it or a later stage reads anything.

        Those beyond it are done with.
        """
        found, front = [], -1
        for read in reversed(self.required):
            front = max([front, *(self.values[v].group for v in read)])
            found.append(front)
        return found[::-1]

    def scaled(self, share: float) -> Problem:
        """The same with a share of the bytes."""
        forward, stages = [share * room for room in self.forward], [share * room for room in self.stages]
        return Problem(self.seconds, self.scratch, self.inputs, self.values, forward, stages, self.required)


@dataclass(frozen=True)
class Schedule:
    """``kept[s, v]`` and ``again[s, i]``; ``gap`` is None where the program was not solved to its end."""

    kept: Flags
    again: Flags

    def seconds(self, problem: Problem) -> float:
        return float((self.again @ np.array(problem.seconds)).sum())


def complete(problem: Problem, kept: Flags) -> Schedule:
    """The least reruns for ``kept``, by the paper's closed form, and of ``kept`` only what is of use."""
    again = np.zeros((len(problem.stages), len(problem.seconds)), np.bool_)
    for stage in range(len(problem.stages)):
        after = (
            kept[stage + 1] if stage + 1 < len(problem.stages) else np.zeros(len(problem.values), np.bool_)
        )
        wanted = set(problem.required[stage]) | set(np.nonzero(after)[0].tolist())
        for v in wanted:
            again[stage, problem.values[v].group] |= not kept[stage, v]
        for group in reversed(range(len(problem.seconds))):
            if again[stage, group]:
                for v in problem.inputs[group]:
                    again[stage, problem.values[v].group] |= not kept[stage, v]
    return Schedule(_useful(problem, kept, again), again)


def _useful(problem: Problem, kept: Flags, again: Flags) -> Flags:
    """Values kept into a stage that read them there, or hand them on to a later one that does."""
    found = np.zeros_like(kept)
    later = np.zeros(len(problem.values), np.bool_)
    for stage in reversed(range(len(problem.stages))):
        read = {v for group in np.nonzero(again[stage])[0].tolist() for v in problem.inputs[group]}
        for v in range(len(problem.values)):
            made = again[stage, problem.values[v].group]
            later[v] = kept[stage, v] and (
                (v in read) or (not made and (v in problem.required[stage] or later[v]))
            )
        found[stage] = later
    return found


def fits(problem: Problem, schedule: Schedule) -> bool:
    """Memory is enough while every group runs, first and again, and in every stage."""
    sizes = np.array([value.bytes for value in problem.values])
    for group, room in enumerate(problem.forward):
        resting = [v for v, value in enumerate(problem.values) if value.rests <= group]
        if sizes[resting][schedule.kept[0][resting]].sum() > room * (1 + 1e-9):
            return False
    return all(
        _stage_peak(problem, schedule, s, sizes) <= room * (1 + 1e-9) for s, room in enumerate(problem.stages)
    )


def _stage_peak(problem: Problem, schedule: Schedule, stage: int, sizes: npt.NDArray[np.float64]) -> float:
    last = stage + 1 == len(problem.stages)
    stays = set(problem.required[stage]) | (
        set() if last else set(np.nonzero(schedule.kept[stage + 1])[0].tolist())
    )
    here = set(np.nonzero(schedule.kept[stage])[0].tolist())
    groups = np.nonzero(schedule.again[stage])[0].tolist()
    peak = sum(sizes[v] for v in here)
    for position, group in enumerate(groups):
        made = {v for v, value in enumerate(problem.values) if value.group == group}
        peak = max(peak, sum(sizes[v] for v in here) + sum(sizes[v] for v in made) + problem.scratch[group])
        here |= made
        read_later = {v for g in groups[position + 1 :] for v in problem.inputs[g]}
        touched = made | set(problem.inputs[group])
        here -= {v for v in touched if v not in stays and v not in read_later}
    return float(max(peak, sum(sizes[v] for v in here)))


def build(problem: Problem) -> tuple[MixedIntegerProgram, npt.NDArray[np.int64]]:
    """The program and the numbers of the variables S[s, v]."""
    return _Builder(problem).build()


class _Builder:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.program = problem, MixedIntegerProgram()
        groups, values = len(problem.seconds), len(problem.values)
        unit = max([*problem.seconds, 1e-12])
        fronts = problem.fronts()
        self.kept = np.array(
            [
                [
                    self.program.binary(fixed=None if value.group <= front else False)
                    for value in problem.values
                ]
                for front in fronts
            ]
        )
        self.again = np.array(
            [
                [
                    self.program.binary(problem.seconds[i] / unit, None if i <= front else False)
                    for i in range(groups)
                ]
                for front in fronts
            ]
        )
        self.fronts = fronts
        self.users = [[i for i in range(groups) if v in problem.inputs[i]] for v in range(values)]
        self.made = [[v for v in range(values) if problem.values[v].group == i] for i in range(groups)]
        self.mebi = max([1.0, *problem.stages, *problem.forward]) / 1000

    def build(self) -> tuple[MixedIntegerProgram, npt.NDArray[np.int64]]:
        for group, room in enumerate(self.problem.forward):
            terms = [
                (int(self.kept[0, v]), value.bytes / self.mebi)
                for v, value in enumerate(self.problem.values)
                if value.rests <= group
            ]
            if terms:
                self.program.row(terms, at_most=room / self.mebi)
        for stage in range(len(self.problem.stages)):
            self._order(stage)
            self._memory(stage)
        return self.program, self.kept

    def _order(self, stage: int) -> None:
        """What is kept on was kept or is made; what is read is kept or is made."""
        row, values = self.program.row, self.problem.values
        for v, value in enumerate(values):
            made = int(self.again[stage, value.group])
            if stage + 1 < len(self.kept):
                row(
                    [(int(self.kept[stage + 1, v]), 1), (int(self.kept[stage, v]), -1), (made, -1)], at_most=0
                )
            if v in self.problem.required[stage]:
                row([(int(self.kept[stage, v]), 1), (made, 1)], at_least=1)
            for user in self.users[v]:
                terms = [(int(self.again[stage, user]), 1), (made, -1), (int(self.kept[stage, v]), -1)]
                row(terms, at_most=0)

    def _memory(self, stage: int) -> None:
        """U after each group: before it, plus what it makes, less what is freed after it."""
        problem, program, room = self.problem, self.program, self.problem.stages[stage] / self.mebi
        before: list[tuple[int, float]] = [
            (int(self.kept[stage, v]), value.bytes / self.mebi) for v, value in enumerate(problem.values)
        ]
        program.row(before, at_most=room)
        for group in range(self.fronts[stage] + 1):
            runs = int(self.again[stage, group])
            made = sum(problem.values[v].bytes for v in self.made[group]) / self.mebi
            program.row([*before, (runs, made + problem.scratch[group] / self.mebi)], at_most=room)
            used = program.number(high=max(room, 0.0))
            freed = [
                (self._free(stage, v, group), problem.values[v].bytes / self.mebi)
                for v in dict.fromkeys((*self.made[group], *problem.inputs[group]))
                if v not in problem.required[stage]
            ]
            terms = [*before, (runs, made), *((number, -size) for number, size in freed), (used, -1.0)]
            program.row(terms, at_least=0, at_most=0)
            before = [(used, 1.0)]

    def _free(self, stage: int, v: int, group: int) -> int:
        """FREE is 1 exactly when ``group`` runs, no later group that reads ``v`` does, and it is
        not kept on.
        """
        free = self.program.binary()
        hazards = [(int(self.again[stage, user]), 1.0) for user in self.users[v] if user > group]
        if stage + 1 < len(self.kept):
            hazards.append((int(self.kept[stage + 1, v]), 1.0))
        runs = int(self.again[stage, group])
        # 1 - FREE <= hazards + (1 - R), and (most hazards) (1 - FREE) >= hazards + (1 - R).
        self.program.row([(free, 1), (runs, -1), *hazards], at_least=0)
        most = len(hazards) + 1.0
        self.program.row([(free, -most), (runs, 1), *((n, -c) for n, c in hazards)], at_least=1 - most)
        return free


def solve_exactly(
    problem: Problem, bound: NodeBound, gap: float
) -> tuple[Schedule, MixedIntegerSolution] | None:
    """The best schedule found within ``bound``; ``None`` where there is none or none was found."""
    program, kept = build(problem)
    solution = program.solve(bound, gap)
    if solution is None:
        return None
    return complete(problem, solution.values[kept] > 0.5), solution


def solve_by_rounding(
    problem: Problem, bound: NodeBound | None = None, share: float = 0.9
) -> Schedule | None:
    """Solve the relaxed program at ``share`` of the memory and round S at 0.1 to 0.9.

    The cheapest schedule that fits all of the memory.
    """
    program, kept = build(problem.scaled(share))
    solution = program.solve(bound, relaxed=True)
    if solution is None:
        return None
    tried = [complete(problem, solution.values[kept] > level / 10) for level in range(1, 10)]
    fitting = [schedule for schedule in tried if fits(problem, schedule)]
    return min(fitting, key=lambda schedule: schedule.seconds(problem), default=None)
