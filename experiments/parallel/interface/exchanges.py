"""Gradients that are summed by servers, or in buckets of a planner's own: what makes such a plan
impossible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.hardware import Hardware
from experiments.parallel.interface.parameter_servers import PARAMETER_SERVER
from experiments.parallel.interface.plan import ParallelPlan

#: All replicas add gradients among themselves.
ALL_REDUCE = "all_reduce"
#: Servers add gradients and send the sum back; workers update their weights.
SUMMATION = "summation"
KINDS = (ALL_REDUCE, SUMMATION, PARAMETER_SERVER)


def exchange_violations(plan: ParallelPlan, cluster: Hardware) -> Iterator[str]:
    sync = plan.synchronization
    if sync.kind not in KINDS:
        yield f"nobody sums gradients by {sync.kind!r}, only by {', '.join(KINDS)}"
    if sync.kind != PARAMETER_SERVER and sync.staleness != 0:
        yield f"an all-reduce has no staleness ({sync.staleness})"
    if not 0 <= sync.cycle < math.inf:
        yield f"buckets leave every {sync.cycle} s"
    if sync.buckets:
        yield from _bucket_violations(plan)
    if sync.kind == SUMMATION:
        yield from _summation_violations(plan, cluster)


def _bucket_violations(plan: ParallelPlan) -> Iterator[str]:
    """Together they are every layer once, from the last to the first, none in two stages."""
    expected = plan.stages[-1].end if plan.stages else 0
    starts = {stage.begin for stage in plan.stages}
    for begin, end in plan.synchronization.buckets:
        if end != expected or begin >= end or any(begin < start < end for start in starts):
            yield f"a bucket holds layers {begin} to {end}, expected some of one stage that end at {expected}"
        expected = begin
    if expected != 0:
        yield f"no bucket holds the layers below {expected}"


def _summation_violations(plan: ParallelPlan, cluster: Hardware) -> Iterator[str]:
    sync = plan.synchronization
    if not sync.servers or len(set(sync.servers)) < len(sync.servers):
        yield f"{len(sync.servers)} servers sum gradients, {len(set(sync.servers))} of them different devices"
    if any(not 0 <= device < cluster.device_count for device in sync.servers):
        yield f"a server is not one of the cluster's {cluster.device_count} devices"
    if len(sync.shares) != len(sync.servers) or min(sync.shares, default=0.0) < 0:
        yield f"{len(sync.shares)} shares for {len(sync.servers)} servers"
    elif abs(sum(sync.shares) - 1) > 1e-9:
        yield f"the servers' shares sum to {sum(sync.shares):g}"
    if plan.zero or any(len(worker.devices) > 1 for worker in plan.workers):
        yield "gradients are summed by servers for workers of one device, without ZeRO"
    if not 0 < sync.bucket_bytes < math.inf or sync.in_flight < 1:
        yield f"{sync.in_flight} parts of {sync.bucket_bytes:g} bytes are under way"
