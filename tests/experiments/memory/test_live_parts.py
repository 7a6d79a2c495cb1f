"""What measured runs are made of: the codec, the file, ops on the host, and autograd's saved tensors beside
swap_all.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.core import registry
from experiments.core.options import WorkloadOptions
from experiments.core.spec import load_spec
from experiments.hardware import resolve
from experiments.memory.experiment import make_plan
from experiments.memory.interface import (
    Compress,
    Decompress,
    MemoryPlan,
    MemoryPolicy,
    Offload,
    OnHost,
    Prefetch,
    machine_of,
)
from experiments.memory.simulator import Simulator
from experiments.run import run
from experiments.sources import with_roofline_times
from experiments.workloads.model import ModelSource

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LOCAL = resolve("local")


@pytest.fixture(scope="module")
def traced():
    from experiments.profiling.capture import trace

    return trace(ModelSource("zoo:mlp", zoo="mlp", options=WorkloadOptions(batch=256, optimizer="adam")))


def runner_of(traced, moves):
    from experiments.memory.live.runner import StepRunner

    return StepRunner(traced, MemoryPlan(tuple(moves)))


def activation(traced) -> tuple[int, int, int]:
    """A rectifier's output that waits for the backward pass: (tensor, its last forward op, its first backward
    op).
    """
    step = traced.step
    op = step.ops.target.index("aten.relu.default")
    tensor = int(step.outputs[op][0])
    uses = step.uses[tensor].tolist()
    last, back = max(pairwise(uses), key=lambda gap: gap[1] - gap[0])
    return tensor, last, back


@pytest.mark.parametrize("word", [1, 2, 4, 8])
def test_the_codec_keeps_every_bit_and_stores_a_bit_a_word_and_the_words_that_are_not_zero(word):
    from experiments.memory.live.codec import pack, unpack

    words = 200_000
    plain = torch.zeros(words * word, dtype=torch.uint8)
    plain.view(-1, word)[::4] = 128  # every fourth word; as floats these are negative zeros and odd values
    packed = pack(plain, word)
    assert packed.numel() == words // 8 + words // 4 * word
    back = torch.full_like(plain, 7)
    unpack(packed, word, back)
    assert torch.equal(back, plain)


def test_negative_zero_is_not_zero_to_the_codec():
    from experiments.memory.live.codec import pack, unpack

    plain = torch.tensor([0.0, -0.0, float("nan"), 1.0]).view(torch.uint8)
    packed, back = pack(plain, 4), torch.empty_like(plain)
    unpack(packed, 4, back)
    assert packed.numel() == 8 + 3 * 4
    assert torch.equal(back, plain)


def test_a_file_has_no_name_and_keeps_each_tensor_in_its_place():
    from experiments.memory.live.files import Arena

    arena = Arena()
    arena.write(0, torch.arange(100, dtype=torch.uint8))
    arena.write(1, torch.full((50,), 9, dtype=torch.uint8))
    arena.write(0, torch.arange(100, 200, dtype=torch.uint8))
    back = torch.zeros(100, dtype=torch.uint8)
    arena.read(0, back)
    assert back.tolist() == list(range(100, 200))
    back.untyped_storage().resize_(0)  # what was read or written may still leave the device
    with pytest.raises(OSError, match="the file ends within tensor 1"):
        arena.read(1, torch.zeros(500, dtype=torch.uint8))
    arena.close()


def test_a_copy_that_is_kept_need_not_be_sent_again(traced):
    tensor, last, back = activation(traced)
    step, inputs = traced.step, traced.make_inputs(0)
    size = int(step.tensors.bytes[tensor])
    between = (last + back) // 2
    moves = [
        Offload(last + 1, tensor, last),
        Prefetch(between, tensor, keep=True),
        Offload(between + 1, tensor, between),
        Prefetch(back, tensor),
    ]
    with runner_of(traced, moves) as runner:
        runner(inputs)
        assert (runner.copies.bytes_out, runner.copies.bytes_back) == (size, 2 * size)
        assert runner.copies.copy_ledger.peaks == {"host": size, "storage": 0}
        assert runner.copies.copy_ledger.held == {"host": 0, "storage": 0}


def test_a_compressed_tensor_takes_its_packed_bytes_on_the_device_and_beside_it(traced):
    tensor, last, back = activation(traced)
    step = traced.step
    moves = [
        Compress(last + 1, tensor, 2.0, 0.0),
        Offload(last + 1, tensor, last),
        Prefetch(back, tensor),
        Decompress(back, tensor, 0.0),
    ]
    plain = runner_of(traced, [])(traced.make_inputs(0))
    with runner_of(traced, moves) as runner:
        assert torch.equal(runner(traced.make_inputs(0)), plain)
        size, ratio = int(step.tensors.bytes[tensor]), runner.copies.ratios[tensor]
        assert runner.copies.bytes_out == pytest.approx(size / ratio)
        assert 1.5 < ratio < 2.5  # about half of a rectifier's output is zero


def test_a_compressing_copy_engine_sends_fewer_bytes(traced):
    tensor, last, back = activation(traced)
    moves = [Offload(last + 1, tensor, last, "storage", 2.0), Prefetch(back, tensor)]
    plain = runner_of(traced, [])(traced.make_inputs(0))
    with runner_of(traced, moves) as runner:
        assert torch.equal(runner(traced.make_inputs(0)), plain)
        size = int(traced.step.tensors.bytes[tensor])
        assert runner.copies.bytes_out == round(size / runner.copies.ratios[tensor]) < size


def test_zero_offload_updates_on_the_host_and_ends_bitwise_with_the_simulated_bytes(traced):
    from experiments.memory.live.runner import StepRunner

    step = with_roofline_times(traced.step, LOCAL.device)
    on = replace(machine_of(LOCAL), synchronous=True)
    policy = registry.create("memory", "zero_offload", {"always": True})
    assert isinstance(policy, MemoryPolicy)
    plan = make_plan(step, on, policy, 0)
    assert any(isinstance(move, OnHost) for move in plan.moves)
    expected, inputs = traced.make_inputs(0), traced.make_inputs(0)
    with torch.no_grad():
        losses = [float(traced.graph_module(*expected)) for _ in range(5)]
    with StepRunner(traced, plan) as runner:
        assert [float(runner(inputs)) for _ in range(5)] == losses
        assert any(value.untyped_storage().nbytes() == 0 for value in inputs), "parameters rest on the host"
        peak, host = runner.ledger.peak, runner.copies.copy_ledger.peaks["host"]
    assert all(torch.equal(ours, plain) for ours, plain in zip(inputs, expected, strict=True))
    simulated = Simulator(step, on).run(plan)
    assert peak == pytest.approx(simulated.peak_bytes, rel=1e-3)
    assert host == simulated.host_peak


def test_swap_all_moves_the_bytes_that_autograd_saves():
    """Autograd names every tensor that it saves (as for ``save_on_cpu``); each storage counts once,
    persistent ones not.
    """
    from experiments.memory.live.runner import StepRunner
    from experiments.profiling.capture import trace

    traced = trace(ModelSource("zoo:mlp", zoo="mlp", options=WorkloadOptions(batch=256, optimizer="sgd")))
    step = with_roofline_times(traced.step, LOCAL.device)
    policy = registry.create("memory", "swap_all", {})
    assert isinstance(policy, MemoryPolicy)
    plan = make_plan(step, replace(machine_of(LOCAL), synchronous=True), policy, 0)
    with StepRunner(traced, plan) as runner:
        runner(traced.make_inputs(0))
        ours = runner.copies.bytes_out
    inputs = traced.make_inputs(0)
    persistent = {value.untyped_storage()._cdata for value in inputs}
    saved: dict[int, int] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in persistent:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        traced.eager(*inputs)
    assert ours == pytest.approx(sum(saved.values()), rel=0.02)


def test_a_measured_run_may_plan_for_less_memory_than_this_host_has(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    spec = {
        "family": "memory",
        "policy": "flashneuron",
        "workload": {"source": "zoo:gpt2-tiny", "options": {"batch": 8, "sequence": 64}},
        "hardware": {"device": "local", "overrides": {"memory_bytes": 6.5e6}},
        "mode": "measured",
    }
    done = run(load_spec(spec))
    seen = {name: entry["value"] for name, entry in done.metrics.items()}
    assert done.status == "ok" and seen["max_parameter_difference"] == 0
    assert seen["peak_memory"] <= 6_500_000 + 20
    assert seen["storage_peak_memory"] > 0 and seen["offloaded_bytes"] == seen["prefetched_bytes"] > 0
    assert done.provenance["capacity"] == 6_500_000
    assert done.provenance["addresses"].startswith("torch's own")
