"""Which replicas of a plan do the same at the same times, so that one of them can stand for all.

Workers that exchange activations are a pipeline; pipelines that send anything of their own over the same
nodes (or leaf switches) are a group, which nothing but the sums and gathers of all replicas joins to the
others. These start when the last replica is ready and end for all at once. So groups whose workers do the
same, on devices that lie the same way, and which those collectives cross the same way, are never
distinguished, however many there are. Where workers send nothing of their own (one stage, nothing inside
workers) every worker is a group, wherever it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from experiments.hardware.algorithms import AUTO
from experiments.hardware.roofline import memory_rate
from experiments.hardware.topology import LEAF, NODE
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, Stage, ties
from experiments.parallel.simulator.network import Message, Network

#: A node or a leaf switch, and its number.
Place = tuple[str, int]


def representatives(
    plan: ParallelPlan, estimate: PlanningEstimate, slowdown: Sequence[float], network: Network
) -> list[int]:
    """For each worker the first one that does the same; ``slowdown`` is how much longer each computes."""
    workers = range(len(plan.workers))
    doing = [_doing(plan, estimate, worker, slowdown[worker]) for worker in workers]
    inside = any(sharding.forward or sharding.backward for sharding in plan.shardings)
    if len(plan.stages) == 1 and not inside:
        return _first_alike([[worker] for worker in workers], doing)
    if plan.synchronization.kind != "all_reduce" or plan.synchronization.algorithm == AUTO:
        return list(workers)
    places = _Map(plan, network)
    return _first_alike(_groups(plan, estimate, places), doing, places)


def _first_alike(
    groups: Sequence[Sequence[int]], doing: Sequence[_Doing], places: _Map | None = None
) -> list[int]:
    """The workers of the first group that is alike stand for those of every other, in their order."""
    found = list(range(len(doing)))
    first: dict[Hashable, Sequence[int]] = {}
    for group in groups:
        numbers = _Numbers()
        does = tuple(
            (
                doing[worker].pace,
                tuple((*what, numbers[micro_batch]) for micro_batch, what in doing[worker].slots),
            )
            for worker in group
        )
        alike = first.setdefault((does, places.describe(group) if places else ()), group)
        for worker, standing in zip(group, alike, strict=True):
            found[worker] = standing
    return found


class _Numbers(dict[Hashable, int]):
    """Numbers names from 0 on, in the order in which they are asked for."""

    def __missing__(self, name: Hashable) -> int:
        self[name] = len(self)
        return self[name]


class _Doing(NamedTuple):
    """How fast a worker is; the micro-batch of each of its slots in their order, and what else tells slots
    apart.
    """

    pace: Hashable
    slots: Sequence[tuple[int, tuple[Hashable, ...]]]


def _doing(plan: ParallelPlan, estimate: PlanningEstimate, worker: int, slowdown: float) -> _Doing:
    devices = plan.workers[worker].devices
    update: float = min(memory_rate(device) for device in {estimate.devices[device] for device in devices})
    if estimate.updates:
        update = estimate.updates[worker]
    sizes, joined = plan.slices or None, frozenset(plan.joined)
    slots = [
        (
            slot.micro_batch,
            (slot.kind, slot.stage, sizes and sizes[slot.micro_batch], slot.micro_batch in joined),
        )
        for slot in plan.workers[worker].slots
    ]
    return _Doing((slowdown, update, len(devices)), slots)


# --- groups of workers
# ----------------------------------------------------------------------------------------------


def _groups(plan: ParallelPlan, estimate: PlanningEstimate, places: _Map) -> list[list[int]]:
    """Workers that meet otherwise than in the collectives of replicas: through micro-batches, tied weights,
    or places.
    """
    joined = _Joined(len(plan.workers))
    host: dict[int, int] = {}
    for number, worker in enumerate(plan.workers):
        for micro_batch in {slot.micro_batch for slot in worker.slots}:
            joined.join(number, host.setdefault(micro_batch, number))
    hosts = [stage.workers for stage in plan.stages for _ in range(stage.begin, stage.end)]
    for tie in ties(plan, estimate.model):
        for one, other in zip(hosts[tie.owner], hosts[tie.reader], strict=False):
            joined.join(one, other)
    shared: dict[Place, int] = {}
    for pipeline in joined.groups():
        for place in places.places_of(pipeline):
            joined.join(pipeline[0], shared.setdefault(place, pipeline[0]))
    return joined.groups()


class _Joined:
    """Sets of numbers that are joined pair by pair."""

    def __init__(self, count: int) -> None:
        self._of = list(range(count))

    def _root(self, number: int) -> int:
        while self._of[number] != number:
            self._of[number] = self._of[self._of[number]]
            number = self._of[number]
        return number

    def join(self, one: int, other: int) -> None:
        roots = self._root(one), self._root(other)
        self._of[max(roots)] = min(roots)

    def groups(self) -> list[list[int]]:
        """Each in order, by their first numbers."""
        found: dict[int, list[int]] = defaultdict(list)
        for number in range(len(self._of)):
            found[self._root(number)].append(number)
        return list(found.values())


def _exchanges(plan: ParallelPlan, stage: Stage) -> list[tuple[str, list[tuple[int, ...]]]]:
    """What replicas do together, and who: sums where every one has all states, sums and gathers of
    their parts under ZeRO, sums of copies of parts; those of divided experts apart.
    """
    kinds = [experts for experts in (False, True) if plan.degree(stage, experts) > 1]
    return [exchange for experts in kinds for exchange in _exchanges_of(plan, stage, experts)]


def _exchanges_of(plan: ParallelPlan, stage: Stage, experts: bool) -> list[tuple[str, list[tuple[int, ...]]]]:
    if not plan.zero:
        return [("all_reduce", plan.holders(stage, experts))]
    found = [(kind, plan.sharing_groups(stage, experts)) for kind in ("reduce_scatter", "all_gather")]
    hybrid = plan.sharing(stage, experts) < plan.degree(stage, experts)
    return found + ([("all_reduce", plan.copy_groups(stage, experts))] if hybrid else [])


# --- where groups lie
# -----------------------------------------------------------------------------------------------


class _Map:
    """Nodes and leaf switches of a plan's workers, and what the collectives of replicas use of each."""

    def __init__(self, plan: ParallelPlan, network: Network) -> None:
        self._plan, self._topology = plan, network.topology
        nodes = network.algorithms.cluster.nodes
        distinct = list(dict.fromkeys(map(id, nodes)))
        self._kinds = [distinct.index(id(node)) for node in nodes]
        self._uses: dict[Place, list[tuple[int, int, float]]] = defaultdict(list)
        hosted = {stage.workers: stage for stage in plan.stages if plan.is_replicated(stage)}
        for number, stage in enumerate(hosted.values()):
            for which, (kind, groups) in enumerate(_exchanges(plan, stage)):
                message = network.groups(kind, groups, 1.0, plan.synchronization.algorithm)
                self._add(6 * number + which, message)

    def _add(self, collective: int, message: Message) -> None:
        """Held channels take no share."""
        for channel, seconds in (*((channel, 0.0) for channel in message.channels), *message.shares):
            what, number, own = self._topology.place(channel)
            self._uses[what, number].append((collective, own, seconds))

    def places_of(self, group: Iterable[int]) -> list[Place]:
        """Nodes in which a group has devices; leaf switches too where it has several."""
        devices = (device for worker in group for device in self._plan.workers[worker].devices)
        nodes = dict.fromkeys(int(self._topology.node[device]) for device in devices)
        leaves = dict.fromkeys(self._topology.leaf(node) for node in nodes)
        found = [(NODE, node) for node in nodes]
        return found + ([(LEAF, leaf) for leaf in leaves] if len(leaves) > 1 else [])

    def describe(self, group: Sequence[int]) -> Hashable:
        """Where the workers are, and how collectives cross the nodes and leaves there.

        Nodes and leaves go by their order in the group.
        """
        names = _Numbers()
        devices = [device for worker in group for device in self._plan.workers[worker].devices]
        nodes = [int(self._topology.node[device]) for device in devices]
        lie = tuple(
            (names[NODE, node], names[LEAF, self._topology.leaf(node)], self._topology.within(device))
            for node, device in zip(nodes, devices, strict=True)
        )
        crossed = tuple(
            (self._kinds[number] if what == NODE else -1, tuple(self._uses.get((what, number), ())))
            for what, number in self.places_of(group)
        )
        return lie, crossed
