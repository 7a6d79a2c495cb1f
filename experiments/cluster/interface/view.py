"""The cluster at the moment of a decision, as far as the policy may see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from experiments.cluster.interface.allocation import Gang
from experiments.cluster.interface.jobs import VisibleJobs
from experiments.cluster.interface.placement import Pool


@dataclass
class Attained:
    """What the scheduler has itself seen of each job, up to the last change of its devices.

    ``seconds`` with devices, ``service`` device-seconds held, ``done`` seconds of work; and of its present
    execution when it ``started`` and from when on it makes ``progress`` (later by the restart cost).
    """

    seconds: list[float]
    service: list[float]
    done: list[float]
    started: list[float]
    progress: list[float]

    @classmethod
    def none_of(cls, jobs: int) -> Attained:
        return cls(*([0.0] * jobs for _ in range(5)))


@dataclass
class ClusterView:
    """Read only. Jobs are numbered in the order of the trace.

    ``waiting`` holds submitted jobs without devices in the order they began to wait, ``running`` the gangs by
    job in the order they started. ``arrived`` and ``ended`` are the jobs since the last decision;
    ``round_ended`` is true at the round ends of a policy with a round length.
    """

    jobs: VisibleJobs
    pool: Pool
    attained: Attained
    now: float = float("-inf")
    waiting: dict[int, None] = field(default_factory=dict)
    running: dict[int, Gang] = field(default_factory=dict)
    arrived: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    round_ended: bool = False

    def attained_time(self, job: int) -> float:
        """Seconds that ``job`` has held devices, the restart cost included."""
        running = self.now - self.attained.started[job] if job in self.running else 0.0
        return self.attained.seconds[job] + running

    def attained_service(self, job: int) -> float:
        """Device-seconds that ``job`` has held."""
        if job not in self.running:
            return self.attained.service[job]
        gang = self.running[job]
        return self.attained.service[job] + (self.now - self.attained.started[job]) * gang.size * gang.share

    def remaining(self, job: int) -> float:
        """Seconds of service left, for a policy that sees ``service``."""
        done = self.attained.done[job]
        if job in self.running:
            done += max(0.0, self.now - self.attained.progress[job]) * self.running[job].share
        return self.jobs.service[job] - done
