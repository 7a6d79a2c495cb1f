"""Carries out a run of a policy that deploys several models: scenario and cluster in, answers out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.progress import Progress, part, silent
from experiments.core.rate_search import MOST_TRIALS, RateGoal, find_highest
from experiments.core.spec import Result, RunSpec
from experiments.hardware import Hardware, resolve
from experiments.serving.experiment.rates import NOT_ASKED, HighestRate, highest_of
from experiments.serving.interface.deployment import (
    DeployedModel,
    Deployment,
    DeploymentPlan,
    DeploymentPolicy,
    EncoderCost,
    PassCost,
    Placement,
    ServingCluster,
    ToldLayers,
    WholeCost,
    deployment_violations,
)
from experiments.serving.simulator.deployment import (
    Queries,
    attainment_by_model,
    deployment_curves,
    deployment_figures,
    simulate_deployment,
)
from experiments.sources import Loaded, scenario_of
from experiments.workloads.encoders import ENCODERS
from experiments.workloads.scenario import (
    CLOSED,
    REAL_TIME,
    BatchProfile,
    FixedCost,
    LayerCosts,
    PublishedSizes,
    Scenario,
    ScenarioModel,
    ScenarioRequests,
)

#: Share of device memory for weights; the rest is activations and workspace, as the engine has it.
USABLE_MEMORY = 0.9
#: What is added to a run's seed for the sample by which models are placed: as much load, other requests.
SAMPLE_SEED = 1_000_003
ROWS = 4000


@dataclass(frozen=True)
class Deployed:
    """One simulated run of a deployment: what was asked, where models were, and what became of it."""

    deployment: Deployment
    asked: ScenarioRequests
    placement: Placement
    plan: DeploymentPlan


def serve_scenario(spec: RunSpec, policy: DeploymentPolicy, progress: Progress) -> Result:
    """Simulate ``policy`` on the scenario of ``spec``, its arrivals drawn from the spec's seed."""
    scenario, loaded = scenario_of(spec.workload)
    hardware = resolve(spec.hardware)
    ran = deploy_and_serve(scenario, hardware, policy, spec.seed, part(progress, 0.02, 0.6))
    found = deployment_json(ran)
    if faults := deployment_violations(ran.plan, ran.deployment, ran.asked):
        return Result.from_violations(faults, found, loaded.sha256)
    metrics = deployment_figures(ran.plan, ran.deployment, ran.asked, scenario.duration)
    metrics |= _plan_figures(ran.placement)
    highest = NOT_ASKED
    if policy.wanted_attainment is not None:
        highest = find_max_rate(scenario, hardware, policy, spec.seed, part(progress, 0.6, 0.95))
    curves = deployment_curves(ran.plan, ran.deployment, ran.asked, scenario.duration)
    return Result(
        metrics={**metrics, **highest.metrics},
        series={**curves, **highest.series},
        plan=found,
        workload_sha256=loaded.sha256,
        notes=_notes(hardware, scenario, loaded, ran, highest.warnings),
    )


def deploy_and_serve(
    scenario: Scenario, hardware: Hardware, policy: DeploymentPolicy, seed: int, progress: Progress = silent
) -> Deployed:
    """Place the scenario's models and simulate its requests."""
    deployment = deployment_of(scenario, hardware)
    asked = scenario.draw(seed)
    sample = asked if policy.sees_trace else scenario.draw((seed + SAMPLE_SEED) % 2**63)
    placement = policy.place(deployment, sample)
    dispatcher = policy.dispatch(deployment, placement, sample)
    return Deployed(
        deployment, asked, placement, simulate_deployment(deployment, placement, dispatcher, asked, progress)
    )


def deployment_of(scenario: Scenario, hardware: Hardware) -> Deployment:
    """The scenario's models with what their passes cost on ``hardware``, whose nodes are equal."""
    if len(hardware.groups) > 1:
        raise BadInput(f"{hardware.name} mixes nodes", "spec.hardware", "equal nodes")
    other = next((model for model in scenario.models if model.service_class != REAL_TIME), None)
    if other is not None:
        what = f"{other.name} is {other.service_class}"
        raise BadInput(what, scenario.name, "real_time models alone: others share a device, placed by nobody")
    closed = next((model for model in scenario.models if model.arrivals == CLOSED), None)
    if closed is not None:
        what = f"{closed.name} asks again when it is answered"
        raise BadInput(what, scenario.name, "models with a rate or recorded times, which placements are for")
    models = tuple(_deployed(model, scenario, hardware) for model in scenario.models)
    cluster = ServingCluster(
        hardware.device_count,
        hardware.node.device_count,
        USABLE_MEMORY * hardware.device.memory_bytes,
        hardware.device.host_link,
    )
    return Deployment(models, cluster)


