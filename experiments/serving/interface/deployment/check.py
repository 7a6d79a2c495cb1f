"""The one checker of what a deployment did: no device twice at once, no weights where there are none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from experiments.serving.interface.deployment.placement import Deployment, Group
from experiments.serving.interface.deployment.plan import DeploymentPlan
from experiments.workloads.scenario import ScenarioRequests

LISTED, TOLERANCE = 20, 1e-9


def deployment_violations(plan: DeploymentPlan, deployment: Deployment, asked: ScenarioRequests) -> list[str]:
    """What is impossible about ``plan``; empty when nothing is."""
    found = [
        *_ends(plan, asked),
        *_passes(plan, deployment),
        *_double_use(plan),
        *_residence(plan),
        *_memory(plan, deployment),
    ]
    more = len(found) - LISTED
    return found if more <= 0 else [*found[:LISTED], f"and {more} more"]


def group_fault(group: Group, deployment: Deployment) -> str:
    """What no cluster could make of ``group``; empty when nothing is."""
    if len(set(group.devices)) != len(group.devices) or len(group.devices) != group.pipeline * group.tensor:
        return f"devices {group.devices} do not make {group.pipeline} stages of {group.tensor}"
    if not all(0 <= device < deployment.cluster.devices for device in group.devices):
        return f"has devices {group.devices} of {deployment.cluster.devices}"
    models = (deployment.models[model] for model in group.models)
    undivided = next((m for m in models if not m.cost.divides(group.pipeline, group.tensor)), None)
    return f"{undivided.name} is not divided into {group.pipeline} x {group.tensor}" if undivided else ""


def _ends(plan: DeploymentPlan, asked: ScenarioRequests) -> Iterator[str]:
    if [answer.request for answer in plan.answers] != list(range(len(asked))):
        yield f"{len(plan.answers)} ends are told for {len(asked)} requests"
    run = [request for one in plan.passes for request in one.requests]
    answered = sum(not math.isnan(answer.answered) for answer in plan.answers)
    if len(set(run)) != len(run) or len(run) != answered:
        yield f"{len(run)} requests were in passes ({len(set(run))} of them once), {answered} were answered"
    for answer in plan.answers:
        if answer.rejected and not math.isnan(answer.answered):
            yield f"request {answer.request} is rejected and answered"
        if answer.answered < answer.ready - TOLERANCE:
            yield f"request {answer.request} is answered at {answer.answered:g} s, before it was there"


def _passes(plan: DeploymentPlan, deployment: Deployment) -> Iterator[str]:
    """Requests are there, and each stage takes its time."""
    for one in plan.passes:
        latest = max(plan.answers[request].ready for request in one.requests)
        if one.enter[0] < latest - TOLERANCE:
            yield f"a pass of {one.requests} enters at {one.enter[0]:g} s, before all of them were there"
        times = one.group.stage_times(deployment.models[one.model], len(one.requests))
        for enter, leave, seconds in zip(one.enter, one.leave, times, strict=True):
            if abs(leave - enter - seconds) > TOLERANCE * max(1.0, leave):
                yield f"a stage of {one.requests} takes {leave - enter:g} s instead of {seconds:g}"
        if any(enter < leave - TOLERANCE for leave, enter in zip(one.leave, one.enter[1:], strict=False)):
            yield f"a pass of {one.requests} is in two stages at once"


def _double_use(plan: DeploymentPlan) -> Iterator[str]:
    busy: dict[int, list[tuple[float, float]]] = {}
    for one in plan.passes:
        for stage, span in enumerate(zip(one.enter, one.leave, strict=True)):
            for device in one.group.stage(stage):
                busy.setdefault(device, []).append(span)
    for device, spans in busy.items():
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            if begin < end - TOLERANCE * max(1.0, end):
                yield f"device {device} begins a pass at {begin:g} s inside one until {end:g} s"
                break


def _residence(plan: DeploymentPlan) -> Iterator[str]:
    """Every pass lies within a stay of its model's weights on its group."""
    stays: dict[tuple[tuple[int, ...], int], list[tuple[float, float]]] = {}
    for stay in plan.residences:
        stays.setdefault((stay.group.devices, stay.model), []).append((stay.ready, stay.end))
    for one in plan.passes:
        there = stays.get((one.group.devices, one.model), ())
        if not any(a - TOLERANCE <= one.enter[0] and one.leave[-1] <= b + TOLERANCE for a, b in there):
            yield f"model {one.model} runs at {one.enter[0]:g} s on {one.group.devices}, which lacks it"


def _memory(plan: DeploymentPlan, deployment: Deployment) -> Iterator[str]:
    changes: dict[int, list[tuple[float, float]]] = {}
    for stay in plan.residences:
        cost, group = deployment.models[stay.model].cost, stay.group
        for stage, size in enumerate(cost.stage_bytes(group.pipeline, group.tensor)):
            for device in group.stage(stage):
                changes.setdefault(device, []).extend(((stay.begin, size), (stay.end, -size)))
    capacity = deployment.cluster.memory
    for device, rows in changes.items():
        held = 0.0
        for time, change in sorted(rows):
            held += change
            if held > capacity * (1 + TOLERANCE):
                yield f"device {device} holds {held:g} of {capacity:g} bytes at {time:g} s"
                break
