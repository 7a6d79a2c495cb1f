"""Pipeline schedules: devices of a pipeline, the stages (model chunks) that they host, and each device's
slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from experiments.core.knobs import open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface.estimate import PlanningEstimate
from experiments.parallel.interface.open_counts import PipelineShapes
from experiments.parallel.interface.plan import ParallelPlan, Slot, Stage
from experiments.parallel.interface.policy import (
    LivePolicy,
    ParallelPolicy,
    replicated_pipelines,
    stage_bounds,
    whole_share,
)
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class PipelineSchedule(LivePolicy, ParallelPolicy):
    """A synchronous pipeline: the policy gives each device's order of slots, the rest follows.

    Layers are cut so that the slowest stage is as fast as can be; devices that the pipeline leaves over
    replicate it. A device hosts one stage unless ``hosts`` says otherwise.
    """

    stages: int | None = open_knob("devices of a pipeline", low=1, high=4096)
    micro_batches: int | None = open_knob("micro-batches of each pipeline in a step", low=1, high=65536)
    recompute: bool | None = open_knob(
        "keep a stage's input only and recompute its activations before backward"
    )

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        """Return the slots of device ``stage`` of a pipeline of ``stages`` devices, in execution order.

        Stages are numbered from 0.
        """
        raise NotImplementedError

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        """Return for each stage of the model the devices of one pipeline that host it.

        The pipeline has ``stages`` devices.
        """
        return tuple((device,) for device in range(stages))

    def together(self, stages: int) -> int:
        """Return how many micro-batches make a whole round over ``stages`` devices."""
        return 1

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Every depth, filled; then in micro-batches of a sample; then both with recomputation."""
        shapes = self._shapes(model, cluster, batch)
        for again in (False, True) if self.recompute is None else (self.recompute,):
            for counts in shapes.rounds():
                yield [replace(self, stages=s, micro_batches=m, recompute=again) for s, m in counts]

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stages, micro_batches = self._shapes(model, cluster, batch).deepest()
        hosts = self.hosts(stages)
        bounds = stage_bounds(estimate, len(hosts))
        pipelines = whole_share(cluster.device_count, stages, "devices", "knobs.stages")
        orders = [self.order(stage, stages, micro_batches) for stage in range(stages)]
        whole_share(batch, pipelines * micro_batches, "samples", "knobs.micro_batches")
        return ParallelPlan(
            batch=batch,
            micro_batches=pipelines * micro_batches,
            mesh=(("pipeline", stages), ("data", pipelines)),
            stages=hosted_stages(bounds, hosts, pipelines),
            workers=replicated_pipelines(orders, pipelines, micro_batches),
            recompute=tuple(range(len(model))) if self.recompute else (),
            synchronization=self.sync(),
        )

    def _shapes(self, model: LayerGraph, cluster: Hardware, batch: int) -> PipelineShapes:
        """What of depth and micro-batches is asked for; layers make stages for every chunk of a device."""
        chunks = len(self.hosts(2)) / 2
        return PipelineShapes(
            devices=cluster.device_count,
            most=int(len(model) / chunks),
            batch=batch,
            stages=self.stages,
            micro_batches=self.micro_batches,
            together=self.together,
        )


def hosted_stages(
    bounds: Iterable[tuple[int, int]], hosts: Iterable[tuple[int, ...]], replicas: int
) -> tuple[Stage, ...]:
    """Return the stages on workers ``d * replicas`` onwards for device ``d`` of the pipeline.

    Replicas are neighbors, so that they share fast links.
    """
    return tuple(
        Stage(begin, end, tuple(device * replicas + r for device in devices for r in range(replicas)))
        for (begin, end), devices in zip(bounds, hosts, strict=True)
    )
