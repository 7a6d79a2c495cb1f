"""A step as a small rematerialization problem: groups of forward ops, and stages of the backward pass.

Groups end where few bytes lead on, module by module where the step knows its modules; a stage begins where
the backward pass first reads something of another group. Tensors that cannot be recomputed by the time they
are needed belong to no value and stay.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.memory.interface import MemoryPlan, Recompute
from experiments.memory.interface.activations import last_forward_op
from experiments.memory.planning.rematerialize import Rematerializer, with_drops
from experiments.memory.policies.checkmate.remat_program import Flags, GroupValue, Problem, Schedule
from experiments.workloads.step import Floats, Step


@dataclass(frozen=True)
class Coarse:
    """The step as groups of ops, stages and values.

    ``ends`` are the last ops of the groups, ``begins`` the first ops of the stages, ``members`` tensors
    by value.
    """

    step: Step
    remake: Rematerializer
    ends: tuple[int, ...]
    begins: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]
    problem: Problem

    def plan(self, schedule: Schedule) -> MemoryPlan | None:
        """Drops and reruns of ``schedule``; ``None`` where something it recomputes cannot be."""
        value_of = {t: v for v, tensors in enumerate(self.members) for t in tensors}
        reruns = []
        for stage, begin in enumerate(self.begins):
            kept = schedule.kept[stage]
            after = schedule.kept[stage + 1] if stage + 1 < len(self.begins) else np.zeros_like(kept)

            def present(t: int, begin: int = begin, kept: Flags = kept) -> bool:
                return bool(kept[value_of[t]]) if t in value_of else bool(self.step.last_use[t] >= begin)

            needed = {v for v in range(len(kept)) if after[v] or v in self.problem.required[stage]}
            wanted = [t for t, v in value_of.items() if v in needed and not kept[v]]
            chain = self.remake.chain(wanted, present, begin)
            if chain.stuck:
                return None
            if wanted:
                reruns.append(Recompute(begin, chain.ops, tuple(wanted)))
        return MemoryPlan(with_drops(self.step, self.remake.lineage, reruns))


def group_ends(step: Step, most: int) -> tuple[int, ...]:
    """Last ops of at most ``most`` groups of forward ops of about equal saved bytes and seconds.

    Within each share of the forward pass the group ends where the fewest bytes lead on, at a module's end if
    it can. Where there are groups enough, each op is one.
    """
    loss = last_forward_op(step)
    if loss < most:
        return tuple(range(loss + 1))
    seconds, sizes = step.ops.seconds[: loss + 1], np.zeros(loss + 1)
    spans = ~step.persistent & (step.first_use <= loss) & (step.last_use > loss)
    np.add.at(sizes, step.first_use[spans], step.tensors.bytes[spans])
    weight = sizes / max(1.0, sizes.sum()) + seconds / max(1e-12, float(seconds.sum()))
    progress = np.cumsum(weight) / max(1e-12, float(weight.sum()))
    crossing = _crossing(step, loss)
    ends: list[int] = []
    for share in range(1, most):
        window = np.nonzero(np.abs(progress - share / most) <= 0.5 / most)[0].tolist()
        window = [op for op in window if op < loss and (not ends or op > ends[-1])]
        if window:
            ends.append(min(window, key=lambda op: (crossing[op], not _module_ends(step, op), op)))
    while len(ends) < most - 1:
        ends = sorted([*ends, _half_way(progress, [-1, *ends, loss])])
    return (*ends, loss)


def _half_way(progress: Floats, ends: Sequence[int]) -> int:
    """The op behind which the heaviest group of several ops is cut in halves of about equal weight."""
    several = [(a + 1, b) for a, b in itertools.pairwise(ends) if b > a + 1]
    starts = np.concatenate(([0.0], progress))
    a, b = max(several, key=lambda group: (float(progress[group[1]] - starts[group[0]]), -group[0]))
    middle = (starts[a] + progress[b]) / 2
    return min(range(a, b), key=lambda op: (abs(float(progress[op]) - middle), op))


def _crossing(step: Step, loss: int) -> list[int]:
    """Bytes that later forward ops read of what exists after each forward op."""
    change = np.zeros(loss + 2, np.int64)
    for tensor in np.nonzero(~step.persistent & (step.first_use <= loss))[0].tolist():
        uses = step.uses[tensor]
        last = int(uses[uses <= loss][-1])
        change[int(step.first_use[tensor])] += step.tensors.bytes[tensor]
        change[last] -= step.tensors.bytes[tensor]
    found: list[int] = np.cumsum(change)[: loss + 1].tolist()
    return found


def _module_ends(step: Step, op: int) -> bool:
    return step.ops.module[op] != step.ops.module[op + 1]


def coarse(step: Step, capacity: int, most: int) -> Coarse:
    """The problem of ``step`` in ``capacity`` bytes with at most ``most`` groups."""
    remake = Rematerializer(step)
    ends = group_ends(step, most)
    loss = ends[-1]
    members, values = _values(step, remake, ends)
    needed = [[int(u) for t in tensors for u in step.uses[t].tolist() if u > loss] for tensors in members]
    begins = _stage_begins(needed, values)
    required = [
        [v for v, uses in enumerate(needed) if any(bisect_right(begins, u) - 1 == s for u in uses)]
        for s in range(len(begins))
    ]
    forward, stages = _room(step, capacity, ends, begins, members, values)
    starts = [0, *(end + 1 for end in ends[:-1])]
    ranges = list(zip(starts, ends, strict=True))
    problem = Problem(
        seconds=[float(step.ops.seconds[a : b + 1].sum()) for a, b in ranges],
        scratch=[_scratch(step, a, b, members, values, i) for i, (a, b) in enumerate(ranges)],
        inputs=_inputs(step, ends, members, values),
        values=values,
        forward=forward,
        stages=stages,
        required=required,
    )
    return Coarse(step, remake, ends, begins, members, problem)


def _stage_begins(needed: Sequence[Sequence[int]], values: Sequence[GroupValue]) -> tuple[int, ...]:
    """Where the backward pass first reads something, and for each group first what no other group reads."""
    first = [min(uses) for uses in needed if uses]
    own: dict[int, int] = {}
    for value, uses in zip(values, needed, strict=True):
        if uses:
            own[value.group] = min(
                uses
            )  # of a group's two values what only the backward pass reads comes last
    return tuple(sorted({min(first), *own.values()})) if first else ()


def _values(
    step: Step, remake: Rematerializer, ends: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], list[GroupValue]]:
    """Of every group what later groups read and, apart from it, what only the backward pass reads."""
    loss = ends[-1]
    found: dict[tuple[int, bool], list[int]] = {}
    for tensor in np.nonzero(~step.persistent & (step.tensors.bytes > 0) & (step.first_use <= loss))[
        0
    ].tolist():
        makers = remake.lineage.writers[tensor]
        uses = step.uses[tensor].tolist()
        if not makers or makers[-1] > loss:
            continue
        group = bisect_right(ends, makers[0] - 1)
        border = any(bisect_right(ends, u - 1) > group for u in uses if u <= loss)
        last = uses[-1]
        at = max((u for u in uses if u > loss), default=loss + 1)
        fixed = any(remake.is_fixed(op, lambda _: False, min(at, _first_after(uses, loss))) for op in makers)
        if (border or last > loss) and not fixed:
            found.setdefault((group, not border), []).append(tensor)
    members, values = [], []
    for (group, _), tensors in sorted(found.items()):
        size = float(step.tensors.bytes[tensors].sum())
        last_read = max(u for t in tensors for u in step.uses[t].tolist() if u <= loss)
        members.append(tuple(tensors))
        values.append(GroupValue(group, size, bisect_right(ends, last_read - 1) + 1))
    return tuple(members), values


def _first_after(uses: Sequence[int], loss: int) -> int:
    return next((u for u in uses if u > loss), loss + 1)


def _inputs(
    step: Step, ends: Sequence[int], members: Sequence[tuple[int, ...]], values: Sequence[GroupValue]
) -> list[list[int]]:
    """The values of earlier groups that each group reads."""
    readers: list[set[int]] = [set() for _ in ends]
    for v, tensors in enumerate(members):
        for tensor in tensors:
            for use in step.uses[tensor].tolist():
                group = bisect_right(ends, use - 1)
                if use <= ends[-1] and group > values[v].group:
                    readers[group].add(v)
    return [sorted(found) for found in readers]


def _scratch(
    step: Step,
    start: int,
    end: int,
    members: Sequence[tuple[int, ...]],
    values: Sequence[GroupValue],
    group: int,
) -> float:
    """The most bytes that ops ``start`` to ``end`` hold at once beyond the group's own values and what was
    there.
    """
    own = {t for v, tensors in enumerate(members) if values[v].group == group for t in tensors}
    most = 0.0
    born: dict[int, int] = {}
    live = 0.0
    for op in range(start, end + 1):
        for tensor in step.touched[op].tolist():
            if step.first_use[tensor] == op and tensor not in own and not step.persistent[tensor]:
                born[tensor] = int(step.tensors.bytes[tensor])
                live += born[tensor]
        most = max(most, live + float(step.ops.workspace[op]))
        live -= sum(
            born.pop(t)
            for t in step.touched[op].tolist()
            if t in born and step.last_use[t] <= end and _over(step, t, op, end)
        )
    return most


def _over(step: Step, tensor: int, op: int, end: int) -> bool:
    """``op`` is the last in its group that uses ``tensor``."""
    uses = step.uses[tensor]
    return int(uses[uses <= end][-1]) == op


def _room(
    step: Step,
    capacity: int,
    ends: Sequence[int],
    begins: Sequence[int],
    members: Sequence[tuple[int, ...]],
    values: Sequence[GroupValue],
) -> tuple[list[float], list[float]]:
    """Bytes left for values that rest during each group, and for all values during each stage."""
    count = len(step.ops)
    resting, alive = np.zeros(count + 1), np.zeros(count + 1)
    for v, tensors in enumerate(members):
        begin = ends[values[v].rests - 1] + 1 if values[v].rests <= len(ends) else count
        for tensor in tensors:
            size, last = float(step.tensors.bytes[tensor]), int(step.last_use[tensor]) + 1
            if last > begin:
                resting[begin] += size
                resting[last] -= size
            alive[int(step.first_use[tensor])] += size
            alive[last] -= size
    others = step.live_bytes - np.cumsum(resting)[:-1]
    outside = step.live_bytes - np.cumsum(alive)[:-1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    forward = [capacity - float(others[a : b + 1].max()) for a, b in zip(starts, ends, strict=True)]
    edges = [*begins, count]
    stages = [capacity - float(outside[a:b].max()) for a, b in itertools.pairwise(edges)]
    return forward, stages