def _deployed(model: ScenarioModel, scenario: Scenario, hardware: Hardware) -> DeployedModel:
    return DeployedModel(
        model.name,
        _cost(model, hardware),
        math.inf if model.slo is None else model.slo,
        scenario.rate(model.name),
        model.bytes,
        model.preprocess,
        model.postprocess,
        scenario.places[model.after] if model.after else -1,
        model.share,
    )


def _cost(model: ScenarioModel, hardware: Hardware) -> PassCost:
    match model.cost:
        case FixedCost(seconds):
            return WholeCost(BatchProfile((1,), (seconds,)), model.bytes)
        case BatchProfile():
            return WholeCost(model.cost, model.bytes)
        case LayerCosts():
            return ToldLayers(model.cost, model.bytes)
        case PublishedSizes(name, sequence):
            return EncoderCost(ENCODERS[name], sequence, hardware)
    raise BadInput(f"{model.name} tells kernels", "models", "latency, profile, layers or sizes: a whole pass")


def find_max_rate(
    scenario: Scenario, hardware: Hardware, policy: DeploymentPolicy, seed: int, progress: Progress = silent
) -> HighestRate:
    """Return the highest requests a second at which the wanted share meets its objective.

    All loads grow in proportion.
    """
    total = sum(scenario.rate(model.name) for model in scenario.models if not model.after)
    goal, tried = RateGoal(policy.wanted_attainment), list[tuple[float, Mapping[str, float]]]()

    def attains(load: float) -> bool:
        progress(len(tried) / MOST_TRIALS, f"{load:.3g} times the load")
        found = _figures_of(_at_load(scenario, load), hardware, policy, seed)
        tried.append((load * total, found))
        return goal.is_met(found)

    return highest_of(total * find_highest(attains), tried, goal)


def _at_load(scenario: Scenario, factor: float) -> Scenario:
    models = tuple(
        dataclasses.replace(
            model,
            rate=model.rate * factor,
            times=None if model.times is None else tuple(time / factor for time in model.times),
        )
        for model in scenario.models
    )
    return dataclasses.replace(scenario, models=models)


def _figures_of(
    scenario: Scenario, hardware: Hardware, policy: DeploymentPolicy, seed: int
) -> dict[str, float]:
    ran = deploy_and_serve(scenario, hardware, policy, seed)
    return deployment_figures(ran.plan, ran.deployment, ran.asked, scenario.duration)


def _plan_figures(placement: Placement) -> dict[str, float]:
    """The mean cycle of devices that have one."""
    cycles = [gpu["duty_cycle"] for gpu in placement.plan.get("gpus", ())]
    return {"duty_cycle": sum(cycles) / len(cycles)} if cycles else {}


def deployment_json(ran: Deployed) -> Mapping[str, Any]:
    """Groups, models with their attainment, and passes as a table; a long one is thinned, and says so."""
    models, plan = ran.deployment.models, ran.plan
    shares = attainment_by_model(Queries.of(plan, ran.deployment, ran.asked), len(models)).tolist()
    step = -(-len(plan.passes) // ROWS) or 1
    rows = [
        [one.group.devices[0], one.model, len(one.requests), one.enter[0], one.leave[-1]]
        for one in plan.passes[::step]
    ]
    return {
        **ran.placement.plan,
        "groups": [group.to_json(models) for group in ran.placement.groups],
        "unplaced": {models[model].name: reason for model, reason in ran.placement.unplaced.items()},
        "models": [
            {"name": model.name, "slo_attainment": None if math.isnan(share) else share}
            for model, share in zip(models, shares, strict=True)
        ],
        "passes": {
            "columns": ["device", "model", "requests", "start", "end"],
            "rows": rows,
            "sampling": "every pass" if step == 1 else f"every {step}th of {len(plan.passes)} passes",
        },
        "regroupings": len(plan.groupings) - 1,
    }


def _notes(
    hardware: Hardware, scenario: Scenario, loaded: Loaded, ran: Deployed, doubts: tuple[str, ...]
) -> dict[str, Any]:
    unplaced = ran.placement.unplaced
    told = [f"{ran.deployment.models[model].name} is nowhere: {why}" for model, why in unplaced.items()]
    return {
        "hardware": hardware.to_json(),
        "warnings": [*hardware.warnings, *told, *doubts],
        "trace": {
            "format": loaded.format,
            "requests": len(ran.asked),
            "models": len(scenario),
            "files": dict(scenario.facts.get("files", {})),
            "assumed": list(loaded.assumed),
            "warnings": list(loaded.warnings),
        },
    }
