"""How long the optimizer takes on a device or on its host."""

from __future__ import annotations

from experiments.hardware.host_adam import FUSED_ADAM
from experiments.hardware.roofline import memory_rate
from experiments.parallel.interface import ParallelPlan, PlanningEstimate
from experiments.parallel.simulator.stages import StageFigures


class UpdateTimes:
    """Seconds of the updates of a plan."""

    def __init__(self, plan: ParallelPlan, estimate: PlanningEstimate, figures: StageFigures) -> None:
        self._plan, self._estimate, self._figures = plan, estimate, figures

    def seconds(self, worker: int, parameters: float) -> float:
        """Return the seconds in which a device of ``worker`` updates ``parameters``.

        Where they were not measured they are bound by memory: states are read and written once, gradients
        read.
        """
        if self._estimate.updates:
            return self._estimate.updates[worker] * parameters / self._updated_parameters(worker)
        if self._plan.host_optimizer:
            return self._seconds_on_host(worker, parameters)
        states = self._estimate.states
        traffic = parameters * (2 * (states.weight + states.optimizer) + states.gradient)
        devices = (self._estimate.devices[device] for device in self._plan.workers[worker].devices)
        return traffic / min(map(memory_rate, devices))

    def _seconds_on_host(self, worker: int, parameters: float) -> float:
        """All devices of a node share the host's processors; updated weights come back over the host's link.

        Gradients went there as they were reduced.
        """
        device = self._estimate.devices[self._plan.workers[worker].devices[0]]
        updated = parameters * self._estimate.cluster.node.device_count * FUSED_ADAM
        return updated + parameters * self._estimate.states.weight / device.host_link.bandwidth

    def _updated_parameters(self, worker: int) -> float:
        """Parameters that a device of ``worker`` updates, of all its stages."""
        return sum(
            self._figures.owned_parameters(number)
            for number, stage in enumerate(self._plan.stages)
            if worker in stage.workers
        )
