"""AMPNet (Gaunt et al., 2017): messages drive the workers, each updates its own weights when it has enough
gradients.

Followed: section 3 (a limit on instances in flight, ``max_active_keys``; a local update after
``min_update_frequency`` gradients; no barrier and no stashed weights, so that a backward pass meets newer
weights than its forward pass did). An instance is a micro-batch, the run's batch what one update of a stage
takes.

Left open by the paper: which waiting message a worker takes first (here backward before forward, then the
first that came), and what staleness does to training (measured in a live run). Not reproduced: graphs that
differ by instance (loops, trees) and replicas whose weights are averaged at an epoch's end. Backward through
newer weights uses the activations of the forward pass, as the released runtime does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.knobs import knob, open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    Learning,
    LivePolicy,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Training,
    WeightRule,
    stage_bounds,
)
from experiments.parallel.interface.open_counts import PipelineShapes, window_updates
from experiments.parallel.interface.versions import with_versions
from experiments.parallel.planning.stages.pipelines import shapes_of, window_plan
from experiments.parallel.policies.ampnet.admission import admitted_orders
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class AmpNet(LivePolicy, ParallelPolicy):
    """Asynchronous stages that update on their own, with a limit on instances in flight.

    Weights are not stashed.
    """

    name: ClassVar[str] = "ampnet"
    mechanism: ClassVar[str] = "asynchronous pipeline"

    stages: int | None = open_knob("stages", low=1, high=4096)
    max_active_keys: int | None = knob(
        None, "instances under way at most; empty: as many as stages", low=1, high=65536
    )
    min_update_frequency: int | None = open_knob("gradients after which a stage updates", low=1, high=65536)
    updates: int | None = open_knob("updates in the window that is carried out", low=1, high=65536)
    rate: float = knob(0.1, "learning rate (measured)", low=0.0, high=1e3)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """An update for each instance; then instances that fill the stages, then as small as can be."""
        shapes = self._shapes(model, cluster, batch)
        for counts in (shapes.whole(), *shapes.rounds()):
            yield [replace(self, stages=s, min_update_frequency=m) for s, m in counts]

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stages, every = self._shapes(model, cluster, batch).whole()[-1]
        updates = self.updates or window_updates(stages, every)
        bounds = stage_bounds(estimate, stages)
        times = [model.forward_seconds, model.backward_seconds]
        forward, backward = ([float(t[begin:end].sum()) for begin, end in bounds] for t in times)
        orders = admitted_orders(forward, backward, updates * every, self.max_active_keys or len(bounds))
        training = Training(Learning(rate=self.rate), WeightRule("newest", every))
        return with_versions(window_plan(bounds, orders, cluster, batch, updates, training))

    def _shapes(self, model: LayerGraph, cluster: Hardware, batch: int) -> PipelineShapes:
        return shapes_of(model, cluster, batch, self.stages, self.min_update_frequency)
