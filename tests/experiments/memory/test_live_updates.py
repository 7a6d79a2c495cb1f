"""Steps with other updates, parts and types, carried out under plans: bit for bit, at the simulated peak."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.interface import MemoryPolicy, PlaceTensor, machine_of, violations
from experiments.memory.simulator import Simulator
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource
from experiments.workloads.step import KINDS
from tests.experiments.configs import NO_DROPOUT

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

GPT = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 64,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": 50,
    **NO_DROPOUT,
}
CASES: dict[str, dict[str, Any]] = {
    "foreach": {"update": "foreach"},
    "fused": {"update": "fused"},
    "in-backward": {"update": "in-backward"},
    "8-bit": {"optimizer": "adamw8bit"},
    "paged": {"optimizer": "paged_adamw8bit", "update": "in-backward"},
    "adafactor": {"optimizer": "adafactor"},
    "muon": {"optimizer": "muon"},
    "galore": {"optimizer": "galore_adamw", "optimizer_rank": 8},
    "parts": {"accumulate": 2},
    "autocast": {"autocast": "bfloat16"},
}
POLICIES = ("baseline", "swap_all", "checkpoint", "zero_offload", "zero_infinity")


@pytest.mark.parametrize("case", CASES)
def test_plans_change_neither_loss_nor_weights(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.memory.live.runner import StepRunner
    from experiments.profiling.capture import trace

    monkeypatch.setattr("experiments.profiling.optimizers.paged.FEWEST", 1000)
    options = WorkloadOptions(**{"batch": 4, "sequence": 32, "optimizer": "adamw", **CASES[case]})
    traced = trace(ModelSource("gpt", config=GPT, options=options))
    local = resolve("local")
    step = with_roofline_times(traced.step, local.device)
    on = replace(machine_of(local), synchronous=True)
    plain = traced.make_inputs(0)
    with torch.no_grad():
        losses = [float(traced.graph_module(*plain)) for _ in range(2)]
    for name in POLICIES:
        knobs = {"always": True} if name.startswith("zero_") else {}
        policy = registry.create("memory", name, knobs)
        assert isinstance(policy, MemoryPolicy)
        plan = make_plan(step, on, policy, seed=0)
        assert violations(plan, step, on) == [], name
        values = traced.make_inputs(0)
        with StepRunner(traced, plan) as runner:
            assert [float(runner(values)) for _ in range(2)] == losses, name
            peak = runner.ledger.peak
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(values, plain, strict=True)), name
        assert peak == pytest.approx(Simulator(step, on).run(plan).peak_bytes, rel=1e-3), name


def test_paged_state_is_on_the_host_but_for_one_parameter_s_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from experiments.profiling.capture import capture

    monkeypatch.setattr("experiments.profiling.optimizers.paged.FEWEST", 1000)
    hardware = resolve("a100-80g")
    found = {}
    for name in ("adamw8bit", "paged_adamw8bit"):
        asked = WorkloadOptions(batch=1, sequence=32, optimizer=name, update="in-backward")
        step = with_roofline_times(capture(ModelSource("gpt", config=GPT, options=asked)), hardware.device)
        on = machine_of(hardware)
        plan = make_plan(step, on, registry.create("memory", "baseline", {}), seed=0)  # type: ignore[arg-type]
        assert violations(plan, step, on) == []
        found[name] = (step, plan, Simulator(step, on).run(plan))
    step, plan, paged = found["paged_adamw8bit"]
    state = [move.tensor for move in plan.moves if isinstance(move, PlaceTensor)]
    assert {step.tensors.kind[tensor] for tensor in state} == {KINDS.index("optimizer_state")}
    sizes = step.tensors.bytes[state]
    plain = found["adamw8bit"][2]
    assert paged.host_peak == sizes.sum()
    assert plain.peak_bytes - paged.peak_bytes >= sizes.sum() - 3 * sizes.max()
    link = hardware.device.host_link.bandwidth
    assert paged.step_time - plain.step_time >= sizes.sum() / link
