"""Carries out a run of a policy that shares one device: scenario and device in, answers and lanes out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.core.errors import BadInput, Infeasible
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.core.units import human
from experiments.hardware import Hardware, resolve
from experiments.readers.reef_kernels import read_kernels
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel, SharingPolicy
from experiments.serving.simulator.sharing import SharingPlan, share, sharing_curves, sharing_figures
from experiments.sources import scenario_of
from experiments.workloads.scenario import (
    CLOSED,
    REAL_TIME,
    FixedCost,
    KernelFile,
    LayerCosts,
    Scenario,
    ScenarioModel,
)

#: Rows of lanes that an outcome carries, and the longest run: kernels of an hour are more than memory holds.
MOST_ROWS, LONGEST = 4000, 3600.0


def share_device(spec: RunSpec, policy: SharingPolicy, progress: Progress) -> Result:
    """Simulate ``policy`` on the scenario of ``spec``, and its real-time models alone."""
    scenario, loaded = scenario_of(spec.workload)
    hardware = resolve(spec.hardware)
    device, models = device_of(hardware), models_of(scenario)
    _refuse_too_large(models, device, policy)
    requests = scenario.draw(spec.seed)
    arrivals = [
        (time, model)
        for time, model in zip(requests.arrival.tolist(), requests.model.tolist(), strict=True)
        if models[model].is_real_time
    ]
    closed = {
        place
        for place, model in enumerate(scenario.models)
        if model.arrivals == CLOSED and models[place].is_real_time
    }
    asked = Asked(arrivals, closed, scenario.duration)
    plan = _run(device, models, policy, asked, part(progress, 0.0, 0.7))
    found = sharing_json(plan, models)
    if plan.fault:
        return Result.from_violations((plan.fault,), found, loaded.sha256)
    alone = _run_alone(device, models, policy, asked, part(progress, 0.7, 0.95))
    return Result(
        metrics=sharing_figures(plan, alone, models, scenario.duration),
        series=sharing_curves(plan),
        plan=found,
        workload_sha256=loaded.sha256,
        notes={
            "hardware": hardware.to_json(),
            "warnings": [*hardware.warnings, *loaded.warnings],
            "trace": {
                "format": loaded.format,
                "requests": len(plan.requests),
                "assumed": list(loaded.assumed),
            },
        },
    )


def device_of(hardware: Hardware) -> SharedDevice:
    """Return the one device of ``hardware``; ``BadInput`` for several."""
    if hardware.device_count != 1:
        raise BadInput(f"{hardware.device_count} devices", "spec.hardware", "one device, which models share")
    device = hardware.device
    units = device.units.count if device.units is not None else device.compute_units
    if not units:
        raise BadInput(
            f"{device.name} tells no compute units",
            "spec.hardware",
            "a device whose number is known: v100-16g, mi50-16g",
        )
    link = device.host_link
    return SharedDevice(units, device.memory_bytes, link.bandwidth, link.latency)


def models_of(scenario: Scenario) -> tuple[SharedModel, ...]:
    """Return the scenario's models by layers or kernels; ``BadInput`` for one after another, or by batch."""
    return tuple(
        SharedModel(
            model.name,
            model.service_class,
            _operators(model, scenario.name),
            model.peaks,
            model.preprocess,
            model.postprocess,
            math.inf if model.slo is None else model.slo,
        )
        for model in scenario.models
    )


def _operators(model: ScenarioModel, where: str) -> tuple[Operator, ...]:
    if model.after:
        raise BadInput(f"{model.name} is after {model.after}", where, "models with a load of their own")
    match model.cost:
        case LayerCosts(seconds, sizes, parts):
            rows = zip(seconds, sizes, parts or (0,) * len(seconds), strict=True)
            return tuple(Operator(time, size, part=part) for time, size, part in rows)
        case FixedCost(seconds):
            return (Operator(seconds, model.bytes),)
        case KernelFile():
            return tuple(
                Operator(one.seconds, one.bytes, one.blocks, one.waves) for one in read_kernels(model.cost)
            )
    raise BadInput(f"{model.name} tells whole passes", where, "latency, layers or kernels")


def _refuse_too_large(models: Sequence[SharedModel], device: SharedDevice, policy: SharingPolicy) -> None:
    """What is on the device together must fit: all that is there before the run, and each model by itself."""
    resident = sum(model.bytes for model in models if policy.starts_resident(model))
    peaks = any(model.peaks for model in models)
    together = sum(model.most for model in models) if peaks and not policy.spills else resident
    needed = max([together, *(model.most for model in models)])
    if needed > device.memory:
        missing = needed - device.memory
        what = f"weights{' and passes' if peaks else ''} of {human(needed, 'bytes')} at once"
        what += f", {human(missing, 'bytes')} more than there are"
        raise Infeasible(what, "scenario", missing)


class Asked(NamedTuple):
    """What is asked of real-time models: ``arrivals`` (s, model) and those that ask again when answered."""

    arrivals: Sequence[tuple[float, int]]
    closed: Collection[int]
    duration: float


def _run(
    device: SharedDevice,
    models: Sequence[SharedModel],
    policy: SharingPolicy,
    asked: Asked,
    progress: Progress,
) -> SharingPlan:
    if asked.duration > LONGEST:
        raise BadInput(f"{asked.duration:g} s", "duration", f"at most {LONGEST:g} s of layers and kernels")
    resident = [policy.starts_resident(model) for model in models]
    sharer = policy.begin(device, models)
    return share(device, models, resident, sharer, asked.arrivals, asked.duration, progress, asked.closed)


def _run_alone(
    device: SharedDevice,
    models: Sequence[SharedModel],
    policy: SharingPolicy,
    asked: Asked,
    progress: Progress,
) -> SharingPlan:
    """The same requests without the work that is not real-time; models keep their places in the outcome."""
    kept = [place for place, model in enumerate(models) if model.service_class == REAL_TIME]
    place_of = {place: new for new, place in enumerate(kept)}
    renamed = [(time, place_of[model]) for time, model in asked.arrivals]
    closed = {place_of[model] for model in asked.closed}
    alone = Asked(renamed, closed, asked.duration)
    return _run(device, [models[place] for place in kept], policy, alone, progress)


def sharing_json(plan: SharingPlan, models: Sequence[SharedModel]) -> Mapping[str, Any]:
    """Lanes of kernels or layers and of copies over time; long ones are thinned evenly, and say so."""
    spans = [[models[one.model].name, *one[1:]] for one in plan.spans]
    copies = [[models[one.model].name, *one[1:]] for one in plan.copies]
    return {
        "lanes": _table("model operator start end units killed", spans),
        "copies": _table("model start end bytes", copies),
        "models": [
            {"name": model.name, "class": model.service_class, "passes": passes}
            for model, passes in zip(models, plan.passes, strict=True)
        ],
    }


def _table(columns: str, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    step = -(-len(rows) // MOST_ROWS) or 1
    sampling = "all" if step == 1 else f"every {step}th of {len(rows)}"
    return {"columns": columns.split(), "rows": [list(row) for row in rows[::step]], "sampling": sampling}
