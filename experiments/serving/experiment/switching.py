"""Carries out a run of a policy that shares a device for real: a model trains on this host's GPU and answers.

Beside what was measured stands the simulator's answer for the same layers, copies and costs of this host.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from experiments.core.errors import Infeasible
from experiments.core.progress import Progress, part
from experiments.core.spec import Result, RunSpec
from experiments.hardware import resolve
from experiments.serving.experiment.sharing import sharing_json
from experiments.serving.interface.sharing import (
    HostCosts,
    Operator,
    SharedDevice,
    SharedModel,
    SharingPolicy,
)
from experiments.serving.interface.sharing_plan import SharedRequest, SharingPlan
from experiments.serving.simulator.sharing import share, sharing_curves, sharing_figures
from experiments.sources import model_of

#: Requests of a run, and of one in which each starts a process.
REQUESTS, STARTS = 12, 3
#: Seconds between requests of the prediction.
GAP = 0.5
COMPARED = ("latency_mean", "latency_p50", "switch_time_mean", "realtime_overhead")


def switch_here(spec: RunSpec, policy: SharingPolicy, progress: Progress) -> Result:
    """Measure ``policy`` on the model of ``spec``, which trains on the same device between requests."""
    live = importlib.import_module("experiments.serving.live.switching")
    host = importlib.import_module("experiments.serving.live")
    if host.default_device() != "cuda":
        why = "threads of a CPU copy nothing while they compute"
        raise Infeasible(f"unsupported here: {why}; a GPU is wanted", "mode measured")
    return measure_switches(spec, policy, progress, live, "cuda", host.device_name("cuda"))


def measure_switches(
    spec: RunSpec, policy: SharingPolicy, progress: Progress, live: Any, device: str, name: str
) -> Result:
    """The same on a named device."""
    source, loaded = model_of(spec.workload)
    progress(0.0, "building the model")
    asked = replace(source, options=replace(source.options, training=False))
    trained = replace(source, options=replace(source.options, training=True))
    made = live.SwitchingDevice(
        live.LayeredModel(asked, device, spec.seed), live.LayeredModel(trained, device, spec.seed)
    )
    try:
        progress(0.2, "timing layers")
        models = made.models()
        alone = made.serve_alone(REQUESTS)
        progress(0.5, "answering requests")
        if policy.starts_processes:
            costs, plan = _start_processes(spec, made, live, device, part(progress, 0.5, 0.9))
        else:
            costs = made.costs()
            plan = made.serve(policy.on_host(costs), models, REQUESTS)
    finally:
        made.close()
    predicted = _predict(policy, costs, made.device, models)
    metrics = sharing_figures(plan, alone, models, plan.end)
    return Result(
        metrics=metrics,
        series=sharing_curves(plan),
        plan=sharing_json(plan, models),
        workload_sha256=loaded.sha256,
        notes={
            "mode": "measured",
            "hardware": resolve("local" if device == "cpu" else name).to_json(),
            "host": {
                "bandwidth": made.device.bandwidth,
                "call_time": made.device.call_time,
                **costs._asdict(),
            },
            "predicted": {key: predicted[key] for key in COMPARED if key in metrics},
        },
    )


def _start_processes(
    spec: RunSpec, made: Any, live: Any, device: str, progress: Progress
) -> tuple[HostCosts, SharingPlan]:
    """The first start tells the costs; the others are the run."""
    workload = spec.to_json()["workload"]
    workload["options"]["training"] = False
    calibration = live.start_cold(workload, device, spec.seed)
    pageable = sum(layer.end - layer.begin for layer in made.asked.layers) / calibration.copy
    costs = HostCosts(0.0, calibration.start, calibration.first_call, pageable / made.device.bandwidth)
    requests, now = [], 0.0
    for turn in range(STARTS):
        progress(turn / STARTS, f"starting process {turn + 1} of {STARTS}")
        found = live.start_cold(workload, device, spec.seed)
        requests.append(SharedRequest(0, now, True, False, now + found.start, now + found.whole))
        now += found.whole
    return costs, SharingPlan(tuple(requests), (), (), (len(requests), 0), now)


def _predict(
    policy: SharingPolicy, costs: HostCosts, device: SharedDevice, models: Sequence[SharedModel]
) -> Mapping[str, float]:
    """The simulator's figures of as many requests, between which training has come back.

    Each finds training inside another part of a layer. Where it is killed at once, its layers are one.
    """
    asked, trained = models
    if policy.starts_processes:
        trained = replace(trained, operators=(Operator(trained.seconds, trained.bytes),))
    layer = trained.operators[0].seconds
    gap = GAP + 4 * (costs.start + costs.first_call + costs.clean)
    arrivals = [(gap * (n + 1) + layer * (n + 0.5) / REQUESTS, 0) for n in range(REQUESTS)]
    models = (asked, trained)
    by = policy.on_host(costs)
    resident = [by.starts_resident(model) for model in models]
    plan = share(device, models, resident, by.begin(device, models), arrivals, gap * (REQUESTS + 1))
    ready = [SharedRequest(0, time, False, True, time, time + asked.seconds) for time, _ in arrivals]
    alone = SharingPlan(tuple(ready), (), (), (REQUESTS, 0), plan.end)
    return sharing_figures(plan, alone, models, plan.end)
