"""Captured steps with compiled kernels, against what torch's own compiler saves and schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.memory.interface.activations import saved_activations
from experiments.profiling import cache, timing
from experiments.profiling.capture import capture, trace
from experiments.profiling.compiled_parts import repeated_blocks
from experiments.profiling.program import program
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step
from tests.experiments.profiling.test_lengthened import content

pytestmark = pytest.mark.torch

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
OPTIONS = WorkloadOptions(batch=4, sequence=32, kernels="compiled", optimizer="sgd")


def gpt(options: WorkloadOptions = OPTIONS, **sizes: int) -> ModelSource:
    return ModelSource("zoo:gpt2-tiny", zoo="gpt2-tiny", options=options, sizes=sizes)


@pytest.fixture(params=["gpt2", "llama"])
def source(request: Any) -> ModelSource:
    if request.param == "gpt2":
        return gpt()
    pytest.importorskip("transformers")
    return ModelSource("llama", config=LLAMA, options=OPTIONS)


def saved_by_torch(source: ModelSource) -> Counter[int]:
    """Bytes of the tensors that torch saves for the backward pass with blocks and loss compiled: its own
    tracing, decompositions and partitioner, on real tensors; arguments of the step left out.
    """
    made = program(source)
    values = trace(replace(source, options=replace(source.options, kernels="auto"))).make_inputs(0)
    model: Any = made.model.module
    for block in repeated_blocks(model.body):
        block.compile(backend="aot_eager_decomp_partition")
    model._loss = torch.compile(model._loss, backend="aot_eager_decomp_partition")
    given = {value.untyped_storage().data_ptr() for value in values}
    saved: dict[int, Any] = {}

    def keep(value: Any) -> Any:
        storage = value.untyped_storage()
        if storage.data_ptr() not in given:
            saved[storage.data_ptr()] = storage  # kept alive, so that no address is given out twice
        return value

    count = len(made.parameters)
    leaves = [value.detach().requires_grad_() for value in values[:count]]
    own = {**dict(zip(made.parameters, leaves, strict=True))}
    own |= dict(zip(made.buffers, values[count + len(made.state) :], strict=False))
    batch = tuple(values[-len(made.model.batch(True)) :])
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        torch.func.functional_call(model, own, batch)
    return Counter(storage.nbytes() for storage in saved.values())


def test_a_compiled_step_keeps_between_passes_what_torch_compile_saves(source: ModelSource) -> None:
    step = trace(source).step
    loss = 4  # bytes of the loss itself, which the backward pass begins with
    ours = Counter(saved.bytes for saved in saved_activations(step))
    assert ours - saved_by_torch(source) == Counter({loss: 1})
    assert not saved_by_torch(source) - ours


def kernels_by_inductor(source: ModelSource, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each generated kernel of the compiled parts moves, by Inductor's own lowering and scheduler
    (no code is generated).
    """
    from torch._inductor import compile_fx
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

    from experiments.compilation.live.backends.kernels import GENERATED, watch_kernels
    from experiments.profiling import compiled_parts

    with watch_kernels() as table:
        plain = compiled_parts._Compiler._label

        def schedule(self: Any, gm: Any, example_inputs: Any) -> Any:
            inputs = example_inputs
            run = plain(self, gm, inputs)
            copy = torch.fx.GraphModule(gm, gm.graph)
            compile_fx.view_to_reshape(copy)
            mode = torch._guards.detect_fake_mode(inputs)
            with disable_proxy_modes_tracing(), V.set_fake_mode(mode), DebugContext():
                lowering = GraphLowering(copy, example_inputs=inputs)
                with V.set_graph_handler(lowering):
                    lowering.run(*inputs)
                    lowering._update_scheduler()
            return run

        monkeypatch.setattr(compiled_parts._Compiler, "_label", schedule)
        trace(source)
    return sorted(kernel.bytes for kernel in table.kernels if kernel.kind == GENERATED)


