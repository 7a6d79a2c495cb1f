"""Whale (Jia et al., ATC'22): hardware-aware load balance over devices that differ.

Followed: section 3.3. ``replicate`` gives each device samples in proportion to its FLOP/s, then moves samples
off devices whose memory they overflow. ``pipeline`` gives early stages, which hold most micro-batches in
1F1B, the devices with most memory, cuts the layers in proportion to speed, then moves layers off stages that
overflow. Devices that a pipeline leaves over replicate it.

Left open by the paper: rounding (largest remainder), and the chunk that moves (a sample, a layer). A
gradient's mean weights replicas by their samples; that takes no time and is not seen here. Not reproduced:
``split`` with uneven slices, bridge layers between task graphs (what crosses stages is sent as it is), and
choosing task graphs, which the paper leaves to annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from experiments.core.errors import BadInput
from experiments.core.knobs import open_knob
from experiments.hardware import Hardware
from experiments.parallel.interface import (
    BACKWARD,
    FORWARD,
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    Slice,
    Slot,
    Stage,
    Worker,
    whole_share,
)
from experiments.parallel.interface.open_counts import PipelineShapes
from experiments.parallel.planning.stages.one_by_one import replica_order
from experiments.parallel.policies.whale.uneven import (
    cut_within_memory,
    proportional,
    proportional_cut,
    within_memory,
)
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class Whale(ParallelPolicy):
    """Samples or layers in proportion to each device's speed, within each device's memory."""

    name: ClassVar[str] = "whale"
    mechanism: ClassVar[str] = "data parallel"

    strategy: str | None = open_knob(
        "what the devices share: samples or layers", choices=("replicate", "pipeline")
    )
    stages: int | None = open_knob("devices of a pipeline", low=1, high=4096)
    micro_batches: int | None = open_knob("micro-batches of each pipeline in a step", low=1, high=65536)

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """Samples shared where they fit, else layers: every depth, filled, then in micro-batches of one."""
        if self.strategy in (None, "replicate"):
            yield [replace(self, strategy="replicate")]
        if self.strategy in (None, "pipeline"):
            for counts in self._shapes(model, cluster, batch).rounds():
                yield [replace(self, strategy="pipeline", stages=s, micro_batches=m) for s, m in counts]

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if self.strategy != "pipeline":
            return self._replicate(model, cluster, batch, estimate)
        return self._pipeline(model, cluster, batch, estimate)

    def _replicate(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        devices = range(cluster.device_count)
        speeds = [1 / estimate.slowdown(device) for device in devices]
        states = float(estimate.layer_parameters.sum()) * estimate.states.total
        sample = float(model.stash_bytes.sum()) / model.batch
        by_speed = proportional(batch, speeds)
        shares = within_memory(
            by_speed,
            speeds,
            lambda device, share: states + share * sample,
            [float(device.memory_bytes) for device in estimate.devices],
        )
        used = [device for device in devices if shares[device]]
        orders = [(Slot(FORWARD, i, 0), Slot(BACKWARD, i, 0)) for i in range(len(used))]
        return ParallelPlan(
            batch=batch,
            micro_batches=len(used),
            mesh=(("data", len(used)),),
            stages=(Stage(0, len(model), tuple(range(len(used)))),),
            workers=tuple(Worker((device,), order) for device, order in zip(used, orders, strict=True)),
            synchronization=self.sync(),
            slices=tuple(Slice(shares[device], 0, 1) for device in used),
            notes={"samples": shares, "samples_by_speed": by_speed, "speeds": speeds},
        )

    def _pipeline(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        count, micro_batches = self._shapes(model, cluster, batch).deepest()
        if count > len(model):
            raise BadInput(
                f"{len(model)} layers cannot make {count} stages", "knobs.stages", f"at most {len(model)}"
            )
        pipelines = whole_share(cluster.device_count, count, "devices", "knobs.stages")
        every = pipelines * micro_batches
        samples = whole_share(batch, every, "samples", "knobs.micro_batches")
        groups = _by_memory(estimate, count, pipelines)
        ends = self._stage_ends(model, estimate, groups, samples, micro_batches)
        workers = tuple(
            Worker((device,), replica_order(stage, replica, pipelines, count - stage, every))
            for stage, group in enumerate(groups)
            for replica, device in enumerate(group)
        )
        stages = tuple(
            Stage(begin, end, tuple(range(stage * pipelines, (stage + 1) * pipelines)))
            for stage, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        )
        return ParallelPlan(
            batch=batch,
            micro_batches=every,
            mesh=(("pipeline", count), ("data", pipelines)),
            stages=stages,
            workers=workers,
            synchronization=self.sync(),
            notes={
                "layers": [stage.end - stage.begin for stage in stages],
                "devices": [list(g) for g in groups],
            },
        )

    def _shapes(self, model: LayerGraph, cluster: Hardware, batch: int) -> PipelineShapes:
        return PipelineShapes(cluster.device_count, len(model), batch, self.stages, self.micro_batches)

    def _stage_ends(
        self,
        model: LayerGraph,
        estimate: PlanningEstimate,
        groups: Sequence[Sequence[int]],
        samples: int,
        micro_batches: int,
    ) -> list[int]:
        """Ends of the stages; the slowest and the smallest device of a stage set its pace and capacity."""
        speeds = [1 / max(map(estimate.slowdown, group)) for group in groups]
        costs = estimate.layer_seconds.tolist()
        parameters, stash = estimate.layer_parameters, model.stash_bytes / model.batch * samples

        def stage_bytes(stage: int, begin: int, end: int) -> float:
            held = min(len(groups) - stage, micro_batches)
            states = estimate.states.total * float(parameters[begin:end].sum())
            return states + held * float(stash[begin:end].sum())

        return cut_within_memory(
            proportional_cut(costs, speeds),
            lambda stage, begin, end: sum(costs[begin:end]) / speeds[stage],
            stage_bytes,
            [min(float(estimate.devices[device].memory_bytes) for device in group) for group in groups],
        )


def _by_memory(estimate: PlanningEstimate, stages: int, pipelines: int) -> list[list[int]]:
    """Devices for each stage, most memory first, then the faster; the cluster's order among equals."""
    order = sorted(
        range(len(estimate.devices)),
        key=lambda device: (-estimate.devices[device].memory_bytes, estimate.slowdown(device), device),
    )
    return [order[stage * pipelines : (stage + 1) * pipelines] for stage in range(stages)]
