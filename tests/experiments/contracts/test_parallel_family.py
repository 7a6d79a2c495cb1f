"""What must hold of every parallel policy on any model and cluster, whoever wrote it."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import replace

import numpy as np
import pytest

from experiments.core import jsonio, registry
from experiments.core.errors import BadInput, Infeasible
from experiments.core.spec import load_workload
from experiments.hardware import Hardware, Link, NodeGroup, resolve
from experiments.parallel.interface import (
    ParallelPlan,
    ParallelPolicy,
    PlanningEstimate,
    model_estimate,
    violations,
)
from experiments.parallel.simulator import StepSimulation, evaluate, simulate
from experiments.sources import layers_of
from experiments.workloads.kernel_times import timed_by_kernels
from experiments.workloads.layers import LayerGraph
from experiments.workloads.transformer import Transformer
from experiments.workloads.transformer_layers import CAPTURED, OPERATORS, transformer_layers
from tests.experiments.parallel.builders import chain, cluster

NODE_LINK, NETWORK = Link("node", 400.0, 1e-3, True, "test"), Link("network", 50.0, 1e-2, True, "test")
CLUSTERS: dict[str, Hardware] = {
    "one device": cluster(1, 1),
    "a node of 4": cluster(1, 4, link=NODE_LINK, network=NETWORK),
    "2 nodes of 4": cluster(2, 4, link=NODE_LINK, network=NETWORK),
}
REAL = resolve({"cluster": {"nodes": 2, "devices_per_node": 4, "device": "v100-16g", "network": "ib-100g"}})
ZOO: dict[str, dict[str, object]] = {
    "zoo:gpt2-tiny": {"batch": 32, "optimizer": "adamw"},
    "zoo:moe": {"batch": 16, "sequence": 64},
    "zoo:dlrm": {"batch": 1024},
}
NAMES = [policy.name for policy in registry.all_policies() if policy.family == "parallel"]
#: By operators, for the policies that ask for a transformer's sizes.
SIZES = Transformer("sizes", 4, 256, 8, 32, 1024, 64, 8, vocabulary=512, positions=64)
CASES = [("chain", name) for name in CLUSTERS] + [(name, "real") for name in ZOO]


def cases(name: str) -> list[tuple[str, str]]:
    """Models and clusters for a policy: one by its sizes only where that is how the policy reads models."""
    by_sizes = policy_named(name).layers != CAPTURED
    return [*CASES, ("sizes", "real")] if by_sizes else CASES


@functools.cache
def model_named(source: str) -> LayerGraph:
    if source == "chain":
        sizes = {"parameter_bytes": 40.0, "output_bytes": 8.0, "stash_bytes": 16.0}
        model = chain(12, batch=32, **sizes)
        return replace(model, facts={"sequence": 64, "dtype": "float32"})
    if source == "sizes":
        graph = transformer_layers(SIZES, batch=32, dtype="float32", granularity=OPERATORS)
        return timed_by_kernels(graph, REAL.device)
    pytest.importorskip("torch")
    return layers_of(load_workload({"source": source, "options": ZOO[source]}), REAL.device)[0]


def hardware_named(name: str) -> Hardware:
    return REAL if name == "real" else CLUSTERS[name]


def asked(source: str, hardware: Hardware) -> PlanningEstimate:
    return model_estimate(model_named(source), hardware, evaluate, "float32", "adam", seed=3)


def policy_named(name: str) -> ParallelPolicy:
    policy = registry.create("parallel", name, registry.policy_class("parallel", name).quick)
    assert isinstance(policy, ParallelPolicy)
    return policy


@functools.cache
def placed(name: str, source: str, where: str) -> ParallelPlan | str:
    """The plan, or the words in which the policy says that it is not for this model or cluster."""
    policy, hardware, model = policy_named(name), hardware_named(where), model_named(source)
    try:
        return policy.place(model, hardware, model.batch, asked(source, hardware))
    except (BadInput, Infeasible) as refusal:
        return str(refusal)


@functools.cache
def simulated(name: str, source: str, where: str) -> StepSimulation:
    return simulate(plan_of(name, source, where), asked(source, hardware_named(where)))


def plan_of(name: str, source: str, where: str) -> ParallelPlan:
    """The plan, to which laws apply only where the policy is for this model and cluster."""
    plan = placed(name, source, where)
    if isinstance(plan, str):
        pytest.skip(plan)
    return plan


def carried_out(name: str, source: str, where: str) -> tuple[ParallelPlan, StepSimulation]:
    return plan_of(name, source, where), simulated(name, source, where)


every_policy = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(
    ("name", "source", "where"), [(name, *case) for name in NAMES for case in cases(name)]
)


@every_policy
def test_some_model_and_cluster_are_for_it(name: str) -> None:
    assert any(isinstance(placed(name, *case), ParallelPlan) for case in cases(name))


@every_case
def test_its_plan_is_legal(name: str, source: str, where: str) -> None:
    plan = plan_of(name, source, where)
    assert violations(plan, model_named(source), hardware_named(where)) == []


@every_case
def test_it_is_repeatable(name: str, source: str, where: str) -> None:
    plan = plan_of(name, source, where)
    model, hardware = model_named(source), hardware_named(where)
    again = policy_named(name).place(model, hardware, model.batch, asked(source, hardware))
    assert jsonio.canonical(again.to_json()) == jsonio.canonical(plan.to_json())


@every_case
def test_its_plan_survives_json(name: str, source: str, where: str) -> None:
    text = jsonio.canonical(plan_of(name, source, where).to_json())
    assert jsonio.canonical(ParallelPlan.from_json(jsonio.loads(text, "plan")).to_json()) == text


@every_case
def test_never_better_than_the_bound(name: str, source: str, where: str) -> None:
    found = simulated(name, source, where)
    estimate = asked(source, hardware_named(where))
    speed = sum(1 / estimate.slowdown(device) for device in range(len(estimate.devices)))
    assert found.samples_per_second <= speed / float(estimate.layer_seconds.sum()) * (1 + 1e-6)
    assert 0 <= found.bubble_fraction < 1 and 0 <= found.exposed_communication_time <= found.step_time
    assert found.mfu <= found.hfu * (1 + 1e-9)


@every_policy
def test_closed_form_on_the_smallest_case(name: str) -> None:
    plan, found = carried_out(name, "chain", "one device")
    serial = 3.0 * 12 * plan.batch
    assert found.step_time == pytest.approx(serial + overhead(plan), rel=1e-6)
    assert found.exposed_communication_time == pytest.approx(0.0, abs=1e-9)


def overhead(plan: ParallelPlan) -> float:
    """What slots take besides their layers, and passes that are computed again."""
    slots = [slot for worker in plan.workers for slot in worker.slots]
    again = len(plan.recompute) * plan.batch
    return len(slots) * plan.slot_overhead + again


@every_case
def test_memory_is_within_the_device_or_the_missing_bytes_are_told(
    name: str, source: str, where: str
) -> None:
    plan, found = carried_out(name, source, where)
    hardware = hardware_named(where)
    peak = found.peak_memory
    assert peak <= hardware.device.memory_bytes
    small = with_device(hardware, memory_bytes=int(peak) - 1)
    with pytest.raises(Infeasible) as refused:
        simulate(plan, asked(source, small))
    assert refused.value.missing is not None and 0 < refused.value.missing <= 2


def with_device(hardware: Hardware, **changed: object) -> Hardware:
    groups = [
        NodeGroup(g.count, replace(g.node, device=dataclasses.replace(g.node.device, **changed)))  # type: ignore[arg-type]
        for g in hardware.groups
    ]
    return replace(hardware, groups=tuple(groups))


@every_case
def test_faster_links_are_never_slower_for_the_same_plan(name: str, source: str, where: str) -> None:
    plan, found = carried_out(name, source, where)
    hardware = hardware_named(where)

    def faster(link: Link) -> Link:
        return replace(link, bandwidth=8 * link.bandwidth, latency=link.latency / 8)

    groups = tuple(NodeGroup(g.count, replace(g.node, link=faster(g.node.link))) for g in hardware.groups)
    better = replace(hardware, groups=groups, network=faster(hardware.network))
    after = simulate(plan, asked(source, better))
    assert after.samples_per_second >= found.samples_per_second * (1 - 1e-3)
    assert np.isfinite(after.step_time)
