"""Large minibatch SGD (Goyal et al., 2017): the rate grows with the batch, after a gradual warm-up.

Followed: section 2.1 (the linear scaling rule: reference rate times batch over reference batch), 2.2 (a
gradual warm-up by a constant from the reference rate), 3 (the loss is the mean over the whole batch:
gradients are averaged over workers; the rate is scaled, not the loss; momentum with the rate inside the
velocity is corrected when the rate changes, equation 10), 4.1 (gradients are summed in each machine first,
then between machines).

Left open by the paper: where the rule ends (about 8,192 images for ResNet-50). Not reproduced: accuracy on
ImageNet, which needs training to the end. Statistics of batch normalization are a worker's own, as in the
paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import fixed_knob, knob
from experiments.hardware import Hardware
from experiments.parallel.interface import Learning, LivePolicy, ParallelPlan, PlanningEstimate, Training
from experiments.parallel.interface.training import scaled_rate
from experiments.parallel.planning.gradient_exchange import GradientExchange


@dataclass(frozen=True)
class LargeMinibatch(LivePolicy, GradientExchange):
    """Data parallelism whose learning rate follows the batch, after a gradual warm-up."""

    name: ClassVar[str] = "large_minibatch"
    mechanism: ClassVar[str] = "data parallel"

    micro_batches: int = fixed_knob(1)
    bucket_bytes: float = fixed_knob(25 * 2**20)
    algorithm: str = fixed_knob("hierarchical")
    reference_rate: float = knob(0.1, "rate that is known to be good", low=0.0, high=1e3)
    reference_batch: int = knob(256, "samples for which it is", low=1, high=2**24)
    warm_up: int = knob(8, "updates until the scaled rate is reached; 0: at once", low=0, high=10**9)
    momentum: float = knob(0.9, "momentum", low=0.0, high=0.999)
    corrected: bool = knob(True, "correct the momentum when the rate changes")
    updates: int = knob(32, "updates of a measured run", low=1, high=65536)

    def learning(self, batch: int) -> Learning:
        return Learning(
            rate=scaled_rate(self.reference_rate, self.reference_batch, batch),
            momentum=self.momentum,
            start=self.reference_rate if self.warm_up else None,
            warm_up=self.warm_up,
            corrected=self.corrected,
        )

    def complete(self, plan: ParallelPlan, cluster: Hardware, estimate: PlanningEstimate) -> ParallelPlan:
        learning = self.learning(plan.batch)
        notes = {"rate": learning.rate, "rate_per_warm_up_update": self._growth(learning)}
        return replace(plan, training=Training(learning, updates=self.updates), notes=notes)

    def _growth(self, learning: Learning) -> float:
        return (learning.rate - self.reference_rate) / self.warm_up if self.warm_up else 0.0
