"""Requests served by instances for prompts and for answers: the whole run in one call."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.core.progress import Progress, silent
from experiments.serving.interface.phases import Instance, PhaseDispatcher, PhasePlan
from experiments.serving.simulator.phases.copies import Fabric
from experiments.serving.simulator.phases.engine import PhaseSimulation
from experiments.serving.simulator.phases.instance import InstanceEngine
from experiments.workloads.requests import RequestTrace


def simulate_phases(
    trace: RequestTrace,
    instances: Sequence[Instance],
    dispatcher: PhaseDispatcher,
    engines: Sequence[InstanceEngine],
    fabric: Fabric,
    *,
    block_size: int = 16,
    max_batch: int = 256,
    context: int | None = None,
    answers_only: bool = False,
    progress: Progress = silent,
) -> PhasePlan:
    """Serve all requests of ``trace``; an instance answers at most ``max_batch`` at once.

    ``answers_only``: prompts are computed elsewhere, their KV is there as they arrive.
    """
    simulation = PhaseSimulation(
        trace, instances, dispatcher, engines, fabric, block_size, max_batch, progress
    )
    return simulation.run(context, answers_only)
