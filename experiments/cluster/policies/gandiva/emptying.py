"""Emptying the least loaded node (Gandiva, section 3.2): whole nodes fall free for jobs that need them."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cluster.interface import ClusterView, Devices
from experiments.cluster.policies.gandiva.homes import Homes


def vacate_least_loaded(staying: Sequence[int], view: ClusterView, homes: Homes) -> dict[int, Devices]:
    """Move the homes of all jobs of the node with the fewest to nodes with others; where they were.

    ``staying`` run on devices of their own and may move. Nothing moves where not all of them can.
    """
    machines = view.pool.machines
    jobs: dict[int, list[int]] = {}
    for job, devices in homes.of.items():
        for node, _ in machines.by_node(devices):
            jobs.setdefault(node, []).append(job)
    if len(jobs) < 2:
        return {}
    wanted = view.jobs.gpus
    node = min(jobs, key=lambda one: (sum(wanted[job] for job in jobs[one]), one))
    moved: dict[int, Devices] = {}
    for job in sorted(jobs[node], key=lambda one: (-wanted[one], one)):
        place = homes.beside(view.jobs.demand(job), view.pool, node) if job in staying else None
        if place is None or len(machines.by_node(homes.of[job])) > 1:
            return _undo(moved, homes)
        moved[job] = homes.of[job]
        homes.leave(job)
        homes.settle(job, place)
    return moved


def _undo(moved: dict[int, Devices], homes: Homes) -> dict[int, Devices]:
    for job, devices in moved.items():
        homes.leave(job)
        homes.settle(job, devices)
    return {}
