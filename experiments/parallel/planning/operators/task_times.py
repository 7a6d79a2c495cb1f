"""When the tasks of a FlexFlow task graph run: simulated in full, or only from where a change can reach (delta simulation).

Source: Jia et al. (FlexFlow), SysML'19, sections 5.2 and 5.3. A task is ready when all before it have ended; every lane runs
its tasks in the order in which they become ready (ties: the smaller number first), each from the moment it is ready and the
lane is free. The paper repairs the times of affected tasks one by one, in order of time; here everything that becomes ready
before the first change stays, and all later tasks are put in again. Both arrive at the times of a full simulation; a change
mostly moves all that follows it, and putting in is several times cheaper than repairing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass

from experiments.parallel.planning.operators.task_graph import Tasks


@dataclass(frozen=True)
class Times:
    """Moments by task, and the tasks of each lane as (ready, number) in the order in which they run."""

    ready: dict[int, float]
    end: dict[int, float]
    queues: dict[int, list[tuple[float, int]]]

    @property
    def span(self) -> float:
        """Seconds until the last task ends."""
        return max((self.end[queue[-1][1]] for queue in self.queues.values() if queue), default=0.0)


def simulated(tasks: Tasks) -> Times:
    """Full simulation."""
    tasks.changed.clear()
    tasks.removed.clear()
    return _continued(tasks, Times({}, {}, {}), list(tasks.seconds))


def changed(tasks: Tasks, times: Times) -> Times:
    """Delta simulation: ``times`` after the changes of ``tasks`` since they were worked out."""
    start = _first_change(tasks, times)
    cut = {lane: bisect_left(queue, (start, -1)) for lane, queue in times.queues.items()}
    queues = {lane: queue[: cut[lane]] for lane, queue in times.queues.items()}
    ready, end = dict(times.ready), dict(times.end)
    open_tasks = tasks.changed | {
        task for lane, queue in times.queues.items() for _, task in queue[cut[lane] :]
    }
    for task in open_tasks | tasks.removed:
        ready.pop(task, None)
        end.pop(task, None)
    left = [task for task in open_tasks if task in tasks.seconds]
    tasks.changed.clear()
    tasks.removed.clear()
    return _continued(tasks, Times(ready, end, queues), left)


def _first_change(tasks: Tasks, times: Times) -> float:
    """No task that becomes ready before this moment is touched by the changes.

    A touched task is ready no earlier than the untouched ones before it have ended, and than touched ones could end.
    """
    earliest: dict[int, float] = {}
    for task in sorted(tasks.changed):
        ends = (
            earliest[before] + tasks.seconds[before] if before in earliest else times.end[before]
            for before in tasks.before[task]
        )
        earliest[task] = max(ends, default=0.0)
    touched = tasks.changed | tasks.removed
    old = (times.ready[task] for task in touched if task in times.ready)
    return min((*old, *earliest.values()), default=0.0)


def _continued(tasks: Tasks, times: Times, left: list[int]) -> Times:
    """Puts the tasks ``left`` into ``times``, which it changes, in the order in which they become ready."""
    ready_at, end_at, queues = times.ready, times.end, times.queues
    seconds, lanes, before, after = tasks.seconds, tasks.lane, tasks.before, tasks.after
    free = {lane: end_at[queue[-1][1]] for lane, queue in queues.items() if queue}
    waiting: dict[int, int] = {}
    latest: dict[int, float] = {}
    heap: list[tuple[float, int]] = []
    for task in left:
        ends = [end_at[other] for other in before[task] if other in end_at]
        waiting[task] = len(before[task]) - len(ends)
        latest[task] = max(ends, default=0.0)
        if not waiting[task]:
            heap.append((latest[task], task))
    heapq.heapify(heap)
    while heap:
        entry = heapq.heappop(heap)
        ready, task = entry
        lane = lanes[task]
        ready_at[task] = ready
        start = free.get(lane, 0.0)
        end = free[lane] = end_at[task] = (ready if ready > start else start) + seconds[task]
        queues.setdefault(lane, []).append(entry)
        for following in after[task]:
            if end > latest[following]:
                latest[following] = end
            waiting[following] -= 1
            if not waiting[following]:
                heapq.heappush(heap, (latest[following], following))
    return times
