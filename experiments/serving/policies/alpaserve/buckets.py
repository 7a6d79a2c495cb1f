"""Buckets of models with similar latency, each with devices of its own (AlpaServe, section 4.2).

A request of a small model never waits behind one of a large one: no convoys.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.serving.interface.deployment import Deployment

#: Largest difference of latencies in a bucket, of the larger, as the authors' code has it.
SIMILAR = 0.38


def list_buckets(deployment: Deployment) -> list[tuple[int, ...]]:
    """Return the models by latency alone, in buckets whose latencies are similar."""
    times = [sum(model.cost.stage_times(1, 1, 1)) for model in deployment.models]
    buckets: list[tuple[int, ...]] = []
    for model in sorted(range(len(times)), key=lambda model: (times[model], model)):
        if buckets and 1 - times[buckets[-1][0]] / times[model] < SIMILAR:
            buckets[-1] = (*buckets[-1], model)
        else:
            buckets.append((model,))
    return buckets


def divide_devices(deployment: Deployment, buckets: Sequence[tuple[int, ...]]) -> list[int] | None:
    """Return the devices of each bucket, nearest to its share of the load (Webster's method).

    Each has at least one, and what its models need.
    ``None`` where the cluster has too few for all buckets.
    """
    models, cluster = deployment.models, deployment.cluster
    loads = [sum(models[m].rate * sum(models[m].cost.stage_times(1, 1, 1)) for m in one) for one in buckets]
    least = [
        max(1, -(-int(sum(models[m].bytes for m in one)) // max(1, int(cluster.memory)))) for one in buckets
    ]
    spare = cluster.devices - sum(least)
    if spare < 0:
        return None
    given = list(least)
    for _ in range(spare):
        place = max(range(len(buckets)), key=lambda one: (loads[one] / (given[one] + 0.5), -one))
        given[place] += 1
    return given
