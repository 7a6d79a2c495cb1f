"""Carries out one cluster run for real: jobs train on this host, next to what the simulator says of them.

The simulator knows what a calibration found before the run (seconds of a step, of a start, of a checkpoint)
and nothing of the run itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.cluster import live
from experiments.cluster.experiment.document import plan_json
from experiments.cluster.experiment.knowledge import columns_of_formats, refuse_unknown
from experiments.cluster.experiment.prediction import (
    chooses_batches,
    predict,
    speed_model,
    with_costs,
)
from experiments.cluster.interface import ClusterPolicy, Machines, violations
from experiments.cluster.interface.policy import OWN
from experiments.cluster.simulator import curves, figures, find_oversized
from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.hardware.local import this_host
from experiments.sources import Loaded, jobs_of
from experiments.workloads.jobs import JobTrace


@dataclass(frozen=True)
class LiveHost:
    """The slots of this host, and what a calibration found of them."""

    slots: live.Slots
    calibration: live.Calibration

    def step_seconds(self, model: str, gpus: int, share: float = 1.0) -> float:
        """Of a step on a share of so many slots; of all of them where a job wants more than there are."""
        return self.calibration.paced_seconds(model, min(gpus, len(self.slots)), share)


def measure(spec: RunSpec, policy: ClusterPolicy, progress: Progress) -> Result:
    """Train the jobs of the trace on this host's slots as ``policy`` decides."""
    trace, loaded = jobs_of(spec.workload, spec.seed)
    with tempfile.TemporaryDirectory(prefix="lab-cluster-") as folder:
        place, seed = Path(folder), spec.seed
        host = calibrate_host(trace, policy, seed, place / "calibration", part(progress, 0.0, 0.15))
        host = with_pairs(host, trace, policy, seed, place / "pairs", part(progress, 0.15, 0.2))
        return measure_on(host, trace, loaded, spec, policy, Path(folder), part(progress, 0.2, 1.0))


def calibrate_host(
    trace: JobTrace, policy: ClusterPolicy, seed: int, folder: Path, progress: Progress
) -> LiveHost:
    """This host with the times of what ``policy`` may ask of it for the jobs of ``trace``."""
    if policy.rules != OWN:
        raise BadInput(f"rules {policy.rules}", "knobs.rules", f"{OWN}: a measured run has no other engine")
    for name, why in policy.not_live.items():
        raise BadInput(f"{name} {getattr(policy, name)}", f"knobs.{name}", why)
    _refuse_untimed(trace)
    slots = live.slots_here(policy.slots)
    machines = slots.machines()
    find_oversized(trace, machines, policy)
    wanted = _sizes(trace, machines, policy)
    timing = live.calibrate_batches if chooses_batches(policy) else live.calibrate
    return LiveHost(slots, timing(wanted, slots, folder, seed, progress))


def with_pairs(
    host: LiveHost, trace: JobTrace, policy: ClusterPolicy, seed: int, folder: Path, progress: Progress
) -> LiveHost:
    """The host with what jobs on one slot cost each other, where ``policy`` may put several there."""
    if not policy.shares_devices:
        return host
    found = live.calibrate_pairs(
        host.calibration,
        live.models_of(trace),
        host.slots,
        folder,
        seed,
        capped=policy.caps_shares,
        progress=progress,
    )
    return replace(host, calibration=found)


def measure_on(
    host: LiveHost,
    trace: JobTrace,
    loaded: Loaded,
    spec: RunSpec,
    policy: ClusterPolicy,
    folder: Path,
    progress: Progress,
) -> Result:
    """Simulate the run by what ``host`` was calibrated to, then let it happen."""
    slots, machines = host.slots, host.slots.machines()
    jobs = live.training_jobs(trace, host.step_seconds, paced=policy.caps_shares)
    speed = speed_model(jobs, machines, policy, host.calibration)
    refuse_unknown(policy, jobs.trace, speed, columns_of_formats())
    expected = predict(jobs, machines, policy, host.calibration, spec.seed)
    oversized = find_oversized(trace, machines, policy)
    knowing = with_costs(policy, host.calibration)
    plan = live.LiveCluster(jobs, slots, knowing, speed, folder, spec.seed, oversized, progress).run()
    document = plan_json(plan, jobs.trace, machines)
    if faults := violations(plan, jobs.trace, machines, speed, rigid=policy.keeps_sizes):
        return Result.from_violations(faults, document, loaded.sha256)
    seen = figures(plan, jobs.trace, machines)
    return Result(
        metrics=seen | _errors(expected.middle, seen),
        series=curves(plan, jobs.trace, machines),
        plan=document,
        workload_sha256=loaded.sha256,
        notes={
            "mode": "measured",
            "hardware": this_host().to_json(),
            "cluster": {"nodes": len(machines), "devices": machines.devices},
            "performance": {
                "model": speed.name,
                "unit": speed.unit,
                **host.calibration.describe(),
                **speed.describe(),
            },
            **expected.describe(list(seen)),
            "engine": {"rules": policy.rules, **plan.facts},
            "trace": {
                "format": loaded.format,
                "jobs": len(trace),
                "assumed": [*loaded.assumed, *jobs.assumed],
                "warnings": list(loaded.warnings),
                "steps": dict(zip(trace.job, jobs.steps, strict=True)),
            },
        },
    )


def _refuse_untimed(trace: JobTrace) -> None:
    steps = trace.traits.get("iterations", np.full(len(trace), np.nan))
    unknown = int((np.isnan(trace.service) & np.isnan(steps)).sum())
    if unknown:
        what = f"{unknown} of {len(trace)} jobs have neither a duration nor steps"
        raise BadInput(what, trace.name, "service seconds, or iterations (steps)")


def _sizes(trace: JobTrace, machines: Machines, policy: ClusterPolicy) -> set[tuple[str, int]]:
    """The models of the trace on the numbers of slots that their jobs may get."""
    asked = zip(live.models_of(trace), trace.gpus, strict=True)
    wanted = {(model, min(int(gpus), machines.devices)) for model, gpus in asked}
    if policy.keeps_sizes:
        return wanted
    return wanted | {(model, size) for model, _ in wanted for size in range(1, machines.devices + 1)}


def _errors(expected: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, float]:
    """How far the simulator is off, as ``core.metrics`` defines it."""
    pairs = {"jct_error_mean": "avg_jct", "makespan_error": "makespan"}
    return {name: expected[of] / seen[of] - 1 for name, of in pairs.items() if of in expected and of in seen}
