"""A run of workers and parameter servers as a simulation's figures.

Rates are of the window that was simulated, so that slow and fast workers count with what each got done in it;
times and bytes are of as many samples as the plan has. Of each worker's time ``bubble`` is what it was held
back for others, the rest that it did not compute is exposed communication.
"""

from __future__ import annotations

from experiments.core.errors import Infeasible
from experiments.core.spec import Series
from experiments.core.units import human
from experiments.parallel.interface import BACKWARD, FORWARD, ParallelPlan, PlanningEstimate
from experiments.parallel.interface.parameter_servers import iterations
from experiments.parallel.simulator.asynchrony import Asynchrony, staleness_metrics, staleness_series
from experiments.parallel.simulator.memory import Usage
from experiments.parallel.simulator.report import StepSimulation, WorkerLane
from experiments.parallel.simulator.servers import Records, ServerReplay


def simulate_servers(plan: ParallelPlan, estimate: PlanningEstimate) -> StepSimulation:
    """``Infeasible`` when a worker or a server lacks memory."""
    replay = ServerReplay(plan, estimate)
    memory = [_usage(replay, worker) for worker in range(len(plan.workers))]
    _check_fits(replay, memory)
    seen = replay.run()
    window, done = seen.window, sum(seen.samples)
    rate = done / window if window else 0.0
    span = plan.batch / rate if rate else 0.0
    scale = plan.batch / done if done else 0.0
    held = tuple(seconds / window if window else 0.0 for seconds in seen.held_back)
    idle = [
        1 - busy / window - bubble if window else 0.0 for busy, bubble in zip(seen.busy, held, strict=True)
    ]
    busiest = max(seen.sent, key=lambda device: (seen.sent[device], -device), default=0)
    flops = estimate.model.flops * plan.batch / estimate.model.batch
    peak = sum(estimate.devices[device].peak(estimate.dtype) for device in plan.devices) * span
    mfu = flops / peak if peak else 0.0
    return StepSimulation(
        step_time=span,
        bubble_fraction=sum(held) / len(held),
        bubble_by_worker=held,
        exposed_communication_time=max(0.0, sum(idle) / len(idle)) * span,
        communication_bytes=seen.sent[busiest] * scale,
        communication_time=seen.sending[busiest] * scale,
        communication_by_kind={device: {"send": seen.sent[device] * scale} for device in plan.devices},
        model_flops=flops,
        hardware_flops=flops,
        mfu=mfu,
        hfu=mfu,
        samples_per_second=rate,
        memory=tuple(memory),
        lanes=tuple(
            WorkerLane(worker.devices, tuple(events))
            for worker, events in zip(plan.workers, seen.events, strict=True)
        ),
        asynchrony=_asynchrony(plan, seen),
    )


def _asynchrony(plan: ParallelPlan, seen: Records) -> Asynchrony:
    devices = [float(worker.devices[0]) for worker in plan.workers]
    window = seen.window or 1.0
    return Asynchrony(
        staleness_metrics(seen.staleness),
        {
            "staleness": staleness_series(seen.staleness),
            "iterations_ahead": staleness_series(seen.leads),
            "samples_per_second_by_worker": Series(
                "samples/s", devices, [samples / window for samples in seen.samples], "device"
            ),
        },
    )


def _usage(replay: ServerReplay, worker: int) -> Usage:
    """Weights and gradients, the share that its device serves, and the activations of micro-batches in
    flight.
    """
    plan, states = replay.plan, replay.estimate.states
    persistent = replay.parameters * (states.weight + states.gradient)
    if plan.workers[worker].devices[0] in plan.synchronization.servers:
        persistent += _served_bytes(replay)
    live = most = 0
    for _, slots in iterations(plan, worker)[:1]:
        for slot in slots:
            live += (slot.kind == FORWARD) - (slot.kind == BACKWARD)
            most = max(most, live)
    kept = most * replay.figures.kept_bytes[0]
    return Usage(persistent, [0.0], [persistent + kept], most, {0: most})


def _served_bytes(replay: ServerReplay) -> float:
    """Of one server: its share of weights and optimizer state, and of the gradients that it adds up."""
    return replay.parameters * replay.estimate.states.total / len(replay.plan.synchronization.servers)


def _check_fits(replay: ServerReplay, memory: list[Usage]) -> None:
    needs = {w.devices[0]: usage.peak for w, usage in zip(replay.plan.workers, memory, strict=True)}
    needs = {**dict.fromkeys(replay.plan.synchronization.servers, _served_bytes(replay)), **needs}
    for device, need in sorted(needs.items()):
        found = replay.estimate.devices[device]
        if need > found.memory_bytes:
            missing = need - found.memory_bytes
            raise Infeasible(
                f"needs {human(need, 'bytes')} of {human(found.memory_bytes, 'bytes')}: {missing:.0f} bytes "
                "missing",
                f"stage 0 on device {device} ({found.name})",
                missing,
            )
