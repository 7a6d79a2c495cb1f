"""Queues of jobs in which those that run stand before those that wait (Tiresias)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Set


class RunningFirst:
    """Strict queues: all of one come before any of the next.

    ``ahead[q]`` are the jobs of queue q that ran when it was last put in order, ``behind[q]`` those after
    them: all that wait, and at the end those that have come since, running or not. ``held[q]`` are the GPUs
    of those ahead, so that a decision need not look at each. ``queue`` of each job.
    """

    def __init__(self, queues: int) -> None:
        self.ahead: list[dict[int, None]] = [{} for _ in range(queues)]
        self.behind: list[dict[int, None]] = [{} for _ in range(queues)]
        self.held = [0] * queues
        self.queue: dict[int, int] = {}
        self._gpus: dict[int, int] = {}

    def __iter__(self) -> Iterator[list[int]]:
        """The jobs of each queue in order."""
        return ([*ahead, *behind] for ahead, behind in zip(self.ahead, self.behind, strict=True))

    def append(self, job: int, queue: int, gpus: int) -> None:
        self.queue[job], self._gpus[job] = queue, gpus
        self.behind[queue][job] = None

    def remove(self, job: int) -> None:
        queue, gpus = self.queue.pop(job), self._gpus.pop(job)
        if job in self.ahead[queue]:
            del self.ahead[queue][job]
            self.held[queue] -= gpus
        else:
            del self.behind[queue][job]

    def sort(self, queue: int, key: Callable[[int], float]) -> None:
        """The least ``key`` first, whoever runs; equal ones as they are."""
        order = sorted([*self.ahead[queue], *self.behind[queue]], key=key)
        self.ahead[queue], self.behind[queue], self.held[queue] = {}, dict.fromkeys(order), 0

    def put_in_order(self, running: Set[int]) -> None:
        """Those of ``running`` before the others in every queue, each in their order."""
        for queue, order in enumerate(self):
            self.ahead[queue] = {job: None for job in order if job in running}
            self.behind[queue] = {job: None for job in order if job not in running}
            self.held[queue] = sum(self._gpus[job] for job in self.ahead[queue])

    def put_right(self, started: Collection[int], preempted: Set[int], moved: Collection[int]) -> None:
        """Put those ``started`` and ``moved`` ahead, and those ``preempted`` back behind.

        The same as ``put_in_order`` where no others have begun or ceased to run.
        """
        for queue in {self.queue[job] for job in preempted}:
            lost = {job: None for job in self.ahead[queue] if job in preempted}
            for job in lost:
                del self.ahead[queue][job]
                self.held[queue] -= self._gpus[job]
            self.behind[queue] = lost | self.behind[queue]
        come = {*started, *moved} - preempted
        for queue in {self.queue[job] for job in come}:
            for job in self._in_order(come, queue):
                del self.behind[queue][job]
                self.ahead[queue][job] = None
                self.held[queue] += self._gpus[job]

    def _in_order(self, jobs: Set[int], queue: int) -> list[int]:
        mine = [job for job in jobs if self.queue[job] == queue]
        return mine if len(mine) < 2 else [job for job in self.behind[queue] if job in jobs]

    def fit(self, left: int, moved: Collection[int]) -> tuple[list[int], list[int]]:
        """Walk the queues with so many GPUs: who gets some now, and who loses theirs.

        Whoever fits into what is left is served. All ahead run, and behind those ``moved``.
        """
        winners, losers = list[int](), list[int]()
        gpus, lost = self._gpus, set(moved)
        for ahead, behind, held in zip(self.ahead, self.behind, self.held, strict=True):
            if held <= left:
                left -= held
            else:
                for job in ahead:
                    if gpus[job] <= left:
                        left -= gpus[job]
                    else:
                        losers.append(job)
            for job in behind if left else ():
                if gpus[job] > left:
                    continue
                left -= gpus[job]
                if job in lost:
                    lost.remove(job)
                else:
                    winners.append(job)
                if not left:
                    break
        return winners, [*losers, *lost]
