"""Plans of offline planners, made for less memory than the step needs, carried out by torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.hardware import resolve
from experiments.memory.interface import CountedBytes, Offload, machine_of, violations
from experiments.memory.simulator import Simulator
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from tests.experiments.memory.steps import plan_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODELS = {
    "resnet18": WorkloadOptions(batch=8, image=32),
    "gpt2-tiny": WorkloadOptions(batch=8, sequence=64),
}
POLICIES = [
    ("chen_meng", {}),
    ("tflms", {"ratio": 1.0}),
    ("tflms-v1", {}),
    ("autotm", {"mode": "synchronous", "least_bytes": 1024}),
    ("autotm", {"least_bytes": 1024}),
    ("sentinel", {"least_bytes": 1024}),
    ("swapadvisor", {"evaluations": 5}),
    ("autoswap", {"least_bytes": 1024}),
]


@pytest.fixture(scope="module", params=sorted(MODELS))
def traced(request):
    from experiments.profiling.capture import trace

    return trace(ModelSource(f"zoo:{request.param}", zoo=request.param, options=MODELS[request.param]))


@pytest.fixture(scope="module")
def expected(traced):
    """Losses and all tensors after five plain steps."""
    inputs = traced.make_inputs(0)
    with torch.no_grad():
        return [float(traced.graph_module(*inputs)) for _ in range(5)], inputs


@pytest.mark.parametrize(("name", "knobs"), POLICIES)
def test_five_steps_in_nine_tenths_of_the_peak_end_bitwise_where_plain_steps_end(
    traced, expected, name, knobs
):
    from experiments.memory.live.runner import StepRunner

    local = resolve("local")
    step = with_roofline_times(traced.step, local.device)
    on = replace(machine_of(local), synchronous=True, capacity=step.live_peak * 9 // 10)
    plan = plan_of(registry.create("memory", name, knobs), step, on)
    assert violations(plan, step, on) == []
    assert any(isinstance(move, Offload) for move in plan.moves)
    inputs = traced.make_inputs(0)
    with StepRunner(traced, plan) as runner:
        runner.begin(inputs)
        runner.ledger.peak = 0  # until then all inputs were on the device
        losses = [float(runner(inputs)) for _ in range(5)]
        peak = runner.ledger.peak
    assert losses == expected[0]
    assert all(torch.equal(ours, plain) for ours, plain in zip(inputs, expected[1], strict=True))
    predicted = Simulator(step, replace(on, capacity=2**50)).run(replace(plan, space=CountedBytes()))
    assert peak == pytest.approx(predicted.peak_bytes, rel=0.05)
