"""The partitions of a cluster into groups that AlpaServe tries (section 4.2, algorithm 2)."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.serving.interface.deployment import Group, ServingCluster

MOST_STAGES, MOST_TENSOR = 8, 4


def list_shapes(devices: int, per_node: int) -> Iterator[tuple[int, int]]:
    """Yield (pipeline, tensor) degrees of groups of 1, 2, 4, ... devices; beyond a node of whole nodes.

    At most 8 stages of at most 4 devices; a stage stays within a node.
    """
    size = 1
    while size <= devices:
        if size <= per_node or size % per_node == 0:
            for tensor in (1, 2, 4):
                pipeline, rest = divmod(size, tensor)
                if not rest and pipeline <= MOST_STAGES and tensor <= min(MOST_TENSOR, per_node):
                    yield pipeline, tensor
        size *= 2


def partition(first: int, devices: int, pipeline: int, tensor: int) -> tuple[Group, ...]:
    """Return equal groups of so many devices from ``first`` on.

    What is left over becomes pipelines of 1, 2, 4, ... devices, the largest first.
    """
    size = pipeline * tensor
    groups = [
        Group(tuple(range(first + place * size, first + (place + 1) * size)), pipeline, tensor)
        for place in range(devices // size)
    ]
    at, end = first + devices // size * size, first + devices
    while at < end:
        stages = min(MOST_STAGES, 1 << ((end - at).bit_length() - 1))
        groups.append(Group(tuple(range(at, at + stages)), pipeline=stages))
        at += stages
    return tuple(groups)


def shapes_of(cluster: ServingCluster, devices: int) -> list[tuple[int, int]]:
    """Return the shapes that so many devices of a cluster can have."""
    return list(list_shapes(devices, cluster.devices_per_node))
