"""Step time of many Megatron plans at once, in closed form: numpy columns with an entry for each plan.

Source: Narayanan et al., SC'21, section 2.2 (time of a pipeline is that of its slowest stage for every
micro-batch and of the others once), section 3.3. The rest follows the event simulator: 1F1B has no slack, so
each micro-batch waits for two messages; pipelines of chunks or of unequal stages are carried out slot by slot
(``slot_by_slot``). A test holds the two within 3 %. Exchanges are those of all holders, weights handed out
ahead: a search looks at no hybrid sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.hardware.host_adam import FUSED_ADAM
from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import PlanningEstimate
from experiments.parallel.planning.degrees.chunks import FIRST, chunks_of
from experiments.parallel.planning.degrees.columns import Columns
from experiments.parallel.planning.degrees.costs import Costs, CostTable
from experiments.parallel.planning.degrees.peaks import Peaks
from experiments.parallel.planning.degrees.slot_by_slot import distinct_micro_batches, pipeline_seconds
from experiments.parallel.planning.transformers.blocks import blocks_by_chunk
from experiments.parallel.planning.transformers.plan import (
    BUCKET,
    BUCKET_PER_REPLICA,
)
from experiments.workloads.ragged import Ints
from experiments.workloads.step import Floats

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Figures:
    """Seconds of a step and bytes on the fullest device. Shape (plans,)."""

    step_time: Floats
    peak_memory: Floats


class Analytic:
    """Closed forms for one model, cluster and batch."""

    def __init__(self, estimate: PlanningEstimate, batch: int) -> None:
        assert estimate.model.transformer is not None
        self.table, self.estimate, self.batch = CostTable(estimate), estimate, batch
        self.sizes = estimate.model.transformer
        self.blocks = self.sizes.layers

    def figures(self, plans: Columns) -> Figures:
        gathered = GatheredCosts(self, plans)
        return Figures(gathered.step_time(), Peaks(gathered).bytes())


class GatheredCosts:
    """The costs of each plan as columns, and the formulas over them."""

    def __init__(self, analytic: Analytic, plans: Columns) -> None:
        self.analytic, self.plans = analytic, plans
        self.micro_batches = analytic.batch // (plans.replicas * plans.joined * plans.micro_batch)
        self.chunks = chunks_of(
            analytic.blocks,
            plans.pipeline,
            plans.interleaved,
            self.micro_batches,
            plans.embedding_blocks,
            plans.head_blocks,
            plans.first_extra,
        )
        self._place, costs = self._distinct()
        self._take(costs)
        self._messages()

    def _distinct(self) -> tuple[Ints, list[Costs]]:
        """Each plan's place in the list of distinct costs."""
        plans = self.plans
        divisions = (
            *(plans.tensor, plans.context, plans.sequence, plans.overlap, plans.overlap_products),
            *(plans.context_exchange, plans.context_balanced, plans.keep_gathered),
        )
        keys = np.stack([*divisions, plans.expert, plans.micro_batch * plans.joined], 1)
        distinct, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        table = self.analytic.table
        costs = [
            table.costs(plans.layout(int(index)).mesh, int(row[-1]))
            for index, row in zip(first, distinct, strict=True)
        ]
        return place.reshape(-1), costs

    def _take(self, costs: list[Costs]) -> None:
        def column(pick: str, what: str) -> Floats:
            values = np.array([getattr(getattr(cost, pick), what) for cost in costs])
            found: Floats = values[self._place]
            return found

        plans, place = self.plans, self._place
        self.full, self.selective = plans.recompute >= 2, plans.recompute == 1
        self.block_forward = column("block", "forward")
        plain, core = column("block", "backward"), column("core", "again") - column("core", "backward")
        chosen = np.where(self.selective, plain + core, plain)
        self.block_backward = np.where(self.full, column("block", "again"), chosen)
        ends = plans.recompute == 3
        self.first, self.last = (
            [
                column(end, "forward"),
                np.where(ends, column(end, "again"), column(end, "backward")),
                column(end, "parameters"),
                column(end, "kept"),
                column(end, "largest"),
            ]
            for end in ("first", "last")
        )
        self.tied = np.where(plans.pipeline > 1, np.array([cost.tied for cost in costs])[place], 0.0)
        self.last[2] += self.tied
        self.last[4] = np.maximum(self.last[4], self.tied)
        self.block_largest = column("block", "largest")
        self.block_parameters = column("block", "parameters")
        self.block_experts = column("block", "experts")
        block_kept, core_kept = column("block", "kept"), column("core", "kept")
        self.boundary = boundary = np.array([cost.boundary for cost in costs])[place]
        core_input = np.array([cost.core_input for cost in costs])[place]
        selective = block_kept - core_kept + core_input
        self.block_kept = np.where(self.full, boundary, np.where(self.selective, selective, block_kept))
        self.again_bytes = np.where(self.full, block_kept, np.where(self.selective, core_kept, 0.0))
        self._ends_again(boundary)
        self._plain_blocks(column)
        self.crossing = np.array([cost.crossing for cost in costs])[place]
        self.gathered = np.array([cost.gathered for cost in costs])[place]

    def _ends_again(self, boundary: Floats) -> None:
        """Where the ends are computed again too, only the input of the last one is kept."""
        again = self.plans.recompute == 3
        for end, kept in ((self.first, np.zeros(len(self.plans))), (self.last, boundary)):
            self.again_bytes = np.where(again, np.maximum(self.again_bytes, end[3]), self.again_bytes)
            end[3] = np.where(again, kept, end[3])

    def _plain_blocks(self, column: Callable[[str, str], Floats]) -> None:
        """The first stage takes less where blocks without experts are the first."""
        mixture = self.analytic.sizes.mixture
        few = np.minimum(len(mixture.dense) if mixture else 0, self.chunks.first)

        def less(what: str) -> Floats:
            found: Floats = few * (column("plain", what) - column("block", what))
            return found

        self.first[0] = self.first[0] + less("forward")
        self.first[1] = self.first[1] + np.where(self.full, less("again"), less("backward"))
        self.first[2] = self.first[2] + less("parameters")
        self.first[3] = self.first[3] + np.where(self.full, 0.0, less("kept"))
        self.first_experts = less("experts")

    def _messages(self) -> None:
        """A hop to the next stage, and the lines of the exchange among replicas."""
        plans, table = self.plans, self.analytic.table
        keys = np.stack([plans.tensor, plans.context, plans.replicas, plans.pipeline, plans.expert], 1)
        distinct, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        lines = np.array(
            [
                table.lines(plans.layout(int(index)).mesh, int(row[2]), int(row[3]))
                for index, row in zip(first, distinct, strict=True)
            ]
        )[place.reshape(-1)]
        # The gradients of a tied table: two of a pair send each other half, twice.
        size = self.tied * self.analytic.estimate.states.gradient
        self.tie = np.where(self.tied > 0, 2 * lines[:, 2] + lines[:, 3] * size, 0.0)
        several = plans.pipeline > 1
        self.hop, self.across = (
            np.where(several, lines[:, i] + lines[:, i + 1] * self.crossing + self.gathered, 0.0)
            for i in (0, 2)
        )
        self.ring, self.experts_ring = (lines[:, 4], lines[:, 5]), (lines[:, 6], lines[:, 7])

    # --- time -----------------------------------------------------------------------------------------------

    def step_time(self) -> Floats:
        """Micro-batches, the exchange that they do not hide, that of a tied table, the update."""
        return self._pipeline() + self._exchange() + self.tie + self._update()

    def _pipeline(self) -> Floats:
        plans = self.plans
        time = np.where(self._is_uneven(), self._slot_by_slot(), self._one_by_one())
        return np.where(plans.zero >= 2, self._with_exchanges(time), time)

    def _ends(self) -> tuple[Floats, Floats]:
        """Seconds of both passes over the first and the last operators."""
        return self.first[0] + self.first[1], self.last[0] + self.last[1]

    def _one_by_one(self) -> Floats:
        """1F1B: a stage that is not the last sends and waits for the answer within each period."""
        plans, m, (first, last) = self.plans, self.micro_batches, self._ends()
        block = self.block_forward + self.block_backward
        stage = self.chunks.total[:, FIRST] * block
        early = stage + first + 2 * self.hop
        inner = np.where(plans.pipeline > 2, stage + 2 * self.hop, 0.0)
        slowest = np.maximum(np.maximum(early, inner), stage + last)
        period = np.where(plans.pipeline > 1, slowest, stage + first + last)
        transfers = 2 * (plans.pipeline - 1) * self.hop
        found: Floats = (m - 1) * period + self.analytic.blocks * block + first + last + transfers
        return found

    def _is_uneven(self) -> Flags:
        """Whether devices have several chunks or unequal blocks, or wait for what they send."""
        plans = self.plans
        counted = self.analytic.blocks + plans.embedding_blocks + plans.head_blocks
        ends = plans.embedding_blocks + plans.head_blocks + plans.first_extra > 0
        unequal = ends | (counted % plans.pipeline > 0) | (plans.overlap_messages == 0)
        rounds = self.micro_batches % plans.pipeline == 0
        found: Flags = (plans.pipeline > 1) & np.where(plans.interleaved > 1, rounds, unequal)
        return found

    def _slot_by_slot(self) -> Floats:
        """Pipelines of one shape are carried out together."""
        plans, found = self.plans, np.zeros(len(self.plans))
        others = plans.embedding_blocks, plans.head_blocks, plans.first_extra, plans.overlap_messages
        few = distinct_micro_batches(plans.pipeline, self.micro_batches)
        keys = np.stack([plans.pipeline, plans.interleaved, few, *others], 1)
        uneven = np.flatnonzero(self._is_uneven())
        distinct, place = np.unique(keys[uneven], axis=0, return_inverse=True)
        for number, key in enumerate(distinct):
            same = uneven[place.reshape(-1) == number]
            found[same] = self._of_shape([int(value) for value in key], same)
        return found

    def _of_shape(self, shape: Sequence[int], plans: Ints) -> Floats:
        p, v, few, embedding, head, extra, overlap = shape
        counts = blocks_by_chunk(self.analytic.blocks, p, v, embedding, head, extra)
        blocks = counts.T.reshape(-1, 1).astype(np.float64)
        forward, backward = blocks * self.block_forward[plans], blocks * self.block_backward[plans]
        for which, seconds in enumerate((forward, backward)):
            seconds[0] += self.first[which][plans]
            seconds[-1] += self.last[which][plans]
        hops = np.stack([self.hop, self.across])[:, plans]
        held = np.zeros_like(hops) if overlap else hops - self.gathered[plans]
        return pipeline_seconds((p, v, few), self.micro_batches[plans], forward, backward, hops, held)

    def _bucket(self, kind_bytes: float) -> Floats:
        """Seconds to gather or to reduce the parameters of one block among replicas."""
        return self._rings(kind_bytes, self.block_parameters, self.block_experts)

    def _rings(self, size: float, shared: Floats, experts: Floats, times: Ints | int = 1) -> Floats:
        """Of parameters of ``size`` bytes, in as many messages as ``times``.

        Experts go apart, among those that hold the same ones.
        """
        (latency, slope), plans = self.ring, self.plans
        found: Floats = np.where(plans.holders > 1, times * latency + slope * shared * size, 0.0)
        latency, slope = self.experts_ring
        apart = (experts > 0) & (plans.expert_holders > 1)
        return found + np.where(apart, times * latency + slope * experts * size, 0.0)

    @property
    def is_replicated(self) -> Flags:
        plans = self.plans
        found: Flags = (plans.holders > 1) | ((self.block_experts > 0) & (plans.expert_holders > 1))
        return found

    def _with_exchanges(self, time: Floats) -> Floats:
        """ZeRO 2 and 3 exchange each block in every pass, overlapped with the computation of its
        neighbors.
        """
        states, m = self.analytic.estimate.states, self.micro_batches
        blocks = self.chunks.total[:, FIRST]
        reduce, gather = self._bucket(states.gradient), self._bucket(states.weight)
        gather = np.where(self.plans.zero == 3, gather, 0.0)
        occupied = self.analytic.estimate.occupied
        forward = np.maximum(self.block_forward + occupied * gather, gather)
        backward = np.maximum(self.block_backward + occupied * (gather + reduce), gather + reduce)
        ends = self.first[0] + self.first[1] + self.last[0] + self.last[1]
        found: Floats = m * (blocks * (forward + backward) + ends) + gather
        return np.where(self.is_replicated, found, time)

    def _chunk_parameters(self) -> Floats:
        """Parameters of the first chunk, whose gradients are complete last."""
        found: Floats = self.chunks.first * self.block_parameters + self.first[2]
        return np.where(self.plans.pipeline == 1, found + self.last[2], found)

    def _chunk_experts(self) -> Floats:
        found: Floats = self.chunks.first * self.block_experts + self.first_experts
        return found

    def _exchange(self) -> Floats:
        """Behind the last backward pass: gradients of the first chunk, weights of the whole device."""
        plans, states = self.plans, self.analytic.estimate.states
        reduce = self._rings(states.gradient, self._chunk_parameters(), self._chunk_experts())
        device = self.device_parameters(), self.device_experts()
        gather = self._rings(states.weight, *device, plans.interleaved)
        early = self._exposed()
        found = np.select(
            [
                (plans.zero < 2) & (plans.overlap_gradients == 1),
                plans.zero == 0,
                plans.zero == 1,
                plans.zero == 2,
            ],
            [early, 2 * reduce, reduce + gather, self._bucket(states.gradient) + gather],
            self._bucket(states.gradient),
        )
        return np.where(self.is_replicated, found, 0.0)

    def _exposed(self) -> Floats:
        """Of the exchange by buckets what the last backward pass and the first forward pass do not hide."""
        plans, states = self.plans, self.analytic.estimate.states
        shared, experts = self._chunk_parameters(), self._chunk_experts()
        largest = np.maximum(BUCKET, BUCKET_PER_REPLICA * plans.replicas * plans.joined)
        buckets = np.ceil((shared + experts) / largest)
        each = shared / np.maximum(buckets, 1), experts / np.maximum(buckets, 1)
        passes = np.where(plans.zero == 0, 2.0, 1.0)
        reduce = passes * self._rings(states.gradient, *each)
        gather = np.where(plans.zero == 0, 0.0, self._rings(states.weight, *each))
        backward, forward = (
            self.chunks.first * seconds / np.maximum(buckets, 1)
            for seconds in (self.block_backward, self.block_forward)
        )
        found: Floats = reduce + gather
        found += (buckets - 1) * (np.maximum(reduce - backward, 0) + np.maximum(gather - forward, 0))
        return found

    def device_parameters(self) -> Floats:
        """Of the device that hosts the first chunk."""
        plans = self.plans
        first = self.chunks.total[:, FIRST] * self.block_parameters + self.first[2]
        found: Floats = np.where(plans.pipeline == 1, first + self.last[2], first)
        return found

    def device_experts(self) -> Floats:
        """Of the device that hosts the first chunk, of experts that devices share."""
        found: Floats = self.chunks.total[:, FIRST] * self.block_experts + self.first_experts
        return found

    def _update(self) -> Floats:
        estimate, plans = self.analytic.estimate, self.plans
        states = estimate.states
        traffic = 2 * (states.weight + states.optimizer) + states.gradient
        owned = self.device_parameters() / np.where(plans.zero > 0, plans.sharers, 1)
        owned += self.device_experts() / np.where(plans.zero > 0, plans.expert_sharers, 1)
        device = estimate.devices[0]
        shared = estimate.cluster.node.device_count * FUSED_ADAM
        on_host = owned * (shared + states.weight / device.host_link.bandwidth)
        found: Floats = np.where(plans.host == 1, on_host, owned * traffic / memory_rate(device))
        return found
