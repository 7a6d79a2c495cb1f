"""DAPPLE's dynamic program: stages, replicas and their devices with the least estimated step of a synchronous
pipeline.

Source: Fan et al., PPoPP'21, section 4.2. A state is (layers planned, devices of each machine in use); from
each, one more stage is cut off what is left, which then is one last stage on all other devices: so every
candidate is a whole plan. The best way into each state is kept, by the estimate of its whole plan. What
cannot be faster than the best plan so far is left out: no estimate is under (M - 1) passes of its slowest
stage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.core.budget import Budget
from experiments.hardware import Hardware, collectives
from experiments.parallel.policies.dapple.occupancy import Used, choices, devices
from experiments.parallel.policies.dapple.pivot import latencies
from experiments.parallel.policies.dapple.shared_micro_batches import accumulated_seconds, shared_ways
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

#: Up to so many devices every number of replicas is tried; beyond, powers of two within a machine and whole
#: machines, for the new stage or for what is left.
EVERY_WIDTH = 8


#: Forward, backward and all-reduce seconds of one stage, for each plan or once for all of them.
Row = tuple[Floats, Floats, Floats]


@dataclass(frozen=True)
class LayerBlocks:
    """Runs of layers that stages are made of, with totals up to each border.

    Totals have shape (blocks + 1,) and are for one micro-batch.

    ``ends`` are the borders in layers; ``crossing`` the activation bytes that cross each border.
    """

    ends: tuple[int, ...]
    forward: Floats
    backward: Floats
    gradient: Floats
    crossing: Floats


@dataclass(frozen=True)
class PlacedStage:
    """A stage: blocks ``begin`` to ``end`` on ``devices``."""

    begin: int
    end: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class SynchronousSearchResult:
    """The best plan and its estimate, the same for data parallelism, and what was compared."""

    seconds: float
    stages: tuple[PlacedStage, ...]
    data_parallel: PlacedStage
    data_parallel_seconds: float
    states: int
    candidates: int


class SynchronousSearch:
    """A search for the stages, replicas and devices of one step on a cluster of equal machines.

    There are ``micro_batches`` of ``samples`` each. Data parallelism, which a pipeline is compared with,
    takes the batch in ``accumulated`` micro-batches. ``budget`` bounds the plans that are compared.
    """

    def __init__(
        self,
        blocks: LayerBlocks,
        cluster: Hardware,
        micro_batches: int,
        samples: int,
        accumulated: int,
        budget: Budget | None = None,
    ) -> None:
        self.blocks, self.cluster, self.micro_batches = blocks, cluster, micro_batches
        self.samples, self.accumulated = samples, accumulated
        self.budget = budget or Budget(sys.maxsize)
        self.per_machine = cluster.node.device_count
        self.last = len(blocks.ends) - 1
        self.candidates = 0
        self._work = blocks.forward + blocks.backward
        self._best: dict[tuple[int, Used], tuple[float, tuple[PlacedStage, ...]]] = {}

    def run(self) -> SynchronousSearchResult:
        empty: Used = (0,) * self.cluster.node_count
        everything = PlacedStage(0, self.last, tuple(range(self.cluster.device_count)))
        data_parallel = best = self._data_parallel(everything.devices)
        stages: tuple[PlacedStage, ...] = (everything,)
        self._best[0, empty] = (best, ())
        for begin in range(self.last):
            for used in sorted(used for border, used in self._best if border == begin):
                if self.budget.ended_early:
                    break
                seconds, plan = self._extend(begin, used, best)
                if seconds < best:
                    best, stages = seconds, plan
        return SynchronousSearchResult(
            best, stages, everything, data_parallel, len(self._best), self.candidates
        )

    def _data_parallel(self, own: tuple[int, ...]) -> float:
        """Section 4: what the planner compares pipelines with overlaps the sum of gradients with the last
        backward pass.
        """
        blocks, self.candidates = self.blocks, self.candidates + 1
        larger = self.micro_batches / self.accumulated
        share = larger / shared_ways(self.samples * self.micro_batches // self.accumulated, len(own))
        reduced = self._all_reduce(np.diff(blocks.gradient), own)
        waits = np.where(np.diff(blocks.gradient) > 0, reduced, 0.0)
        return accumulated_seconds(
            np.diff(blocks.forward) * share,
            np.diff(blocks.backward) * share,
            waits.tolist(),
            self.accumulated,
        )

    def _extend(self, begin: int, used: Used, best: float) -> tuple[float, tuple[PlacedStage, ...]]:
        """Every next stage from this state; the best whole plan among them, which is infinite if none can be
        faster than ``best``.
        """
        prefix = self._best[begin, used][1]
        found: tuple[float, tuple[PlacedStage, ...]] = (float("inf"), ())
        full: Used = (self.per_machine,) * len(used)
        free, ends = self.cluster.device_count - sum(used), np.arange(begin + 1, self.last)
        if not len(ends) or self._floor(begin, free) >= best:
            return found
        rows = self._prefix_rows(prefix)
        before = prefix[-1].devices if prefix else ()
        for count in self._widths(free):
            kept = ends[self._floors(begin, ends, count, free - count) < best]
            for after in choices(used, self.per_machine, count) if len(kept) else ():
                if not self.budget.take(len(kept)):
                    return found
                own, rest = devices(used, after, self.per_machine), devices(after, full, self.per_machine)
                seconds = self._latencies(rows, before, begin, kept, own, rest)
                for end, value in zip(kept.tolist(), seconds.tolist(), strict=True):
                    stage = PlacedStage(begin, end, own)
                    if value < self._best.get((end, after), (float("inf"),))[0]:
                        self._best[end, after] = (value, (*prefix, stage))
                    if value < found[0]:
                        found = (value, (*prefix, stage, PlacedStage(end, self.last, rest)))
            best = min(best, found[0])
        return found

    def _floor(self, begin: int, free: int) -> float:
        """No plan of the blocks from ``begin`` on over ``free`` devices takes less: (M - 1) passes of its
        slowest stage.
        """
        return float((self.micro_batches - 1) * (self._work[-1] - self._work[begin]) / free)

    def _floors(self, begin: int, ends: Ints, count: int, rest: int) -> Floats:
        """The same for a stage up to each of ``ends`` and what is left then."""
        own = (self._work[ends] - self._work[begin]) / shared_ways(self.samples, count)
        left = (self._work[-1] - self._work[ends]) / rest
        floors: Floats = (self.micro_batches - 1) * np.maximum(own, left)
        return floors

    def _widths(self, free: int) -> list[int]:
        """Replicas of a next stage; at least one device is left for the rest."""
        if self.cluster.device_count <= EVERY_WIDTH:
            return list(range(1, free))
        powers = [1 << k for k in range(self.per_machine.bit_length()) if 1 << k < self.per_machine]
        whole = list(range(self.per_machine, free, self.per_machine))
        return sorted({width for few in (*powers, *whole) if few < free for width in (few, free - few)})

    def _prefix_rows(self, prefix: Sequence[PlacedStage]) -> list[Row]:
        rows: list[Row] = []
        before: tuple[int, ...] = ()
        for stage in prefix:
            rows += self._transfer(before, stage.devices, np.array([stage.begin]))
            rows.append(self._stage(np.array([stage.begin]), np.array([stage.end]), stage.devices))
            before = stage.devices
        return rows

    def _latencies(
        self,
        prefix: Sequence[Row],
        before: tuple[int, ...],
        begin: int,
        ends: Ints,
        own: tuple[int, ...],
        rest: tuple[int, ...],
    ) -> Floats:
        """Of the plans ``prefix``, then ``begin`` to each of ``ends`` on ``own``, then the others on
        ``rest``.
        """
        start = np.array([begin])
        rows = [*prefix, *self._transfer(before, own, start), self._stage(start, ends, own)]
        rows += [*self._transfer(own, rest, ends), self._stage(ends, np.array([self.last]), rest)]
        return self._columns(rows)

    def _columns(self, rows: Sequence[Row]) -> Floats:
        """The estimates; a row that is the same for every plan has one entry."""
        width = max(len(row[0]) for row in rows)
        table = np.empty((3, len(rows), width))
        for number, row in enumerate(rows):
            for part in range(3):
                table[part, number] = row[part]
        self.candidates += width
        return latencies(table[0], table[1], table[2], self.micro_batches)

    def _stage(self, begin: Ints, end: Ints, own: tuple[int, ...]) -> Row:
        """Forward, backward and all-reduce of a stage whose replicas share every micro-batch."""
        blocks, ways = self.blocks, shared_ways(self.samples, len(own))
        forward = (blocks.forward[end] - blocks.forward[begin]) / ways
        backward = (blocks.backward[end] - blocks.backward[begin]) / ways
        return forward, backward, self._all_reduce(blocks.gradient[end] - blocks.gradient[begin], own)

    def _all_reduce(self, size: Floats, own: tuple[int, ...]) -> Floats:
        """Ring over the slowest link between them; linear in the bytes."""
        link = self.cluster.node.link if len(self._machines(own)) == 1 else self.cluster.network
        traffic = collectives.ring_all_reduce_traffic(len(own), 1.0)
        waiting = collectives.seconds(link, replace(traffic, sent=0.0))
        each = collectives.seconds(link, replace(traffic, messages=0))
        reduced: Floats = waiting + size * each
        return reduced

    def _transfer(self, sender: tuple[int, ...], receiver: tuple[int, ...], border: Ints) -> list[Row]:
        """A stage of its own: a micro-batch's activations there, their gradients back; parts
        travel at once.
        """
        if not sender:
            return []
        here, there = self._machines(sender), self._machines(receiver)
        inside = len(here | there) == 1
        link = self.cluster.node.link if inside else self.cluster.network
        parts = min(len(sender), len(receiver)) if inside else min(len(here), len(there))
        seconds = link.latency + self.blocks.crossing[border] / (link.bandwidth * parts)
        return [(seconds, seconds, np.zeros_like(seconds))]

    def _machines(self, own: tuple[int, ...]) -> set[int]:
        return {device // self.per_machine for device in own}
