"""Combined: how much of each part a plan takes, and that it is never slower than one part alone."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from experiments.core import jsonio, registry
from experiments.core.errors import BadInput, Infeasible
from experiments.core.policy import MINUTES
from experiments.core.spec import WorkloadOptions, load_workload
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.experiment.planned import splitter
from experiments.memory.interface import (
    Drop,
    MemoryMachine,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    OnHost,
    PlaceTensor,
    Prefetch,
    ReactiveMemoryPolicy,
    Recompute,
    machine_of,
    violations,
)
from experiments.memory.planning.host_update import update_of
from experiments.memory.policies.combined import Combined
from experiments.memory.policies.combined.copies import Absence, begin_returns, lightened, longest_idle
from experiments.memory.policies.combined.recomputation import batch_passes
from experiments.memory.policies.combined.update_parts import parts_of
from experiments.memory.simulator import MemorySimulation, Simulator
from experiments.sources import model_step, step_of
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step
from tests.experiments.memory.steps import Row, machine, make_step, plan_of
from tests.experiments.memory.test_microbatch import STEP as TWO_OPS
from tests.experiments.memory.test_zero_offload import LAYERS, ROWS, SIZE, STEP, network
from tests.variants import variants

LLAMA_7B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}


# --- by hand ------------------------------------------------------------------------------------------------


def carried_out(step: Step, on: MemoryMachine) -> tuple[MemoryPlan, MemorySimulation]:
    plan = plan_of(Combined(), step, on)
    whole = Simulator(step, on).split(plan.splits) if plan.splits > 1 else step
    assert violations(plan, whole, on) == []
    return plan, Simulator(step, on).run(plan)


def test_where_everything_fits_nothing_is_done() -> None:
    plan, _ = carried_out(STEP, machine(STEP.live_peak))
    assert (plan.moves, plan.splits) == ((), 1)
    assert "everything fits" in plan.notes["reason"]


def test_the_host_updates_as_few_parameters_as_the_device_lacks_room_for() -> None:
    # An update takes a tenth of a second on the device, a quarter on the host.
    slow_host = replace(STEP, facts={"parameters": 4e9, "batch": 1})
    plan, seen = carried_out(slow_host, machine(STEP.live_peak - 2 * SIZE, bandwidth=1e6))
    # Two states of 1,000 bytes each: one of the four parameters makes the room.
    placed = {STEP.tensors.name[move.tensor] for move in plan.moves if isinstance(move, PlaceTensor)}
    assert placed - {"w0"} == {"m0", "v0"}
    assert sum(isinstance(move, OnHost) for move in plan.moves) == 1
    assert seen.step_time == pytest.approx(8.3, abs=0.01)
    assert "1 of 4 parameters" in plan.notes["chosen"]


def test_a_slow_link_has_activations_run_again_a_fast_one_has_them_leave() -> None:
    rows: list[Row] = [
        *((f"f{i}", "forward", 1.0, ([f"x{i - 1}"] if i else []), (f"x{i}",)) for i in range(6)),
        *((f"b{i}", "backward", 1.0, (f"x{i}", f"g{i + 1}"), (f"g{i}",)) for i in reversed(range(6))),
    ]
    step = make_step(rows, {**{f"x{i}": 1000 for i in range(6)}, **{f"g{i}": 10 for i in range(7)}})
    for bandwidth, kind in ((1.0, Recompute), (1e6, Offload)):
        plan, seen = carried_out(replace(step, facts={"batch": 1}), machine(5100, bandwidth=bandwidth))
        assert {type(move) for move in plan.moves} & {Recompute, Offload} == {kind}
        assert seen.step_time == pytest.approx(12 + (kind is Recompute), abs=0.01)


def test_parts_of_the_batch_where_nothing_else_helps() -> None:
    step = replace(TWO_OPS, facts={"batch": 8})
    plan, seen = carried_out(step, machine(262, bandwidth=1e-3))
    assert plan.splits == 4
    assert seen.peak_bytes <= 262


def test_what_fits_in_no_way_is_told_with_the_smallest_peak() -> None:
    with pytest.raises(Infeasible, match="the smallest needs") as error:
        plan_of(Combined(), STEP, machine(SIZE, bandwidth=1e6))
    assert error.value.missing is not None and error.value.missing > 0


def test_the_longest_idle_leave_first_and_only_where_bytes_lack() -> None:
    start, load = np.arange(10.0), np.full(9, 100)
    wide, narrow = Absence(1, 30, 1, 8), Absence(2, 30, 3, 6)
    assert longest_idle([narrow, wide], load, 70, start) == [wide]
    assert longest_idle([narrow, wide], load, 50, start) == [wide, narrow]
    assert lightened(load, [narrow]).tolist() == [100, 100, 100, 70, 70, 70, 100, 100, 100]


def test_ways_back_follow_each_other_on_the_link_and_wait_for_room() -> None:
    start = np.arange(11.0)
    absences = [Absence(1, 1000, 1, 8), Absence(2, 1000, 1, 9)]
    free = np.full(10, 5000)
    assert [a.back for a in begin_returns(absences, free, start, machine())] == [7, 7]
    free[:8] = 1500
    assert [a.back for a in begin_returns(absences, free, start, machine())] == [7, 8]


def test_an_update_has_a_part_for_each_parameter() -> None:
    update = update_of(STEP)
    assert update is not None
    parts = parts_of(STEP, update)
    assert [[STEP.tensors.name[t] for t in part.states] for part in parts.parts] == [
        [f"m{i}", f"v{i}"] for i in range(LAYERS)
    ]
    assert (parts.copied, parts.constant) == ({}, ())
    assert parts.first(LAYERS) == update


def test_a_state_written_after_its_parameter_belongs_to_that_parameters_part() -> None:
    """As updates with moments of few bits are: the new moment is rounded and kept when all else is done."""
    rows = [row for row in ROWS if row[1] != "optimizer"]
    for i in range(LAYERS):
        rows += [
            (f"t{i}", "optimizer", 0.1, (f"m{i}", f"g{i}"), (f"t{i}",)),
            (f"u{i}", "optimizer", 0.1, (f"w{i}", f"t{i}", f"v{i}"), (f"w{i}", f"v{i}")),
            (f"s{i}", "optimizer", 0.1, (f"t{i}",), (f"m{i}",)),
        ]
    step = network(rows)
    update = update_of(step)
    assert update is not None
    parts = parts_of(step, update)
    assert [[step.tensors.name[t] for t in part.states] for part in parts.parts] == [
        [f"m{i}", f"v{i}"] for i in range(LAYERS)
    ]
    assert (parts.copied, [len(part.ops) for part in parts.parts]) == ({}, [3] * LAYERS)
    carried_out(replace(step, facts={"batch": 1}), machine(step.live_peak - 2 * SIZE, bandwidth=1e6))


@pytest.mark.parametrize("capacity", [SIZE, 2 * SIZE + 1, 4 * SIZE - 1])
def test_a_refusal_says_what_the_smallest_plan_needs(capacity: int) -> None:
    """However much is there: a parameter, its gradient and its two states on the device."""
    one = replace(STEP, facts={"batch": 1})
    with pytest.raises(Infeasible, match=r"the smallest needs 3\.91 KiB") as error:
        plan_of(Combined(), one, machine(capacity, bandwidth=1e6))
    assert error.value.missing == 4 * SIZE - capacity
    _, seen = carried_out(one, machine(4 * SIZE, bandwidth=1e6))
    assert seen.peak_bytes == 4 * SIZE


def test_a_bad_knob_is_named() -> None:
    with pytest.raises(BadInput, match="work"):
        registry.create("memory", "combined", {"work": 0})


# --- models -------------------------------------------------------------------------------------------------

SMALL: dict[str, dict[str, object]] = {
    "zoo:gpt2-tiny": {"batch": 8, "optimizer": "adamw"},
    "zoo:resnet18": {"batch": 4, "image": 64, "optimizer": "momentum"},
    "zoo:mlp": {"batch": 4096, "optimizer": "adam"},
}
HARDWARE = resolve("v100-16g")
#: How little counts as none: the simulated times of two ways to the same plan differ by sums of floats.
NOTHING = 1e-9


@functools.cache
def small(source: str) -> tuple[Step, Any]:
    pytest.importorskip("torch")
    workload = load_workload({"source": source, "options": SMALL[source]})
    step, loaded = step_of(workload, HARDWARE.device)
    return step, splitter(step, loaded.value, HARDWARE.device, lambda s: model_step(s, HARDWARE.device))


def seconds(name: str, source: str, on: MemoryMachine) -> float:
    """The step's time under the policy's plan; infinite where it has none that fits."""
    step, split = small(source)
    policy = registry.create("memory", name, {})
    assert isinstance(policy, MemoryPolicy)
    reactive = policy if isinstance(policy, ReactiveMemoryPolicy) else None
    try:
        plan = make_plan(step, on, policy, 0, split)
        return Simulator(step, on, split).steady(plan, reactive).step_time
    except Infeasible:
        return float("inf")


SINGLES = sorted(
    name
    for name in registry.family_policies("memory")
    if name != Combined.name and registry.policy_class("memory", name).effort != MINUTES
)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "share"), variants(("zoo:mlp", 0.75), ("zoo:resnet18", 0.75), ("zoo:gpt2-tiny", 0.5), kept=2)
)
def test_no_single_policy_is_faster(source: str, share: float) -> None:
    step, _ = small(source)
    on = replace(machine_of(HARDWARE), capacity=int(share * step.live_peak))
    ours = seconds("combined", source, on)
    times = {name: seconds(name, source, on) for name in SINGLES}
    assert {name: time for name, time in times.items() if time < ours * (1 - NOTHING)} == {}, ours


@pytest.mark.torch
def test_moves_and_micro_batches_compose_bit_for_bit() -> None:
    torch = pytest.importorskip("torch")
    from experiments.memory.live.runner import StepRunner
    from experiments.profiling.capture import trace
    from experiments.sources import with_roofline_times

    source = ModelSource(
        "zoo:gpt2-tiny",
        zoo="gpt2-tiny",
        options=WorkloadOptions(batch=8, sequence=64, attention="math", optimizer="adamw"),
    )
    local = resolve("local")
    step = with_roofline_times(trace(source).step, local.device)
    # As much as one op needs: nothing but all parts together fits.
    on = replace(machine_of(local), capacity=int(step.op_need.max()), synchronous=True)

    @functools.cache
    def split(parts: int) -> Step:
        return with_roofline_times(trace(replace(source, micro_batches=parts)).step, local.device)

    plan = make_plan(step, on, Combined(work=300_000), 0, split)
    kinds = {type(move) for move in plan.moves}
    assert plan.splits > 1 and kinds >= {Drop, Recompute, OnHost, PlaceTensor, Prefetch, Offload}
    traced = trace(replace(source, micro_batches=plan.splits))
    assert violations(plan, split(plan.splits), on) == []
    plain, ours = traced.make_inputs(0), traced.make_inputs(0)
    with torch.no_grad():
        losses = [float(traced.graph_module(*plain)) for _ in range(3)]
    with StepRunner(traced, plan) as runner:
        assert [float(runner(ours)) for _ in range(3)] == losses
        peak = runner.ledger.peak
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    assert peak == pytest.approx(Simulator(split(plan.splits), on).run(plan).peak_bytes, rel=1e-3)


@pytest.mark.torch
def test_the_passes_of_each_micro_batch_recompute_alone() -> None:
    step, split = small("zoo:gpt2-tiny")
    whole, parts = batch_passes(step), batch_passes(split(4))
    assert [len(whole), len(parts)] == [1, 4]
    assert len({len(one.ranking(1)) for one in parts}) == 1
    ends = [one.begin for one in parts[1:]]
    for one, end in zip(parts, ends, strict=False):
        assert all(one.begin <= move.at < end for move in one.recompute(1, 8))


@pytest.mark.torch
def test_llama_7b_trains_on_24_gb_below_1_28_of_ideal(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_bytes(jsonio.canonical(LLAMA_7B).encode())
    options = {"batch": 8, "sequence": 2048, "optimizer": "adamw"}
    workload = load_workload({"source": str(tmp_path / "config.json"), "options": options})
    hardware = resolve("rtx-4090-24g")
    step, _ = step_of(workload, hardware.device)
    on = machine_of(hardware)
    plan = make_plan(step, on, Combined(), 0)
    seen = Simulator(step, on).steady(plan)
    assert violations(plan, step, on) == []
    assert seen.peak_bytes <= on.capacity == 24 * 2**30
    assert seen.step_time < 1.28 * step.seconds
    single = registry.create("memory", "zero_infinity", {"checkpoint": True})
    assert isinstance(single, MemoryPolicy)
    assert seen.step_time < Simulator(step, on).steady(make_plan(step, on, single, 0)).step_time
    assert "parameters pass through the device" in plan.notes["chosen"]
