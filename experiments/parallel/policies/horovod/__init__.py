"""Horovod: ring all-reduce of gradients that are fused in buffers, when a coordinator finds them ready
everywhere.

Source: Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv
1802.05799, 2018, sections 3 (ring) and 4.3 (fusion); defaults as documented then: buffers of 64 MB, cycles of
5 ms (since version 0.21: 128 MB and 1 ms). A gradient here is a layer's. Readiness is taken from the layers'
times and the slowest worker, so the plan says which layers share a buffer; the simulator lets each leave at
the first cycle after its last gradient is there. While a reduction runs the coordinator does not look (as in
the first versions), so what becomes ready meanwhile is fused.

Not reproduced: the copies into and out of a buffer, the coordinator's own messages, tuning of both knobs by
Bayesian optimization. Not measured: torch's DDP has buckets fixed by order, without coordinator and cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.errors import BadInput
from experiments.core.knobs import fixed_knob, knob
from experiments.hardware import Hardware
from experiments.hardware.algorithms import Algorithms
from experiments.parallel.interface import ParallelPlan, PlanningEstimate, Synchronization
from experiments.parallel.planning.gradient_exchange import GradientExchange
from experiments.parallel.policies.horovod.fusion import Gradient, fuse


@dataclass(frozen=True)
class Horovod(GradientExchange):
    """Data parallelism by ring all-reduce of buffers of small gradients that are ready together."""

    name: ClassVar[str] = "horovod"
    mechanism: ClassVar[str] = "data parallel"

    bucket_bytes: float = fixed_knob(25 * 2**20)
    algorithm: str = fixed_knob("ring")
    fusion_bytes: float = knob(64 * 2**20, "fusion buffer; 0 fuses nothing", low=0, high=1e12, unit="bytes")
    cycle: float = knob(
        5e-3, "time between the coordinator's looks; 0: always looking", low=0.0, high=10.0, unit="s"
    )
    hierarchical: bool = knob(False, "reduce inside nodes first, then between them")

    def sync(self) -> Synchronization:
        algorithm = "hierarchical" if self.hierarchical else self.algorithm
        return replace(super().sync(), algorithm=algorithm, cycle=self.cycle)

    def complete(self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate) -> ParallelPlan:
        layers, gradients = self._gradients(plan, estimate)
        buffers = fuse(gradients, self.fusion_bytes, self.cycle, self._reduction(cluster))
        bounds = _bounds([layers[buffer.gradients[-1]] for buffer in buffers], len(estimate.model))
        rows = [
            {
                "layers": list(bound),
                "bytes": sum(gradients[number].bytes for number in buffer.gradients),
                "leaves": buffer.leaves,
            }
            for bound, buffer in zip(bounds, buffers, strict=True)
        ]
        return replace(
            plan, synchronization=replace(plan.synchronization, buckets=bounds), notes={"buffers": rows}
        )

    def _reduction(self, cluster: Hardware) -> Callable[[float], float]:
        """Seconds of an all-reduce of so many bytes over all devices."""
        everybody = (tuple(range(cluster.device_count)),)
        cost = Algorithms(cluster).cost("all_reduce", everybody, self.sync().algorithm)
        if cost is None:
            raise BadInput("nodes have unequal numbers of devices", "knobs.hierarchical", "false")
        return cost.seconds

    def _gradients(self, plan: ParallelPlan, estimate: PlanningEstimate) -> tuple[list[int], list[Gradient]]:
        """Layers with parameters from the last to the first, and when the slowest worker has
        their gradients.
        """
        model = estimate.model
        scale = plan.micro_batch_samples / model.batch * max(map(estimate.slowdown, plan.devices))
        forward, backward = model.forward_seconds * scale, model.backward_seconds * scale
        each = plan.micro_batches // len(plan.workers)
        now = each * forward.sum() + (each - 1) * backward.sum()
        layers, found = [], []
        for layer in reversed(range(len(model))):
            now += backward[layer]
            size = float(estimate.layer_parameters[layer]) * estimate.states.gradient
            if size:
                layers.append(layer)
                found.append(Gradient(size, estimate.dtype, float(now)))
        return layers, found


def _bounds(begins: Sequence[int], layers: int) -> tuple[tuple[int, int], ...]:
    """Layers of each buffer, whose first layer is given; those below the last buffer's join it."""
    found, end = [], layers
    for number, begin in enumerate(begins):
        first = begin if number < len(begins) - 1 else 0
        found.append((first, end))
        end = first
    return tuple(found)
