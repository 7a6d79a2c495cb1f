"""Parameter servers in a plan: iterations of each worker, ranges of parameters, and what makes such a plan
impossible.

Iteration i of a worker are its slots of micro-batches [i n, (i + 1) n), where n is micro-batches / steps.
Workers may have different numbers of slots in an iteration, or none: then they take no part in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from experiments.hardware import Hardware
from experiments.parallel.interface.plan import ParallelPlan, Slot

PARAMETER_SERVER = "parameter_server"


def has_servers(plan: ParallelPlan) -> bool:
    return plan.synchronization.kind == PARAMETER_SERVER


def iterations(plan: ParallelPlan, worker: int) -> list[tuple[int, list[Slot]]]:
    """Return a worker's iterations in order, each with its number and its slots in their order."""
    each = plan.micro_batches // plan.steps
    found: dict[int, list[Slot]] = defaultdict(list)
    for slot in plan.workers[worker].slots:
        found[slot.micro_batch // each].append(slot)
    return sorted(found.items())


def ranges(plan: ParallelPlan, size: float) -> int:
    """Return into how many equal ranges ``size`` bytes of parameters are divided.

    A whole number for each server.
    """
    servers = len(plan.synchronization.servers)
    return servers * max(1, math.ceil(size / plan.synchronization.bucket_bytes / servers))


def dedicated_servers(plan: ParallelPlan) -> tuple[int, ...]:
    """Return the servers on devices that do not compute."""
    return tuple(device for device in plan.synchronization.servers if device not in set(plan.devices))


def server_violations(plan: ParallelPlan, cluster: Hardware) -> Iterator[str]:
    sync = plan.synchronization
    if not has_servers(plan):
        if any(worker.slow for worker in plan.workers):
            yield "slow workers are told with parameter servers only"
        return
    if not sync.servers:
        yield "nobody serves the parameters"
    if len(set(sync.servers)) < len(sync.servers):
        yield "a device serves twice"
    for device in sync.servers:
        if not 0 <= device < cluster.device_count:
            yield f"server {device} is not one of the cluster's {cluster.device_count} devices"
    if (
        min(sync.fetch_every, sync.push_every, sync.staleness or 0) < 0
        or not sync.fetch_every * sync.push_every
    ):
        yield "fetches, pushes and staleness are counted in iterations from 1, 1 and 0"
    if sync.staleness is not None and sync.push_every > 1:
        yield "a bound on staleness needs a push in every iteration"
    if len(plan.stages) != 1 or plan.zero or plan.shardings or plan.slices:
        yield "workers of parameter servers hold the whole model"
    if plan.steps < 1 or plan.micro_batches % plan.steps:
        yield f"{plan.micro_batches} micro-batches do not divide into {plan.steps} iterations"
    if any(factor <= 0 for worker in plan.workers for factor in worker.slow):
        yield "a worker's slowness is a positive factor"
