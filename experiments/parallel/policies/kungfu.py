"""KungFu (Mai et al., OSDI'20): training that changes its workers and its synchronization by what it
measures.

Followed: elastic scaling (after each window one more worker, until the throughput gained is below 1 + gain /
n; the last is then taken away), gradient noise scale from each worker's gradient and the averaged one, with
exponential averages, and a switch from averaging weights to averaging gradients once the variance of
gradients is low. A change is agreed upon before it is made: all workers see the same numbers, reduced over
all of them; a newcomer gets the weights by broadcast.

A simulated plan uses as many devices as the rule settles on with simulated throughputs; a measured run starts
with one worker and adapts as it goes. Left open by the paper: thresholds, which are the user's. Not
reproduced: pair averaging, and changing the topology by vote (workers on one host have one).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    Adaptation,
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Slot,
    Training,
    replicated_pipelines,
    replicated_stages,
    whole_share,
)
from experiments.parallel.interface.adaptation import workers_by_throughput
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class KungFu(LivePolicy, ParallelPolicy):
    """Adds workers while throughput grows and watches gradient noise to switch synchronization."""

    name: ClassVar[str] = "kungfu"
    mechanism: ClassVar[str] = "data parallel"
    keeps_whole: ClassVar[str] = "every device has all model states"

    gain: float = knob(
        0.5, "a worker stays if throughput grows by this over the number of workers", low=0.0, high=1.0
    )
    window: int = knob(8, "steps after which the workers change (measured)", low=2, high=65536)
    updates: int = knob(48, "steps of a measured run", low=1, high=65536)
    smoothing: float = knob(0.9, "factor of the averages of gradient noise", low=0.0, high=0.999)
    variance: float | None = knob(
        None, "average weights until the variance of gradients is below; empty: never", low=0.0, high=1e12
    )
    rate: float = knob(0.1, "learning rate of one worker (measured)", low=0.0, high=1e3)

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        """Return the plan of as many workers as pay; each keeps its part of ``batch``.

        ``batch`` is what all devices would take.
        """
        each = whole_share(batch, cluster.device_count, "samples", "options.batch")
        most = cluster.device_count
        plans = [self._plan(model, each, workers, most) for workers in range(1, most + 1)]
        throughputs: list[float] = []

        def simulate_throughputs() -> Iterator[float]:
            for plan in plans:
                throughputs.append(plan.batch / estimate.evaluate(plan).step_time)
                yield throughputs[-1]

        workers = workers_by_throughput(simulate_throughputs(), self.gain)
        return replace(plans[workers - 1], notes={"samples_per_second_by_workers": throughputs})

    def _plan(self, model: LayerGraph, each: int, workers: int, most: int) -> ParallelPlan:
        order = [Slot(kind, 0, 0) for kind in (FORWARD, BACKWARD)]
        adaptation = Adaptation(most, self.window, self.gain, self.smoothing, self.variance)
        return ParallelPlan(
            batch=each * workers,
            micro_batches=workers,
            mesh=(("data", workers),),
            stages=replicated_stages([(0, len(model))], workers),
            workers=replicated_pipelines([order], workers, 1),
            synchronization=self.sync(),
            training=Training(Learning(rate=self.rate), adaptation=adaptation, updates=self.updates),
        )
