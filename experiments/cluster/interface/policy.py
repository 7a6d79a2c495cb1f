"""The questions asked of a cluster policy, and the walks that several of them share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from experiments.cluster.interface.allocation import NOTHING, Allocation, Gang
from experiments.cluster.interface.division import Divider
from experiments.cluster.interface.jobs import Demand
from experiments.cluster.interface.placement import PLACEMENTS
from experiments.cluster.interface.pool import SLACK, Pool
from experiments.cluster.interface.view import ClusterView
from experiments.core.knobs import knob
from experiments.core.policy import Policy

#: The rules of the lab's own engine: events, rounds where a policy has them, costs as the knobs say.
OWN = "own"
#: What becomes of progress when a job is stopped: all is kept, what came after the last checkpoint is lost,
#: or the job begins anew.
NOTHING_LOST, SINCE_CHECKPOINT, ALL_LOST = "nothing", "since checkpoint", "all"
REFUSE, DROP = "refuse", "drop"


def rules_of(*releases: str) -> Any:
    """The knob ``rules``: the lab's own engine, or those of published simulators that define the policy."""
    return knob(OWN, "whose engine: the lab's, or a published simulator's", choices=(OWN, *releases))


class Decider(Protocol):
    """Asked at every arrival, completion, round and wake-up, after all that happened at that time."""

    def allocate(self, view: ClusterView) -> Allocation: ...


