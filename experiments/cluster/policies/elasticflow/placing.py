"""From GPU counts to gangs: jobs whose count stays keep their devices, unless somebody would be scattered."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.cluster.interface import ClusterView, Demand, Gang, Pool


def gangs_for(wanted: Mapping[int, int], view: ClusterView, placement: str) -> list[Gang]:
    """Return the gangs that start or move so that each job has as many devices as it wants."""
    kept = {job: gang for job, gang in view.running.items() if wanted.get(job) == gang.size}
    pool = _empty(view)
    for gang in kept.values():
        pool.take(gang)
    new = _place({job: gpus for job, gpus in wanted.items() if gpus and job not in kept}, pool, placement)
    if placement == "buddy" and any(_is_scattered(gang, view) for gang in new):
        return _place_all_anew(wanted, view)
    return new


def _empty(view: ClusterView) -> Pool:
    """The pool without any gang."""
    pool = view.pool.copy()
    for gang in view.running.values():
        pool.give_back(gang)
    return pool


def _place(wanted: Mapping[int, int], pool: Pool, placement: str) -> list[Gang]:
    """Gangs of so many devices, larger ones first; what the rule would let wait takes any devices."""
    gangs = []
    for job in sorted(wanted, key=lambda job: (-wanted[job], job)):
        demand = Demand(wanted[job])
        gang = pool.place(job, demand, placement) or pool.place(job, demand, "count")
        if gang is None:
            raise RuntimeError(f"more devices are planned than there are: {wanted[job]} for job {job}")
        pool.take(gang)
        gangs.append(gang)
    return gangs


def _is_scattered(gang: Gang, view: ClusterView) -> bool:
    """Whether a gang has devices of more nodes than could hold it."""
    machines, left, fewest = view.pool.machines, gang.size, 0
    for size in sorted(view.pool.capacity, reverse=True):
        left, fewest = left - size, fewest + 1
        if left <= 0:
            break
    return len(machines.by_node(gang.devices)) > fewest


def _place_all_anew(wanted: Mapping[int, int], view: ClusterView) -> list[Gang]:
    """Place all jobs, larger ones first; one whose devices are still free then keeps them."""
    pool, gangs = _empty(view), []
    for job in sorted((job for job in wanted if wanted[job]), key=lambda job: (-wanted[job], job)):
        before = view.running.get(job)
        if before is not None and before.size == wanted[job] and not pool.lack(before):
            pool.take(before)
            continue
        gangs += _place({job: wanted[job]}, pool, "buddy")
    return gangs
