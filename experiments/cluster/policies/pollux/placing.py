"""From rows of devices by node to gangs: jobs whose row stays keep their devices."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.cluster.interface import ClusterView, Demand, Gang, Pool
from experiments.cluster.policies.pollux.scheduler import Row, row_of


def gangs_for(
    rows: Mapping[int, Row], batches: Mapping[int, int], view: ClusterView
) -> tuple[list[Gang], list[int]]:
    """Return the gangs that start, move or change their batch, and the jobs that start or move."""
    pool = view.pool.copy()
    changed = [job for job, row in rows.items() if row != row_of(job, view)]
    for job in changed:
        if job in view.running:
            pool.give_back(view.running[job])
    gangs = []
    for job, gang in view.running.items():
        if job not in changed and gang.batch != batches[job]:
            gangs.append(Gang(job, gang.devices, batch=batches[job]))
    moved = [job for job in changed if any(rows[job])]
    for job in moved:
        devices: list[int] = []
        for node, count in enumerate(rows[job]):
            devices += pool.free_devices(node)[:count]
        gang = Gang(job, tuple(devices), batch=batches[job])
        pool.take(gang)
        gangs.append(gang)
    return gangs, moved


def gang_on(job: int, pool: Pool, batch: int, placement: str) -> Gang | None:
    """One free device for a job, if there is one."""
    found = pool.place(job, Demand(1), placement)
    return None if found is None else Gang(job, found.devices, batch=batch)
