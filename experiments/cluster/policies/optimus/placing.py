"""Which devices jobs get: those of unchanged count keep theirs, the others as few nodes as hold them.

Jobs of fewest devices are placed first; on the ``k`` emptiest nodes that are enough, as evenly as they have
room (section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.cluster.interface import ClusterView, Demand, Gang, Pool

EVEN = "even"


def gangs_for(wanted: Mapping[int, int], view: ClusterView, placement: str) -> list[Gang]:
    """Return the gangs of the jobs whose count changes."""
    kept = {job: gang for job, gang in view.running.items() if wanted.get(job) == gang.size}
    pool = view.pool.copy()
    for job, gang in view.running.items():
        if job not in kept:
            pool.give_back(gang)
    gangs = []
    changed = [job for job in wanted if wanted[job] and job not in kept]
    for job in sorted(changed, key=wanted.__getitem__):
        gang = _place(job, wanted[job], pool, placement)
        pool.take(gang)
        gangs.append(gang)
    return gangs


def _place(job: int, gpus: int, pool: Pool, placement: str) -> Gang:
    if placement == EVEN:
        devices = spread_evenly(gpus, [pool.free_devices(node) for node in range(len(pool.free))])
        gang = Gang(job, devices) if devices else None
    else:
        gang = pool.place(job, Demand(gpus), placement) or pool.place(job, Demand(gpus), "count")
    if gang is None:
        raise RuntimeError(f"more devices are planned than there are: {gpus} for job {job}")
    return gang


def spread_evenly(gpus: int, free: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """So many of the devices ``free`` by node, on the fewest nodes; none where they are too few."""
    emptiest = sorted(free, key=lambda devices: -len(devices))
    nodes, room = 0, 0
    while room < gpus:
        if nodes == len(emptiest):
            return ()
        room += len(emptiest[nodes])
        nodes += 1
    taken: list[int] = []
    for place, devices in enumerate(reversed(emptiest[:nodes])):
        taken += devices[: -(-(gpus - len(taken)) // (nodes - place))]
    return tuple(sorted(taken))
