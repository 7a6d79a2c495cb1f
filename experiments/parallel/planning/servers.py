"""Workers and parameter servers on a cluster's devices; portions of a batch that free workers take."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.core.errors import BadInput
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    ParallelPlan,
    PlanningEstimate,
    Slot,
    Stage,
    Synchronization,
    Training,
    Worker,
    whole_share,
)
from experiments.workloads.layers import LayerGraph

#: Ranges that a server's share is cut into at most, so that messages are not beyond counting.
MOST_RANGES = 8


@dataclass(frozen=True)
class Roles:
    """Devices that compute and devices that serve."""

    workers: tuple[int, ...]
    servers: tuple[int, ...]


def roles(cluster: Hardware, servers: int | None, batch: int) -> Roles:
    """The last ``servers`` devices serve; with none of them every device computes and serves.

    By default, as few serve as leave workers that share ``batch`` samples equally.
    """
    count = cluster.device_count
    if servers is None:
        servers = next((k for k in range(1, count) if batch % (count - k) == 0), 0)
    if servers >= count:
        raise BadInput(
            f"{servers} servers leave no worker on {count} devices", "knobs.servers", f"below {count}"
        )
    devices = tuple(range(count))
    return Roles(devices[: count - servers], devices[count - servers :] if servers else devices)


def range_bytes(wanted: float, share: Roles, estimate: PlanningEstimate) -> float:
    """``wanted``, or more where a server would have too many of them."""
    size = float(estimate.layer_parameters.sum()) * estimate.states.gradient
    return max(wanted, size / (MOST_RANGES * len(share.servers)))


def server_plan(
    model: LayerGraph,
    batch: int,
    iterations: int,
    share: Roles,
    takes: Sequence[Sequence[int]],
    sync: Synchronization,
    training: Training,
) -> ParallelPlan:
    """Return a plan of ``iterations`` of ``batch`` samples on parameter servers.

    ``takes`` has for each worker the micro-batches that it runs in each of them.
    """
    each = sum(map(len, takes))
    whole_share(batch, each, "samples", "options.batch")
    return ParallelPlan(
        batch=batch * iterations,
        micro_batches=each * iterations,
        mesh=(("data", len(share.workers)), ("servers", len(share.servers))),
        stages=(Stage(0, len(model), tuple(range(len(share.workers)))),),
        workers=tuple(
            Worker((device,), _slots(taken, each, iterations))
            for device, taken in zip(share.workers, takes, strict=True)
        ),
        synchronization=sync,
        steps=iterations,
        training=training,
    )


def _slots(taken: Sequence[int], each: int, iterations: int) -> tuple[Slot, ...]:
    return tuple(
        Slot(kind, iteration * each + index, 0)
        for iteration in range(iterations)
        for index in taken
        for kind in (FORWARD, BACKWARD)
    )


@dataclass(frozen=True)
class Portions:
    """Who finished which portions, when all are done, and how many were run twice."""

    taken: tuple[tuple[int, ...], ...]
    seconds: float
    duplicated: int


def taken_when_free(portions: int, seconds: Sequence[float], duplicate: bool = True) -> Portions:
    """Return the portions as free workers take them, each the next.

    With none left one runs what another has not finished, if it would be sooner.

    ``seconds``: of a portion on each worker. Source: Dean et al., NeurIPS'12, section 4.2 (a coordinator that
    hands out portions much smaller than a worker's share, and several copies of the slowest at the end).
    """
    ends = [0.0] * portions
    owner = [-1] * portions
    copies = 0
    free = [(0.0, worker) for worker in range(len(seconds))]
    following = 0
    while free:
        now, worker = heapq.heappop(free)
        end = now + seconds[worker]
        if following < portions:
            owner[following], ends[following] = worker, end
            following += 1
            heapq.heappush(free, (end, worker))
        elif duplicate:
            latest = max(range(portions), key=lambda portion: (ends[portion], -portion))
            if end < ends[latest]:
                owner[latest], ends[latest] = worker, end
                copies += 1
                heapq.heappush(free, (end, worker))
    taken = tuple(tuple(p for p in range(portions) if owner[p] == worker) for worker in range(len(seconds)))
    return Portions(taken, max(ends), copies)


def even_shares_seconds(portions: int, seconds: Sequence[float]) -> float:
    """All portions divided evenly from the start: the slowest worker's time."""
    return max(seconds) * portions / len(seconds)
