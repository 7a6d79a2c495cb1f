"""Rematerialization carried out by torch: parameters end bitwise equal, and the peak is the simulated one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.hardware import resolve
from experiments.memory.interface import machine_of, violations
from experiments.memory.simulator import Simulator
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from tests.experiments.memory.steps import plan_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODELS = {
    "mlp": WorkloadOptions(batch=512),
    "gpt2-tiny": WorkloadOptions(batch=8, sequence=64, attention="math"),
    "resnet18": WorkloadOptions(batch=4, image=32),
}
#: The peaks of the others are parameters, gradients and one large op: what looks at capacity finds little to
#: do.
FULL_OF_ACTIVATIONS = "gpt2-tiny"
#: Policy, knobs, and the share of the activations (live peak less persistent bytes) that the device has room
#: for.
POLICIES = [
    ("checkpoint", {"variant": "search"}, 2.0),
    ("checkpoint", {"variant": "recursive", "keep_last": False}, 2.0),
    ("checkpoint", {"variant": "optimal", "slots": 3}, 2.0),
    ("selective_recompute", {}, 2.0),
    ("selective_recompute", {"select": "full"}, 2.0),
    ("selective_recompute", {"select": "full", "offload": True}, 2.0),
    ("torch_knapsack", {"budget": 0.5}, 2.0),
    ("capuchin", {}, 0.8),
    ("superneurons", {}, 0.7),
    ("checkmate", {"groups": 6}, 0.7),
    ("dtr", {"limit": 3.0}, 0.8),
    ("dtr", {"heuristic": "local", "limit": 3.0}, 0.6),
    ("dtr", {"unreferenced": "leave", "limit": 3.0}, 0.6),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Ops of a few kilobytes: threads that wait for one another on a busy machine take ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=sorted(MODELS))
def traced(request):
    from experiments.profiling.capture import trace
    from experiments.profiling.timing import flush_denormals

    flush_denormals()
    return trace(ModelSource(f"zoo:{request.param}", zoo=request.param, options=MODELS[request.param]))


@pytest.fixture(scope="module")
def expected(traced):
    """Losses and all tensors after five plain steps."""
    inputs = traced.make_inputs(0)
    with torch.no_grad():
        return [float(traced.graph_module(*inputs)) for _ in range(5)], inputs


@pytest.mark.parametrize(("name", "knobs", "share"), POLICIES)
def test_five_steps_end_bitwise_where_plain_steps_end_at_the_simulated_peak(
    traced, expected, name, knobs, share
):
    from experiments.memory.live.runner import StepRunner

    if share < 1 and traced.source.zoo != FULL_OF_ACTIVATIONS:
        pytest.skip("little to do: its peak is not saved activations")
    local = resolve("local")
    step = with_roofline_times(traced.step, local.device)
    room = step.persistent_bytes + int(share * (step.live_peak - step.persistent_bytes))
    on = replace(machine_of(local), capacity=room, synchronous=True)
    plan = plan_of(registry.create("memory", name, knobs), step, on)
    assert violations(plan, step, on) == []
    assert plan.moves or name == "selective_recompute"
    runner, inputs = StepRunner(traced, plan), traced.make_inputs(0)
    losses = [float(runner(inputs)) for _ in range(5)]
    assert losses == expected[0]
    assert all(torch.equal(ours, plain) for ours, plain in zip(inputs, expected[1], strict=True))
    simulated = Simulator(step, on).run(plan).peak_bytes
    kept_losses = runner.ledger.peak - simulated
    assert 0 <= kept_losses <= 4 * 5, "the caller holds the four bytes of each step's loss"
