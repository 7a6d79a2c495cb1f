"""One simulated run of a scheduling policy: a model's forward pass as blocks on a named device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.compilation.interface import refuse
from experiments.compilation.interface.architecture import Architecture
from experiments.compilation.interface.blocks import (
    BlockSchedule,
    OperatorWork,
    SchedulingPolicy,
    omissions,
    violations,
)
from experiments.compilation.planning.blocks import operator_of, work_of
from experiments.compilation.simulator.rtasks import Played, busy_units, lanes, play
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec, Series
from experiments.hardware import resolve
from experiments.sources import model_of, step_of

#: Blocks that a drawn plan shows, and points of a curve.
DRAWN, POINTS = 6000, 2000


def carry_out(spec: RunSpec, policy: SchedulingPolicy, progress: Progress) -> Result:
    """Return the policy's schedule of the model's forward pass, played on the device of the spec."""
    workload = replace(spec.workload, options=replace(spec.workload.options, training=False))
    model_of(workload)
    device = resolve(spec.hardware).device
    step, loaded = step_of(workload, device, part(progress, 0.0, 0.6))
    works = work_of(step)
    on = Architecture(device)
    unit = on.share(policy.occupancy, policy.latency, str(step.facts.get("dtype", "float32")))
    progress(0.6, "binding blocks to units")
    schedule = policy.plan(works, unit, on.launch)
    refuse([*violations(schedule), *omissions(schedule, works)])
    progress(0.9, "playing the schedule")
    played = play(schedule)
    eager = sum(on.launch + operator_of(work, unit).fast.alone(unit.count) for work in works)
    return Result(
        metrics=_metrics(works, schedule, played, eager),
        series={"busy_units": _busy(played)},
        plan=_plan(schedule, played),
        workload_sha256=loaded.sha256,
        notes={
            "device": device.name,
            "kernels": "modeled by roofline per block, not measured",
            "units": unit.count,
        },
    )


def _metrics(
    works: Sequence[OperatorWork], schedule: BlockSchedule, played: Played, eager: float
) -> dict[str, float]:
    return {
        "latency": played.seconds,
        "speedup": eager / played.seconds,
        "kernels": len(schedule.groups),
        "ops": len(schedule.operators),
        "utilization": played.utilization,
        "flops": sum(work.flops for work in works),
    }


def _busy(played: Played) -> Series:
    times, busy = busy_units(played.pieces)
    kept = np.unique(np.linspace(0, len(times) - 1, min(POINTS, len(times))).astype(np.int64))
    return Series("units", times[kept].tolist(), busy[kept].tolist())


def _plan(schedule: BlockSchedule, played: Played) -> dict[str, object]:
    groups = [
        {
            "start": start,
            "seconds": group.seconds,
            "operators": [entry.operator for entry in group.placements],
            "blocks": [entry.kernel.blocks for entry in group.placements],
            "alone_because": group.why,
        }
        for start, group in zip(played.launched, schedule.groups, strict=True)
    ]
    return {
        "units": schedule.machine.units,
        "serial_seconds": schedule.serial,
        "groups": groups,
        "timeline": {"lanes": lanes(played.pieces, DRAWN)},
    }
