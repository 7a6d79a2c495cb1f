"""When the tasks of a FlexFlow task graph run: simulated in full, or only where a change makes a difference
(delta simulation).

Source: Jia et al. (FlexFlow), SysML'19, sections 5.2 and 5.3. A task is ready when all before it have ended;
every lane runs its tasks in the order in which they become ready (ties: the smaller number first), each from
the moment it is ready and the lane is free. The paper repairs the times of affected tasks one by one. Here a
simulation leaves marks on its way, moments at which its whole state is known, and a delta simulation uses
those of the one before:

- it begins at the last mark before anything that changed becomes ready;
- it ends at the first mark whose state is the old one moved in time: from there on all is as it was, so much
  later or sooner;
- it gives up at a mark where some lane has more work left than would end within ``limit``: nobody would
  accept the plan.

All times are the same as those of a full simulation, to the bit.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from experiments.core.progress import accompany
from experiments.parallel.planning.operators.task_graph import Change, Tasks

#: (ready, number, slot) of a task.
Entry = tuple[float, int, int]
#: Marks of a simulation: each costs a copy of its state, and a delta simulation begins and ends at one.
MARKS = 24
#: Tasks between two signs of life where times are taken from the simulation before.
LOOKS = 50_000


@dataclass
class State:
    """A simulation in progress, by slot and by lane.

    By slot: how many tasks are ``waiting`` for, and the ``latest`` end among those before.

    By lane: when it is ``free``, and the seconds ``spent`` on tasks so far. ``heap`` has tasks that are
    ready, ``at`` counts those that have been put in. All moments are to be understood ``late`` seconds later.
    """

    at: int
    waiting: list[int]
    latest: list[float]
    free: list[float]
    spent: list[float]
    heap: list[Entry]
    late: float = 0.0

    def copy(self) -> State:
        late = self.late
        return State(
            self.at,
            self.waiting[:],
            [moment + late for moment in self.latest] if late else self.latest[:],
            [moment + late for moment in self.free],
            self.spent[:],
            [(ready + late, number, task) for ready, number, task in self.heap],
        )

    def moved(self, shift: float, by: int, more: Sequence[float]) -> State:
        """Return the state ``shift`` seconds later, after ``by`` more tasks.

        They took so much ``more`` of each lane. Only what is to come matters.
        """
        spent = [own + added for own, added in zip(self.spent, more, strict=True)]
        return replace(self, at=self.at + by, spent=spent, late=self.late + shift)


@dataclass(frozen=True)
class SimulatedTimes:
    """A whole simulation: tasks in order, their ends, marks and its last state.

    The order is that in which they were put in; ends are by slot.
    """

    order: list[Entry]
    end: list[float]
    marks: list[State]
    last: State

    @property
    def span(self) -> float:
        """Seconds until the last task ends."""
        return max(self.last.free, default=0.0)


@dataclass
class DeltaTrial:
    """A simulation that may have ended early; ``span`` is infinite where it gave up.

    ``marks`` are those that it made; ``rest`` what is left to take from the simulation before.
    """

    span: float
    order: list[Entry]
    end: list[float]
    marks: list[State]
    last: State
    rest: _Rest | None = None


class _Rest(NamedTuple):
    """The old simulation from its mark ``met`` on, ``shift`` later."""

    old: SimulatedTimes
    met: State
    shift: float


def simulate_tasks(tasks: Tasks) -> SimulatedTimes:
    """Return the times of a full simulation."""
    there, lanes = tasks.slots, len(tasks.work)
    waiting, latest = [0] * len(tasks.number), [0.0] * len(tasks.number)
    for task in there:
        waiting[task] = len(tasks.before[task])
    heap = [(0.0, tasks.number[task], task) for task in there if not waiting[task]]
    heapq.heapify(heap)
    state = State(0, waiting, latest, [0.0] * lanes, [0.0] * lanes, heap)
    run = _Run(tasks, state, [], latest[:])
    step = max(1, len(there) // MARKS)
    for stop in range(step, len(there) + step, step):
        run.mark()
        run.until(stop)
    return SimulatedTimes(run.order, run.end, run.marks, run.state)


def simulate_change(
    tasks: Tasks, times: SimulatedTimes, change: Change, limit: float = math.inf
) -> DeltaTrial:
    """Return the times after ``change``, from those before: a delta simulation.

    As long as they are not beyond ``limit``.
    """
    mark = _last_before(times, _first_change(tasks, times, change))
    run = _Run(tasks, _resume(tasks, times, change, mark), times.order[: mark.at], times.end[:])
    run.end += [0.0] * (len(tasks.number) - len(run.end))
    by = len(change.added) - len(change.removed)
    run.mark()
    for old in (known for known in times.marks if known.at > mark.at and known.at + by > mark.at):
        if run.bound() > limit:
            return run.trial(math.inf)
        run.until(old.at + by)
        moved = _shift(run.state, old)
        if moved is not None:
            shift = moved - old.late
            free = _final(run.state.free, old, times, shift)
            return run.trial(max(free), _Rest(times, old, shift))
        run.mark()
    if run.bound() > limit:
        return run.trial(math.inf)
    run.until(len(tasks.number))
    return run.trial(max(run.state.free, default=0.0))


def complete(tasks: Tasks, times: SimulatedTimes, change: Change, trial: DeltaTrial) -> SimulatedTimes:
    """Return all times of a ``trial`` that did not give up.

    The old ``times`` before it began, and after it met them again.
    """
    progress = tasks.costs.estimate.progress
    before = (mark for mark in times.marks if mark.at < trial.marks[0].at)
    early = [_resume(tasks, times, change, mark) for mark in accompany(before, progress, 1)]
    marks = early + trial.marks
    if trial.rest is None:
        return SimulatedTimes(trial.order, trial.end, marks, trial.last)
    old, met, shift = trial.rest
    by = trial.last.at - met.at
    more = [now - was for now, was in zip(trial.last.spent, met.spent, strict=True)]
    later = old.order[met.at :]
    for _, _, task in accompany(later, progress, LOOKS):
        trial.end[task] = old.end[task] + shift
    moved = ((ready + shift, number, task) for ready, number, task in later)
    order = trial.order + list(accompany(moved, progress, LOOKS))
    marks += [mark.moved(shift, by, more) for mark in old.marks if mark.at >= met.at]
    last = replace(old.last, at=old.last.at + by, free=_final(trial.last.free, met, old, shift))
    return SimulatedTimes(order, trial.end, marks, last)


@dataclass
class _Run:
    """Puts tasks in, in the order in which they become ready."""

    tasks: Tasks
    state: State
    order: list[Entry]
    end: list[float]
    marks: list[State] = field(default_factory=list)

    def until(self, stop: int) -> None:
        """Goes on until ``stop`` tasks are in; none is left where there are no more."""
        state, order, end = self.state, self.order, self.end
        heap, waiting, latest, free = state.heap, state.waiting, state.latest, state.free
        numbers, seconds, lanes, after = (
            self.tasks.number,
            self.tasks.seconds,
            self.tasks.lane,
            self.tasks.after,
        )
        pop, push = heapq.heappop, heapq.heappush
        for _ in range(stop - state.at):
            if not heap:
                break
            entry = pop(heap)
            ready, _, task = entry
            order.append(entry)
            lane, took = lanes[task], seconds[task]
            start = free[lane]
            done = free[lane] = end[task] = (ready if ready > start else start) + took
            for following in after[task]:
                if done > latest[following]:
                    latest[following] = done
                left = waiting[following] = waiting[following] - 1
                if not left:
                    push(heap, (latest[following], numbers[following], following))
        self._spend(order[state.at :])
        self.tasks.timed += len(order) - state.at
        state.at = len(order)
        self.tasks.costs.estimate.show_life()

    def _spend(self, entries: Iterable[Entry]) -> None:
        spent, lanes, seconds = self.state.spent, self.tasks.lane, self.tasks.seconds
        for _, _, task in entries:
            spent[lanes[task]] += seconds[task]

    def mark(self) -> None:
        self.marks.append(self.state.copy())

    def bound(self) -> float:
        """Return the least time at which all lanes can have ended.

        What a lane has yet to do begins at the earliest when a task is ready next, or when the lane is free.
        """
        state, ends = self.state, 0.0
        now = state.heap[0][0] if state.heap else 0.0
        for free, spent, work in zip(state.free, state.spent, self.tasks.work, strict=True):
            ends = max(ends, max(free, now) + (work - spent) if work > spent else free)
        return ends

    def trial(self, span: float, rest: _Rest | None = None) -> DeltaTrial:
        return DeltaTrial(span, self.order, self.end, self.marks, self.state, rest)


# --- where a delta simulation begins
# --------------------------------------------------------------------------------


def _first_change(tasks: Tasks, times: SimulatedTimes, change: Change) -> float:
    """No task that becomes ready before this moment is touched by the change.

    A touched task is ready no earlier than the untouched ones before it have ended, and than touched ones
    could end.
    """
    earliest: dict[int, float] = {}
    for task in sorted(change.added | change.touched, key=tasks.number.__getitem__):
        ends = (
            earliest[before] + tasks.seconds[before] if before in earliest else times.end[before]
            for before in tasks.before[task]
        )
        earliest[task] = max(ends, default=0.0)
    old = (_ready(tasks, times, task, change) for task in change.removed | change.touched)
    return min((*old, *earliest.values()), default=math.inf)


def _ready(tasks: Tasks, times: SimulatedTimes, task: int, change: Change) -> float:
    """Not later than the moment at which ``task`` was ready."""
    ends = (times.end[before] for before in tasks.before[task] if before not in change.added)
    return max(ends, default=0.0)


def _last_before(times: SimulatedTimes, moment: float) -> State:
    """The last mark before which nothing was put in that is ready at ``moment`` or later."""
    count = bisect_left(times.order, (moment, -1, -1))
    return max((mark for mark in times.marks if mark.at <= count), key=lambda mark: mark.at)


def _resume(tasks: Tasks, times: SimulatedTimes, change: Change, mark: State) -> State:
    """The state at ``mark``, before the first change: tasks that came or changed wait for those not put in by
    then.
    """
    fresh, state = change.added | change.touched, mark.copy()
    new_slots = [0] * (len(tasks.number) - len(state.waiting))
    state.waiting += new_slots
    state.latest += map(float, new_slots)
    for task in change.removed:
        state.waiting[task] = 0
    in_line = {task for _, _, task in mark.heap} | fresh
    ended = {
        task: [times.end[o] for o in tasks.before[task] if o not in in_line and not state.waiting[o]]
        for task in fresh
    }
    for task, ends in ended.items():
        state.waiting[task] = len(tasks.before[task]) - len(ends)
        state.latest[task] = max(ends, default=0.0)
    state.heap = [entry for entry in state.heap if entry[2] not in fresh and entry[2] not in change.removed]
    state.heap += [(state.latest[t], tasks.number[t], t) for t in fresh if not state.waiting[t]]
    heapq.heapify(state.heap)
    return state


# --- where it ends
# --------------------------------------------------------------------------------------------------


def _shift(state: State, old: State) -> float | None:
    """How much later ``state`` is than ``old`` says, where that is all that tells them apart for what is to
    come.

    Lanes that are idle and ends that have passed make no difference to anything that is ready from now on.
    """
    if not state.heap or len(state.heap) != len(old.heap):
        return None
    now, was = state.heap[0][0], old.heap[0][0]
    shift = now - was
    lanes = zip(state.free, old.free, strict=True)
    if not all(new == before + shift or (new <= now and before <= was) for new, before in lanes):
        return None
    if sorted(state.heap) != sorted((ready + shift, number, task) for ready, number, task in old.heap):
        return None
    shared = len(old.waiting)
    if state.waiting[:shared] != old.waiting or any(state.waiting[shared:]):
        return None
    ends = zip(old.waiting, state.latest, old.latest, strict=False)
    alike = all(new == before + shift or (new <= now and before <= was) for left, new, before in ends if left)
    return shift if alike else None


def _final(free: Sequence[float], met: State, old: SimulatedTimes, shift: float) -> list[float]:
    """When each lane ends for good: as the old one did, where it had tasks left."""
    rows = zip(free, met.free, old.last.free, strict=True)
    return [now if was + met.late == end else end + shift for now, was, end in rows]