def kernel_bytes(step: Step) -> list[int]:
    """Bytes that each generated kernel of the first block and of the loss moves."""
    return sorted(
        int(moved)
        for module, target, moved in zip(step.ops.module, step.ops.target, step.ops.bytes_moved, strict=True)
        if module in ("blocks.0", "loss") and target.startswith("fused")
    )


def test_kernels_are_those_that_inductor_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Counter(kernel_bytes(trace(gpt()).step))
    theirs = Counter(kernels_by_inductor(gpt(), monkeypatch))
    # A CPU puts the gradients of query, key and value side by side in three kernels, divides the sum of the
    # loss, four bytes, in one of its own, and its attention wants its log-sums in another order.
    assert dict(ours - theirs) == {196608: 1, 133640: 1}
    assert dict(theirs - ours) == {65536: 3, 133644: 1, 20: 1, 4096: 1}


def targets(step: Step, phase: str) -> list[str]:
    return [step.ops.target[op] for op in range(len(step.ops)) if step.phase_of(op) == phase]


def test_a_pointwise_chain_leaves_no_temporary() -> None:
    eager = trace(gpt(replace(OPTIONS, kernels="eager"))).step
    compiled = trace(gpt()).step
    assert compiled.ops.flops.sum() == eager.ops.flops.sum()
    assert compiled.ops.bytes_moved.sum() < eager.ops.bytes_moved.sum()
    assert compiled.live_peak < eager.live_peak
    assert compiled.persistent_bytes == eager.persistent_bytes
    assert compiled.facts["kernels"] == "compiled"
    assert targets(compiled, "optimizer") == targets(eager, "optimizer")


def test_auto_is_the_eager_step_to_the_byte_and_shares_its_cache() -> None:
    auto, eager = (gpt(replace(OPTIONS, kernels=kernels)) for kernels in ("auto", "eager"))
    assert content(trace(auto).step) == content(trace(eager).step)
    assert cache.key(auto) == cache.key(eager) != cache.key(gpt())


def test_compiled_blocks_are_counted_on() -> None:
    sizes = {"layers": 7, "width": 32, "heads": 2, "vocabulary": 64, "positions": 16}
    source = ModelSource("zoo:gpt2", zoo="gpt2", sizes=sizes, options=replace(OPTIONS, batch=2, sequence=16))
    ours, whole = content(capture(source)), content(trace(source).step)
    names = {"ops.name", "tensors.name"}  # a longer capture counts ops that fusion then takes away
    assert [name for name in whole if ours[name] != whole[name] and name not in names] == []


def test_a_model_without_repeated_blocks_is_compiled_as_a_whole() -> None:
    options = replace(OPTIONS, sequence=None, image=None)
    step = trace(ModelSource("zoo:mlp", zoo="mlp", options=options)).step
    activations = [target for target in targets(step, "forward") if "relu" in target]
    assert activations == ["fused(aten.relu.default)"] * 2


def test_gradients_of_picked_rows_are_put_into_zeros_in_place() -> None:
    sizes = {"tables": 2, "rows": 5000, "width": 8}
    options = replace(OPTIONS, sequence=None)
    eager, compiled = (
        trace(
            ModelSource("zoo:dlrm", zoo="dlrm", sizes=sizes, options=replace(options, kernels=kernels))
        ).step
        for kernels in ("eager", "compiled")
    )
    table = 5000 * 8 * 4
    made = [int(b) for b, own in zip(compiled.tensors.bytes, compiled.persistent, strict=True) if not own]
    assert made.count(table) == 2
    assert compiled.live_peak <= eager.live_peak


@pytest.mark.parametrize("kernels", ["float8", "fused"])
def test_kernels_that_no_capture_has_are_refused(kernels: str) -> None:
    source = gpt(replace(OPTIONS, kernels=kernels))
    for ask in (trace, cache.key):
        with pytest.raises(BadInput, match=f"'{kernels}'.*closed form.*captured"):
            ask(source)


def test_compiled_kernels_are_not_measured_op_by_op() -> None:
    from experiments.memory.live.measure import Session

    for ask in (timing.profile, Session):
        with pytest.raises(BadInput, match="simulated"):
            ask(gpt())
