"""Chimera: two pipelines in opposite directions over the same devices fill each other's gaps.

Source: Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional
Pipelines", SC'21, sections 3.1-3.2, 3.4 and 3.5. "D" is ``stages`` (even), "N" ``micro_batches``. The down
pipeline has stage s on device s, the up pipeline on device D-1-s, so every device hosts two stages and their
weights; gradients of the two replicas are all-reduced as soon as the last backward of a layer is done. A unit
of D micro-batches, half in each direction, never needs a device twice at a time when passes are equally long
(``bidirectional``).

``scaling`` says how more micro-batches are scheduled (3.5): units one after another, every 2D slots; units in
which two micro-batches go forward at once, so that forward passes are as long as backward passes, with
activations computed again, since twice as many would be held; or units in which the backward pass of a
micro-batch goes in two halves. ``search`` chooses W, D and the micro-batch by the paper's model (3.4,
``performance_model``): for each depth the largest micro-batch (a power of two) that fits, without recomputing
where it can be, then the depth with the shortest step.

Left open by the paper: N that makes no whole units (the last unit may be partly empty; of a doubled one what
makes no whole unit is a plain one) and stages of unequal length in the model (here the slowest). Whether a
configuration fits is the simulator's answer. Not reproduced: more than one pair of pipelines (3.6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from experiments.core.errors import BadInput, Infeasible
from experiments.core.knobs import knob
from experiments.hardware import Hardware
from experiments.parallel.interface import ParallelPlan, PipelineSchedule, PlanningEstimate, Slot
from experiments.parallel.planning.judges import COSTS, JUDGES, choose_best
from experiments.parallel.policies.chimera.bidirectional import (
    CONCATENATION,
    DOUBLING,
    HALVING,
    SCALINGS,
    device_order,
    pass_groups,
)
from experiments.parallel.policies.chimera.performance_model import modeled_step
from experiments.workloads.layers import LayerGraph


@dataclass(frozen=True)
class Chimera(PipelineSchedule):
    """Half of the micro-batches go down the devices, half up; each device hosts two stages.

    Each device has the weights of both.
    """

    name: ClassVar[str] = "chimera"
    mechanism: ClassVar[str] = "pipeline"

    scaling: str = knob(
        CONCATENATION,
        "more micro-batches than stages: unit after unit, two forward at once, or backward in two halves",
        choices=SCALINGS,
    )
    search: bool = knob(
        False, "stages (unless they are said), micro-batches and recomputation by the paper's model of a step"
    )
    judge: str = knob(COSTS, "what says which configuration is best: the model, or a step", choices=JUDGES)

    def hosts(self, stages: int) -> tuple[tuple[int, ...], ...]:
        return tuple((device, stages - 1 - device) for device in range(stages))

    def together(self, stages: int) -> int:
        return stages

    def settings(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> Iterator[Sequence[Self]]:
        """The search settles what is open by its own model."""
        yield from [(self,)] if self.search else super().settings(model, cluster, batch, estimate)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Slot, ...]:
        return device_order(stage, stages, pass_groups(stages, micro_batches, self.scaling))

    def place(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        if self.search:
            return self._searched(model, cluster, batch, estimate)
        halves = 2 if self.scaling == HALVING else 1
        stages, count = self._shapes(model, cluster, batch).deepest()
        counted = replace(self, stages=stages, micro_batches=halves * count, recompute=self._recomputes)
        plan = super(Chimera, counted).place(model, cluster, batch, estimate)
        return replace(plan, joined=counted._joined(plan))

    @property
    def _recomputes(self) -> bool:
        return bool(self.recompute) or self.scaling == DOUBLING

    def _joined(self, plan: ParallelPlan) -> tuple[int, ...]:
        """The second of every pair, in each of the pipelines."""
        mesh = dict(plan.mesh)
        count = plan.micro_batches // mesh["data"]
        groups = pass_groups(mesh["pipeline"], count, self.scaling)
        firsts = range(0, plan.micro_batches, count)
        return tuple(first + member for first in firsts for _, *others in groups for member in others)

    # --- width, depth and micro-batch -----------------------------------------------------------------------

    def _searched(
        self, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> ParallelPlan:
        """The configuration that the judge says is fastest, of the largest that fits for each depth."""
        plans: dict[str, ParallelPlan] = {}
        modeled: dict[str, float] = {}
        for depth in self._depths(model, cluster):
            largest = self._largest_fitting(depth, model, cluster, batch, estimate)
            if largest is not None:
                policy, plan = largest
                name = f"W={cluster.device_count // depth}, D={depth}, B={batch // policy._parts(plan)}"
                plans[name], modeled[name] = plan, policy._modeled(plan, estimate)
        if not plans:
            raise Infeasible("no depth has a micro-batch for every stage that fits the devices", model.name)
        best, simulated = choose_best(self.judge, estimate, plans, modeled)
        return replace(plans[best], notes=_notes(best, modeled, simulated))

    def _depths(self, model: LayerGraph, cluster: Hardware) -> list[int]:
        """Even depths of which whole pipelines take all devices."""
        if self.stages is not None:
            return [self.stages]
        most = min(cluster.device_count, len(model))
        found = [depth for depth in range(2, most + 1, 2) if cluster.device_count % depth == 0]
        if not found:
            raise BadInput(
                f"{cluster.device_count} devices and {len(model)} layers make no pipeline each way",
                "spec.hardware",
                "devices that an even number of stages divides",
            )
        return found

    def _largest_fitting(
        self, depth: int, model: LayerGraph, cluster: Hardware, batch: int, estimate: PlanningEstimate
    ) -> tuple[Chimera, ParallelPlan] | None:
        """The largest micro-batch that fits, without recomputation if there is one."""
        for policy in self._configurations(depth, batch, cluster.device_count // depth):
            plan = policy.place(model, cluster, batch, estimate)
            try:
                estimate.evaluate(plan)
            except Infeasible:
                continue
            return policy, plan
        return None

    def _configurations(self, depth: int, batch: int, width: int) -> Iterator[Chimera]:
        """Micro-batches, the largest first, of which there are as many as stages."""
        share = batch // width
        least = 2 if self.scaling == HALVING else 1
        powers = [1 << k for k in reversed(range(share.bit_length()))] if batch % width == 0 else []
        for again in dict.fromkeys((self._recomputes, True)):
            for samples in powers:
                if share % samples == 0 and share // samples >= depth and samples >= least:
                    yield replace(
                        self, search=False, stages=depth, micro_batches=share // samples, recompute=again
                    )

    def _parts(self, plan: ParallelPlan) -> int:
        """Micro-batches of all pipelines together, as they go forward."""
        return (self.micro_batches or 1) * dict(plan.mesh)["data"]

    def _modeled(self, plan: ParallelPlan, estimate: PlanningEstimate) -> float:
        mesh = dict(plan.mesh)
        groups = pass_groups(mesh["pipeline"], plan.micro_batches // mesh["data"], self.scaling)
        samples = plan.micro_batch_samples
        return modeled_step(estimate, mesh["pipeline"], mesh["data"], samples, groups, bool(plan.recompute))


def _notes(best: str, modeled: dict[str, float], simulated: dict[str, float | None]) -> dict[str, Any]:
    return {
        "configuration": best,
        "predicted_step_time": modeled[best],
        "modeled_steps": modeled,
        "simulated_steps": simulated,
    }
