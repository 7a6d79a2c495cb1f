"""Plans carried out by torch: the same numbers bit for bit, and the device bytes that were simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import load_spec
from experiments.hardware import resolve
from experiments.memory.interface import (
    Algorithm,
    DemandPaging,
    InPlace,
    MemoryPlan,
    Offload,
    machine_of,
    violations,
)
from experiments.memory.simulator import Simulator
from experiments.run import run
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from tests.experiments.memory.steps import plan_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODELS = {
    "mlp": WorkloadOptions(batch=256),
    "resnet18": WorkloadOptions(batch=8, image=32),
    "gpt2-tiny": WorkloadOptions(batch=8, sequence=64),
}
POLICIES = [
    ("baseline", {}),
    ("swap_all", {}),
    ("swap_all", {"ahead": 5}),
    ("vdnn-all", {}),
    ("vdnn-conv", {}),
    ("checkpoint", {}),
    ("checkpoint", {"variant": "greedy"}),
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
def test_five_steps_under_a_plan_end_bitwise_where_plain_steps_end(traced, expected, name, knobs):
    from experiments.memory.live.runner import StepRunner

    local = resolve("local")
    on = replace(machine_of(local), synchronous=True)
    step = with_roofline_times(traced.step, local.device)
    plan = plan_of(registry.create("memory", name, knobs), step, on)
    assert violations(plan, step, on) == []
    runner, inputs = StepRunner(traced, plan), traced.make_inputs(0)
    losses = [float(runner(inputs)) for _ in range(5)]
    assert losses == expected[0]
    assert all(torch.equal(ours, plain) for ours, plain in zip(inputs, expected[1], strict=True))
    assert runner.ledger.peak == pytest.approx(Simulator(step, on).run(plan).peak_bytes, rel=0.05)


#: Small networks hold more parameters than activations: little can leave.
SHARE_LEFT = {"mlp": 1.0, "resnet18": 0.999, "gpt2-tiny": 0.5}


def test_swapping_brings_the_measured_peak_down(traced):
    from experiments.memory.live.runner import StepRunner

    local = resolve("local")
    step = with_roofline_times(traced.step, local.device)
    on = replace(machine_of(local), synchronous=True)
    peaks = {}
    for name in ("baseline", "swap_all"):
        runner = StepRunner(traced, plan_of(registry.create("memory", name, {}), step, on))
        runner(traced.make_inputs(0))
        peaks[name] = runner.ledger.peak
    assert peaks["swap_all"] <= SHARE_LEFT[traced.source.zoo] * peaks["baseline"]


def test_where_the_unplanned_step_does_not_fit_the_plan_is_measured_alone(tmp_path, monkeypatch):
    from experiments.memory.live import Session
    from experiments.profiling import timing

    def too_large(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(timing, "profile", too_large)
    session = Session(ModelSource("zoo:mlp", zoo="mlp", options=MODELS["mlp"]))
    assert session.step.timing == "roofline"
    monkeypatch.setattr(session.traced.graph_module, "forward", too_large)
    seen = session.measure(MemoryPlan(), steps=2)
    assert seen.parameter_difference is None and seen.unplanned_time is None and seen.peak_bytes > 0


def test_a_random_op_that_runs_again_draws_the_same_numbers():
    from experiments.memory.live.moves import generator

    state = torch.get_rng_state()
    first = torch.rand(3)
    after = torch.rand(1)
    torch.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
    with generator(state, "cpu"):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.rand(1), after)


def test_what_torch_cannot_carry_out_here_is_refused_by_name():
    from experiments.memory.live import refuse

    for move in (Algorithm(3, 0.1, 0), InPlace(1, (0,), 0.1), Offload(2, 0, 1, "remote")):
        with pytest.raises(BadInput, match=f"{move.action} at op {move.at} .* cannot be measured"):
            refuse(MemoryPlan((move,)))
    for plan, what in (
        (MemoryPlan(overlays=((1, 0),)), "overlays"),
        (MemoryPlan(space=DemandPaging()), "pages"),
        (MemoryPlan(reactive=True), "decisions while it runs"),
    ):
        with pytest.raises(BadInput, match=what):
            refuse(plan)


def test_a_measured_run_reports_what_it_saw_beside_the_prediction(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    workload = {"source": "zoo:mlp", "options": {"batch": 64, "steps": 10}}
    spec = {
        "family": "memory",
        "policy": "swap_all",
        "workload": workload,
        "hardware": "local",
        "mode": "measured",
    }
    done = run(load_spec(spec))
    seen = {name: entry["value"] for name, entry in done.metrics.items()}
    assert done.status == "ok" and done.violations == []
    assert seen["max_parameter_difference"] == 0
    assert done.provenance["losses"] == done.provenance["losses_unplanned"]
    assert seen["peak_memory"] == pytest.approx(done.provenance["predicted"]["peak_memory"], rel=0.05)
    assert seen["step_time"] > 0 and seen["jct"] == 10 * seen["step_time"]
    assert seen["offloaded_bytes"] == seen["prefetched_bytes"] > 0
    assert len(list((tmp_path / "profiles").iterdir())) == 1


def test_a_trace_cannot_be_measured(shared_data):
    source = str(shared_data / "memory" / "g10" / "BERT_Base_256.json.gz")
    spec = {
        "family": "memory",
        "policy": "baseline",
        "workload": {"source": source},
        "hardware": "local",
        "mode": "measured",
    }
    with pytest.raises(BadInput, match=r"is a training step \(expected a model\)"):
        run(load_spec(spec))