@dataclass(frozen=True)
class ClusterPolicy(Policy):
    """A policy that says which job runs where, and until when.

    - ``sees`` names the hidden columns of the trace that it may look at; ``needs`` are those without which it
      cannot decide at all, ``models`` the performance models with one of which it can (empty: any).
    - A ``rigid`` policy gives each job the GPUs that it asked for, no others.
    - ``rejects``: whether it may refuse jobs.
    - ``single_gpu``: whether it has no answer for jobs of several GPUs; ``gpus_only``: for jobs of none.
    - ``caps_shares``: whether a gang's share is a limit that live jobs are held to, and not a part that it
      hopes for; jobs then use no more of a slot than the trace's ``utilization``.
    - ``round_seconds`` is the round length in s, ``None`` for a policy that decides at events only.
    """

    family: ClassVar[str] = "cluster"
    workloads: ClassVar[Mapping[str, tuple[str, ...]]] = {"simulated": ("jobs",), "measured": ("jobs",)}
    sees: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[str]] = frozenset()
    models: ClassVar[tuple[str, ...]] = ()
    rigid: ClassVar[bool] = True
    rejects: ClassVar[bool] = False
    single_gpu: ClassVar[bool] = False
    gpus_only: ClassVar[bool] = False
    caps_shares: ClassVar[bool] = False

    rules: str = rules_of()
    placement: str = knob("count", "which free devices a job gets", choices=tuple(PLACEMENTS))
    start_cost: float = knob(
        0.0, "time without progress when a job first starts", low=0.0, high=86400.0, unit="s"
    )
    restart_cost: float = knob(
        0.0, "time without progress when a job resumes", low=0.0, high=86400.0, unit="s"
    )
    resize_cost: float | None = knob(
        None,
        "the same when it gets another number of devices; empty: as a restart",
        low=0.0,
        high=86400.0,
        unit="s",
    )
    migration_cost: float | None = knob(
        None, "the same when it moves to other nodes; empty: as a restart", low=0.0, high=86400.0, unit="s"
    )
    suspend_cost: float = knob(
        0.0, "the same when a job that was suspended resumes on its nodes", low=0.0, high=86400.0, unit="s"
    )
    checkpoint_bytes: float = knob(
        0.0, "state that is written to and read from storage at restarts", low=0.0, high=1e15, unit="bytes"
    )
    checkpoint_every: float | None = knob(
        None, "progress between checkpoints; empty: one when a job is preempted", low=1e-3, high=1e9, unit="s"
    )
    preemption_loses: str = knob(
        NOTHING_LOST, "progress lost by preemption", choices=(NOTHING_LOST, SINCE_CHECKPOINT, ALL_LOST)
    )
    node_mtbf: float | None = knob(
        None, "mean time between failures of a node; empty: none fails", low=1.0, high=1e12, unit="s"
    )
    node_repair: float = knob(3600.0, "mean time until a failed node is back", low=1.0, high=1e12, unit="s")
    failure_notice: float = knob(
        0.0, "time ahead at which a failure is known (spot nodes)", low=0.0, high=86400.0, unit="s"
    )
    oversized: str = knob(
        REFUSE, "jobs that can never fit: refuse the run, or drop and count them", choices=(REFUSE, DROP)
    )
    slots: int | None = knob(
        None, "cores or GPUs of this host that a measured run may use; empty: all", low=1, high=1024
    )

    @classmethod
    def lacks(cls, told: Mapping[str, Any]) -> str:
        """As ``JobTrace.told`` says it."""
        columns = sorted(cls.needs - set(told["columns"]))
        if columns:
            return f"needs {' and '.join(columns)} of each job, which the trace does not tell"
        if cls.single_gpu and told["several_gpus"]:
            return "knows jobs of one GPU alone"
        if cls.gpus_only and told.get("without_gpus"):  # not told by summaries of older revisions
            return "knows no jobs without GPUs"
        speeds = told["speeds"]  # summaries of older revisions say no more than whether there are any
        if cls.models and not (speeds is True or speeds in cls.models):
            return f"needs a side file that tells how fast jobs run ({' or '.join(cls.models)})"
        return ""

    @classmethod
    def lacks_live(cls, told: Mapping[str, Any]) -> str:
        """As ``lacks``; how fast jobs run is found on the host."""
        return cls.lacks({**told, "speeds": True})

    @property
    def round_seconds(self) -> float | None:
        return None

    @property
    def not_live(self) -> Mapping[str, str]:
        """Knobs whose values no measured run can follow, each with what it could."""
        if self.node_mtbf is not None:
            return {"node_mtbf": "empty: this host does not fail when it is told to"}
        return {}

    @property
    def plans_costs(self) -> bool:
        """Whether its plans themselves make devices ready for what starting costs (``Gang.readying``)."""
        return False

    def insists_on(self, demand: Demand) -> Demand:
        """What of a job's demand has to be there; a wish that it may do without is left out.

        Policies that resize jobs need not give them all their GPUs, and choose no processors or memory.
        """
        return demand if self.rigid else Demand(min(demand.gpus, 1), demand.share, types=demand.types)

    def placement_of(self, job: int, view: ClusterView) -> str:
        """The rule of ``PLACEMENTS`` by which ``fill`` finds devices for a job."""
        return self.placement

    @property
    def shares_devices(self) -> bool:
        """Whether it may let several jobs compute on one device at once."""
        return self.caps_shares

    @property
    def keeps_sizes(self) -> bool:
        """Whether every gang has as many GPUs as its job asked for."""
        return self.rigid

    def begin(self) -> Decider:
        """What decides during one run: a fresh object, which may remember what it decided before."""
        raise NotImplementedError(type(self).__name__)

    def divider(self, seed: int) -> Divider:
        """What divides time among jobs during one run, for policies whose answer is shares of time."""
        raise NotImplementedError(type(self).__name__)

    def fill(
        self, pool: Pool, ranked: Iterable[int], view: ClusterView, *, block: bool = False
    ) -> list[Gang]:
        """Return gangs for waiting jobs in order, taken from ``pool``.

        Jobs that do not fit are skipped, or ``block`` the rest.
        """
        started = []
        only_whole = view.jobs.is_plain
        for job in ranked:
            if only_whole and pool.total < 1:
                break
            gang = pool.place(job, view.jobs.demand(job), self.placement_of(job, view))
            if gang is not None:
                pool.take(gang)
                started.append(gang)
            elif block:
                break
        return started

    def run_first(self, ranked: Iterable[int], view: ClusterView) -> Allocation:
        """Give devices to unfinished jobs in order, skipping those that do not fit; others are preempted."""
        chosen: dict[int, None] = {}
        left, gpus, plain = float(sum(view.pool.capacity)), view.jobs.gpus, view.jobs.is_plain
        for job in ranked:
            if plain and left < 1:
                break
            wanted = gpus[job] if plain else gpus[job] * view.jobs.demand(job).share
            if wanted <= left + SLACK:
                left -= wanted
                chosen[job] = None
        return self.run_only(chosen, view)

    def run_only(self, chosen: Mapping[int, None], view: ClusterView) -> Allocation:
        """Give devices to the ``chosen`` in their order, and preempt what runs and is not among them.

        Jobs that keep running keep their devices.
        """
        if chosen.keys() == view.running.keys():
            return NOTHING
        losers = [job for job in view.running if job not in chosen]
        return self.change([job for job in chosen if job not in view.running], losers, view)

    def change(self, winners: Sequence[int], losers: Sequence[int], view: ClusterView) -> Allocation:
        """Give devices to waiting ``winners`` in order, and take those of ``losers``."""
        if not (winners or losers):
            return NOTHING
        pool, losing = view.pool.copy(), set(losers)
        losers = [job for job in view.running if job in losing] if losers else []
        for job in losers:
            pool.give_back(view.running[job])
        started = self.fill(pool, winners, view)
        is_counted = self.placement == "count" and view.jobs.is_plain
        preempted = losers if is_counted else _jobs_to_preempt(losers, pool, view)
        return Allocation(tuple(started), tuple(preempted))


def _jobs_to_preempt(losers: Iterable[int], pool: Pool, view: ClusterView) -> list[int]:
    """The losers whose devices were really taken: a better job may not have found a place that its rule
    allows.
    """
    preempted = []
    for job in losers:
        gang = view.running[job]
        if pool.lack(gang):
            preempted.append(job)
        else:
            pool.take(gang)
    return preempted
