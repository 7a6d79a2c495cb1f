"""Grow-shrink (Gandiva, section 3.3): what nobody wants is lent to jobs that can use it.

A job can grow when its speed on more GPUs than it asked for is known. Idle devices of its nodes are lent to
it, the smallest jobs first, as many as make it fastest; they are taken back as soon as anybody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from experiments.cluster.interface import Allocation, ClusterView, Gang


def list_grown(view: ClusterView) -> list[int]:
    """Return the running jobs that have been lent devices."""
    return [job for job, gang in view.running.items() if gang.size > view.jobs.gpus[job]]


def lend(decision: Allocation, view: ClusterView, staying: Iterable[int], busy: Set[int]) -> Allocation:
    """Return the decision with idle devices lent to the jobs that run after it, nobody being left waiting.

    ``staying`` have devices of their own that they share with nobody; ``busy`` devices are about to be used.
    """
    after = {job: gang for job, gang in view.running.items() if job not in decision.suspend}
    after |= {gang.job: gang for gang in decision.start}
    idle = set(range(view.pool.machines.devices)) - busy - _devices_of(after)
    idle = {device for device in idle if view.pool.capacity[view.pool.machines.node_of[device]]}
    lent: dict[int, Gang] = {}
    for job in sorted(staying, key=lambda job: (after[job].size, job)):
        lent[job] = _grow(after[job], idle, view)
        idle.difference_update(lent[job].devices)
    kept = [gang for gang in decision.start if gang.job not in lent]
    changed = [gang for job, gang in lent.items() if view.running.get(job) != gang]
    return Allocation((*kept, *changed), suspend=decision.suspend)


def _devices_of(gangs: Mapping[int, Gang]) -> set[int]:
    return {device for gang in gangs.values() for device in gang.devices}


def _grow(gang: Gang, idle: Set[int], view: ClusterView) -> Gang:
    """The gang with the idle devices of its nodes that make it fastest; fewer where more do not help."""
    most = view.performance.largest(gang.job) - gang.size
    if most <= 0 or gang.hosts:
        return gang
    node_of = view.pool.machines.node_of
    nodes = {node_of[device] for device in gang.devices}
    had = view.running[gang.job].devices if gang.job in view.running else ()
    near = sorted((one for one in idle if node_of[one] in nodes), key=lambda one: (one not in had, one))
    larger = [
        Gang(gang.job, tuple(sorted((*gang.devices, *near[:more]))))
        for more in range(min(most, len(near)) + 1)
    ]
    done = view.done(gang.job)
    return max(larger, key=lambda one: (view.performance.rate(gang.job, one, (), done).speed, -one.size))
