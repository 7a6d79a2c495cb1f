"""Peak memory of many Megatron plans at once, in closed form: columns with an entry for each plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.parallel.interface.engines import ENGINES, PLAIN, given_back
from experiments.parallel.interface.losses import loss_scratch
from experiments.parallel.planning.degrees.buffers import EngineBuffers
from experiments.parallel.planning.degrees.chunks import FIRST, INNER, LAST
from experiments.workloads.step import Floats

if TYPE_CHECKING:
    from experiments.parallel.planning.degrees.analytic import GatheredCosts


class Peaks:
    """Bytes on the first device of a pipeline, the last, or the fullest between them.

    The first holds most micro-batches, the last the logits.
    """

    def __init__(self, costs: GatheredCosts) -> None:
        self.costs, self.plans = costs, costs.plans
        self.estimate, self.buffers = costs.analytic.estimate, _buffers(costs)
        self._kept = costs.chunks.held * costs.block_kept[:, None]
        scratch = loss_scratch(self.estimate.model, self.estimate.states.weight)
        self._scratch = scratch / self.plans.tensor

    def bytes(self) -> Floats:
        others = np.where(self.plans.pipeline > 1, np.maximum(self._inner(), self._last()), 0.0)
        found: Floats = self.estimate.reserved_bytes + np.maximum(self._first(), others)
        return found

    def _first(self) -> Floats:
        costs, alone = self.costs, self.plans.pipeline == 1
        most = self.plans.pipeline + (self.plans.interleaved > 1)
        masks = costs.first[3] * np.minimum(costs.micro_batches, most)
        again = np.where(alone, np.maximum(costs.again_bytes, self._scratch), costs.again_bytes)
        logits = np.where(alone, costs.last[3], 0.0)
        largest = np.maximum(costs.block_largest, costs.first[4])
        largest = np.where(alone, np.maximum(largest, costs.last[4]), largest)
        own = costs.device_parameters(), costs.device_experts()
        return self._on_device(FIRST, *own, largest, self._kept[:, FIRST] + masks + logits + again)

    def _inner(self) -> Floats:
        costs, blocks = self.costs, self.costs.chunks.total[:, INNER]
        own = blocks * costs.block_parameters, blocks * costs.block_experts
        return self._on_device(INNER, *own, costs.block_largest, self._kept[:, INNER] + costs.again_bytes)

    def _last(self) -> Floats:
        """Logits are gone before another chunk's blocks are computed again."""
        costs, blocks = self.costs, self.costs.chunks.total[:, LAST]
        again, logits = costs.again_bytes, costs.last[3]
        end = np.where(costs.chunks.last > 0, logits + again, np.maximum(logits, again))
        end = np.maximum(end, logits + self._scratch)
        own = blocks * costs.block_parameters + costs.last[2], blocks * costs.block_experts
        largest = np.maximum(costs.block_largest, costs.last[4])
        return self._on_device(LAST, *own, largest, self._kept[:, LAST] + end)

    def _on_device(
        self, device: int, shared: Floats, experts: Floats, largest: Floats, activations: Floats
    ) -> Floats:
        held = activations * (1 + self.estimate.fragmentation)
        buffers = self.buffers.on(device, shared + experts, largest)
        total = self._states(shared, experts) - self.buffers.absent_sums(device) + buffers + held
        capacity = self.estimate.devices[0].memory_bytes - self.estimate.reserved_bytes
        found: Floats = total - given_back(total, capacity, buffers, held)
        return found

    def _states(self, shared: Floats, experts: Floats) -> Floats:
        """Weights, gradients and optimizer state as ZeRO leaves them, and the blocks that it gathers for a
        while.
        """
        plans, states = self.plans, self.estimate.states
        on_host, freed = plans.host == 1, (plans.host == 1) & (plans.zero >= 2)
        gradients = np.where(freed, 0.0, states.gradients)
        optimizer = np.where(on_host, 0.0, states.optimizer)
        sizes: tuple[Floats | float, ...] = (states.weight, gradients, optimizer)
        kept = sum(
            parameters * size / np.where(plans.zero >= stage, sharers, 1)
            for parameters, sharers in ((shared, plans.sharers), (experts, plans.expert_sharers))
            for size, stage in zip(sizes, (3, 2, 1), strict=True)
        )
        weights, reduced = 3 * states.weight, 2 * states.gradient
        buckets = np.where(plans.zero == 3, weights, 0.0) + np.where(plans.zero >= 2, reduced, 0.0)
        held = self.costs.is_replicated & (plans.engine == ENGINES.index(PLAIN))
        block = self.costs.block_parameters + self.costs.block_experts
        found: Floats = kept + np.where(held, buckets * block, 0.0)
        return found


def _buffers(costs: GatheredCosts) -> EngineBuffers:
    plans, sizes, states = costs.plans, costs.analytic.sizes, costs.analytic.estimate.states
    tokens = plans.micro_batch * sizes.sequence / (plans.tensor * plans.context)
    return EngineBuffers(
        plans,
        states,
        costs.chunks,
        costs.micro_batches,
        costs.block_parameters + costs.block_experts,
        (costs.first[2], costs.last[2]),
        (costs.first[4], costs.last[4]),
        costs.boundary,
        tokens * sizes.vocabulary * states.weight if sizes.vocabulary else costs.boundary,
    )
