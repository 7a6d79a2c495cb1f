"""Activations that write elsewhere instead of over what they read, where a plan recomputes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.progress import silent
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.memory.experiment.planned import make_plan, recomputes
from experiments.memory.interface import MemoryPlan, load_plan, machine_of, violations
from experiments.memory.interface.in_place import in_place_ops, out_of_place
from experiments.memory.interface.transform import transformed
from experiments.memory.simulator import Simulator
from experiments.sources import step_of
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step

F, B = "forward", "backward"


def network(layers: int = 6) -> Step:
    """Norms, each with a ReLU over its result: the norm's backward pass reads its input, the ReLU's its
    output.
    """
    rows: list[Row] = []
    for i in range(layers):
        rows += [
            ("conv", F, 8.0, [f"r{i}", "w"], [f"c{i}"]),
            ("norm", F, 1.0, [f"c{i}"], [f"r{i + 1}"]),
            ("relu_", F, 1.0, [f"r{i + 1}"], [f"r{i + 1}"]),
        ]
    rows.append(("loss", F, 1.0, [f"r{layers}"], ["g"]))
    for i in reversed(range(layers)):
        rows += [
            ("relu_back", B, 1.0, ["g", f"r{i + 1}"], ["g"]),
            ("norm_back", B, 1.0, ["g", f"c{i}"], ["g"]),
            ("conv_back", B, 8.0, ["g", f"r{i}", "w"], ["g"]),
        ]
    sizes = {"r0": 10, "w": 1, "g": 10, **{f"{kind}{i}": 10 for i in range(layers + 1) for kind in "rc"}}
    step = make_step(rows, sizes, persistent=["w", "r0"])
    target = tuple("aten.relu_.default" if name == "relu_" else name for name in step.ops.name)
    names = tuple(f"{name}_{i}" for i, name in enumerate(step.ops.name))
    ops = replace(step.ops, target=target, name=names, bytes_moved=np.full(len(step.ops), 20.0))
    return replace(step, ops=ops)


def test_a_relu_over_its_input_is_found_and_writes_a_tensor_of_its_own() -> None:
    step = network(2)
    assert in_place_ops(step) == (2, 5)
    apart = out_of_place(step, (2, 5))
    count = len(step.tensors)
    assert apart.tensors.name[count:] == ("relu__2", "relu__5") and apart.ops.target[2] == "aten.relu.default"
    first = step.tensors.name.index("r1")
    assert (apart.inputs[2].tolist(), apart.outputs[2].tolist()) == ([first], [count])
    assert count in apart.inputs[3] and first not in apart.inputs[3]  # the next convolution
    assert apart.last_use[first] == 2
    assert in_place_ops(apart) == () and out_of_place(step, ()).inputs.lists() == step.inputs.lists()


def test_what_is_seen_by_others_or_written_in_part_stays_in_place() -> None:
    step = network(2)
    part = replace(step, ops=replace(step.ops, bytes_moved=np.full(len(step.ops), 10.0)))
    assert in_place_ops(part) == ()
    view = step.ops.view.copy()
    view[1] = True  # the norm's result is now a view of what it reads
    assert 2 not in in_place_ops(replace(step, ops=replace(step.ops, view=view)))
    kind = step.tensors.kind.copy()
    kind[step.tensors.name.index("r1")] = step.tensors.kind[step.tensors.name.index("w")]
    assert in_place_ops(replace(step, tensors=replace(step.tensors, kind=kind))) == (5,)
    with pytest.raises(BadInput, match="op 1 cannot write elsewhere"):
        out_of_place(step, (1, 2))


def test_a_plan_says_which_ops_write_elsewhere() -> None:
    step, on = network(), machine()
    plan = MemoryPlan(out_of_place=(2, 5))
    assert load_plan(plan.to_json()) == plan and violations(plan, step, on) == []
    assert len(transformed(step, plan).tensors) == len(step.tensors) + 2
    assert violations(MemoryPlan(out_of_place=(1,)), step, on)[0].startswith("plan.out_of_place: op 1")
    assert Simulator(step, on).run(plan).step_time == step.seconds


@pytest.mark.parametrize("name", ["checkpoint", "torch_knapsack", "capuchin", "swap_all"])
@pytest.mark.parametrize("share", [0.9, 0.7, 0.55])
def test_a_policy_that_recomputes_is_never_worse_for_it(name: str, share: float) -> None:
    step = network()
    on = machine(int(share * step.live_peak), bandwidth=5.0)
    policy = registry.create("memory", name, {})
    plan = make_plan(step, on, policy, 0)
    assert violations(plan, step, on) == []
    plain = make_plan(replace(step, ops=replace(step.ops, target=step.ops.name)), on, policy, 0)
    assert not plain.out_of_place and (recomputes(plan) or not plan.out_of_place)
    simulator = Simulator(step, on)
    assert simulator.estimate(plan).step_time <= simulator.estimate(plain).step_time


@pytest.mark.torch
@pytest.mark.parametrize(("name", "share"), [("checkpoint", 1.0), ("dtr", 0.6), ("torch_knapsack", 0.7)])
def test_resnet_18_takes_no_longer_than_in_place(name: str, share: float) -> None:
    pytest.importorskip("torch")
    hardware = resolve("v100-16g")
    workload = load_workload({"source": "zoo:resnet18", "options": {"batch": 32}})
    step, _ = step_of(workload, hardware.device, silent)
    on = replace(machine_of(hardware), capacity=int(share * step.live_peak))
    policy = registry.create("memory", name, {"variant": "sqrt"} if name == "checkpoint" else {})
    plan = make_plan(step, on, policy, 0)
    assert violations(plan, step, on) == []
    plain = make_plan(replace(step, ops=replace(step.ops, target=step.ops.name)), on, policy, 0)
    ours, theirs = Simulator(step, on).estimate(plan), Simulator(step, on).estimate(plain)
    assert ours.fits and ours.step_time <= theirs.step_time


@pytest.mark.torch
def test_steps_that_write_elsewhere_end_bitwise_where_plain_steps_end() -> None:
    torch = pytest.importorskip("torch")
    from experiments.memory.live.runner import StepRunner
    from experiments.profiling.capture import trace
    from experiments.profiling.timing import flush_denormals
    from experiments.sources import with_roofline_times
    from experiments.workloads.model import ModelSource, WorkloadOptions

    flush_denormals()
    traced = trace(ModelSource("zoo:resnet18", zoo="resnet18", options=WorkloadOptions(batch=4, image=32)))
    expected = traced.make_inputs(0)
    with torch.no_grad():
        losses = [float(traced.graph_module(*expected)) for _ in range(3)]
    step = with_roofline_times(traced.step, resolve("local").device)
    on = machine_of(resolve("local"))
    plan = make_plan(step, on, registry.create("memory", "checkpoint", {"variant": "sqrt"}), 0)
    assert plan.out_of_place == in_place_ops(step)
    assert recomputes(plan)
    inputs = traced.make_inputs(0)
    with StepRunner(traced, plan) as runner:
        assert [float(runner(inputs)) for _ in range(3)] == losses
        peak = runner.ledger.peak
    assert all(torch.equal(a, b) for a, b in zip(inputs, expected, strict=True))
    simulated = Simulator(step, replace(on, synchronous=True)).run(plan).peak_bytes
    assert 0 <= peak - simulated <= 3 * 4, "the caller holds the four bytes of each step's loss"
