"""From demands to gangs: jobs whose demand stays keep their devices, unless somebody would be scattered."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.cluster.interface import ClusterView, Demand, Gang, Pool


def gangs_for(wanted: Mapping[int, Demand], view: ClusterView, placement: str) -> list[Gang]:
    """Return the gangs that start or move so that each job has what it wants; of 0 devices it wants none.

    Where the ``buddy`` placement would scatter a job, all are placed anew.
    """
    kept = {
        job: gang for job, gang in view.running.items() if job in wanted and _has(gang, wanted[job], view)
    }
    pool = _empty(view)
    for gang in kept.values():
        pool.take(gang)
    changed = {job: demand for job, demand in wanted.items() if demand.gpus and job not in kept}
    new = _place(changed, pool, placement)
    if placement == "buddy" and any(_is_scattered(gang, wanted[gang.job], view) for gang in new):
        return _place_all_anew(wanted, view)
    return new


def _has(gang: Gang, demand: Demand, view: ClusterView) -> bool:
    """Whether a gang is what is demanded."""
    types = {view.pool.machines.type_of(device) for device in gang.devices} if demand.types else set()
    return gang.size == demand.gpus and types <= set(demand.types)


def _empty(view: ClusterView) -> Pool:
    """The pool without any gang."""
    pool = view.pool.copy()
    for gang in view.running.values():
        pool.give_back(gang)
    return pool


def _place(wanted: Mapping[int, Demand], pool: Pool, placement: str) -> list[Gang]:
    """Gangs of so many devices, larger ones first; what the rule would let wait takes any devices."""
    gangs = []
    for job in sorted(wanted, key=lambda job: (-wanted[job].gpus, job)):
        gang = pool.place(job, wanted[job], placement) or pool.place(job, wanted[job], "count")
        if gang is None:
            raise RuntimeError(f"more devices are planned than there are: {wanted[job].gpus} for job {job}")
        pool.take(gang)
        gangs.append(gang)
    return gangs


def _is_scattered(gang: Gang, demand: Demand, view: ClusterView) -> bool:
    """Whether a gang has devices of more nodes than could hold it."""
    machines, left, fewest = view.pool.machines, gang.size, 0
    suited = (
        size
        for size, node in zip(view.pool.capacity, machines, strict=True)
        if not demand.types or node.device in demand.types
    )
    for size in sorted(suited, reverse=True):
        left, fewest = left - size, fewest + 1
        if left <= 0:
            break
    return len(machines.by_node(gang.devices)) > fewest


def _place_all_anew(wanted: Mapping[int, Demand], view: ClusterView) -> list[Gang]:
    """Place all jobs, larger ones first; one whose devices are still free then keeps them."""
    pool, gangs = _empty(view), []
    order = sorted((job for job in wanted if wanted[job].gpus), key=lambda job: (-wanted[job].gpus, job))
    for job in order:
        before = view.running.get(job)
        if before is not None and _has(before, wanted[job], view) and not pool.lack(before):
            pool.take(before)
            continue
        gangs += _place({job: wanted[job]}, pool, "buddy")
    return gangs
