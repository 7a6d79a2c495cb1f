"""Pipeline schedules: devices of a pipeline, the stages (model chunks) that they host, and each device's
slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface.estimate import PlanningEstimate
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

    stages: int | None = knob(
        None, "devices of a pipeline; empty: all, or one for every layer", low=1, high=4096
    )
    micro_batches: int = knob(8, "micro-batches of each pipeline in a step", low=1, high=65536)
    recompute: bool = knob(False, "keep a stage's input only and recompute its activations before backward")

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

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        stages = self._devices(model, cluster)
        hosts = self.hosts(stages)
        bounds = stage_bounds(estimate, len(hosts))
        pipelines = whole_share(cluster.device_count, stages, "devices", "knobs.stages")
        orders = [self.order(stage, stages, self.micro_batches) for stage in range(stages)]
        whole_share(batch, pipelines * self.micro_batches, "samples", "knobs.micro_batches")
        return ParallelPlan(
            batch=batch,
            micro_batches=pipelines * self.micro_batches,
            mesh=(("pipeline", stages), ("data", pipelines)),
            stages=hosted_stages(bounds, hosts, pipelines),
            workers=replicated_pipelines(orders, pipelines, self.micro_batches),
            recompute=tuple(range(len(model))) if self.recompute else (),
            synchronization=self.sync(),
        )

    def _devices(self, model: LayerGraph, cluster: Hardware) -> int:
        """As asked for; else all devices, or as many as the layers make stages for."""
        if self.stages is not None:
            return self.stages
        chunks = len(self.hosts(2)) / 2
        return max(1, min(cluster.device_count, int(len(model) / chunks)))


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
