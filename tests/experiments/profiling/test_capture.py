"""A captured step is the eager step: same numbers bit for bit, same peak, every FLOP of attention."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed._tools.mem_tracker import MemTracker  # noqa: E402
from torch.nn.attention import sdpa_kernel  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.profiling.capture import Traced  # noqa: E402
from experiments.profiling.program import ATTENTION  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.step import KINDS, PHASES, Step  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402

pytestmark = pytest.mark.torch

TINY_GPT = {"batch": 2, "sequence": 16}
TINY_RESNET = {"batch": 2, "image": 32}


def zoo(name: str, **options: object) -> ModelSource:
    return ModelSource(f"zoo:{name}", zoo=name, options=WorkloadOptions(**options))  # type: ignore[arg-type]


def bytes_of(step: Step, kind: str) -> int:
    return int(step.tensors.bytes[step.tensors.kind == KINDS.index(kind)].sum())


def run_both(traced: Traced, steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    replayed, eager = traced.make_inputs(seed=3), traced.make_inputs(seed=3)
    losses: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for _ in range(steps):
        with torch.no_grad():
            losses[0].append(traced.graph_module(*replayed))
        losses[1].append(traced.eager(*eager))
    return [*losses[0], *replayed], [*losses[1], *eager]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny ops on a busy host: a second thread only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "options", "optimizer"),
    [
        *(("mlp", {"batch": 4}, optimizer) for optimizer in ("sgd", "momentum", "adam", "adamw")),
        *(("gpt2-tiny", TINY_GPT, optimizer) for optimizer in ("momentum", "adamw")),
        ("resnet18", TINY_RESNET, "momentum"),
    ],
)
def test_the_graph_is_the_eager_step_bit_for_bit(name: str, options: dict[str, int], optimizer: str) -> None:
    """Loss, parameters, optimizer state and running statistics after two steps."""
    replayed, eager = run_both(trace(zoo(name, optimizer=optimizer, **options)), steps=2)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(replayed, eager, strict=True))


@pytest.mark.parametrize("attention", ["math", "flash"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_graph_is_the_eager_step_with_every_attention_and_dtype(attention: str, dtype: str) -> None:
    traced = trace(zoo("gpt2-tiny", attention=attention, dtype=dtype, **TINY_GPT))
    replayed, eager = run_both(traced, steps=2)
    assert traced.step.facts["attention"] == attention
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(replayed, eager, strict=True))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, lr=0.01)),
        ("momentum", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
        ("adam", lambda p: torch.optim.Adam(p)),
        ("adamw", lambda p: torch.optim.AdamW(p)),
    ],
)
def test_our_optimizers_are_torchs(name: str, make) -> None:  # type: ignore[no-untyped-def]
    traced = trace(zoo("mlp", optimizer=name, batch=4))
    inputs = traced.make_inputs(seed=1)
    names = [leaf.name for leaf in traced.leaves if leaf.kind == "parameter"]
    torch.manual_seed(1)
    module = build(zoo("mlp", batch=4)).module
    optimizer = make(list(module.parameters()))
    for _ in range(3):
        with torch.no_grad():
            traced.graph_module(*inputs)
        optimizer.zero_grad()
        module(*inputs[-2:]).backward()
        optimizer.step()
    for mine, theirs in zip(inputs, dict(module.named_parameters()).values(), strict=False):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert len(names) == 6


TORCH_OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, foreach=False),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
}


def eager_peak(source: ModelSource) -> int:
    """Peak bytes of two eager steps with torch's own optimizer, counted by its own tracker under fake
    tensors.
    """
    kernel = ATTENTION.get(source.options.attention)
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        sdpa_kernel(kernel) if kernel else contextlib.nullcontext(),
    ):
        model = build(source)
        batch = [spec.empty(torch.float32, "cpu") for spec in model.inputs]
        make = TORCH_OPTIMIZERS[source.options.optimizer or ""]
        optimizer = make(model.module.parameters())
        tracker = MemTracker()
        tracker.track_external(model.module, optimizer, *batch)
        with tracker:
            for _ in range(2):
                *inputs, target = batch
                output = model.module.body(*inputs)  # a loop holds it while the backward pass runs
                model.module._loss(output, target).backward()
                del output
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
        return sum(int(device["Total"]) for device in tracker.get_tracker_snapshot("peak").values())


def test_gpt2_has_the_live_peak_that_torchs_tracker_counts() -> None:
    """Batch 8, sequence 1024, float32, AdamW: the tracker's own figure, to 1e-6; 12,368 MiB with the fused
    kernel.
    """
    source = zoo("gpt2", batch=8, sequence=1024, optimizer="adamw", attention="flash")
    step = capture(source)
    assert step.facts["parameters"] == 124_439_808
    assert step.facts["attention"] == "flash"
    assert step.live_peak == pytest.approx(eager_peak(source), rel=1e-6)
    assert round(step.live_peak / 2**20) == 12_368
    assert bytes_of(step, "optimizer_state") == 2 * 4 * 124_439_808
    assert bytes_of(step, "gradient") == 4 * 124_439_808


def test_attention_by_its_formula_has_the_live_peak_that_torchs_tracker_counts() -> None:
    """To the counters of a few bytes that torch's AdamW has for each parameter."""
    source = zoo("gpt2-tiny", batch=8, sequence=64, optimizer="adamw", attention="math")
    step = capture(source)
    assert step.facts["attention"] == "math"
    assert 0 <= eager_peak(source) - step.live_peak < 200


def test_resnet_has_the_live_peak_that_torchs_tracker_counts() -> None:
    source = zoo("resnet18", batch=8, image=64, optimizer="momentum")
    assert capture(source).live_peak == pytest.approx(eager_peak(source), rel=1e-6)


def test_a_gradient_ends_with_its_update_where_eager_keeps_it_until_zero_grad() -> None:
    """The one difference from eager, seen only where the peak lies in the optimizer: never above, within its
    bytes.
    """
    source = zoo("mlp", optimizer="adamw")
    step, eager = capture(source), eager_peak(source)
    assert eager - bytes_of(step, "gradient") < step.live_peak < eager


def test_attention_flops_are_counted_on_every_backend() -> None:
    """Per layer and direction: scores and mixing, 2 x 2 x batch x tokens^2 x width; flash recomputes the
    scores.
    """
    batch, tokens, width, layers = 2, 16, 64, 2
    steps = {name: capture(zoo("gpt2-tiny", attention=name, **TINY_GPT)) for name in ("math", "flash")}
    product = 2 * batch * tokens * tokens * width
    attention = [
        step.ops.flops[[t.startswith(("aten.bmm", "aten._scaled_dot")) for t in step.ops.target]].sum()
        for step in steps.values()
    ]
    assert attention == [layers * 6 * product, layers * 7 * product]
    assert steps["math"].facts["model_flops"] == steps["flash"].facts["model_flops"]


def test_matrix_flops_are_six_per_weight_and_token() -> None:
    """A perceptron without its first input gradient: 6 x weights x batch - 2 x first layer x batch."""
    step = capture(zoo("mlp", batch=4))
    first, rest = 784 * 512, 512 * 512 + 512 * 10
    assert step.flops == 4 * (6 * (first + rest) - 2 * first)


def test_ops_know_their_phase_and_module() -> None:
    step = capture(zoo("gpt2-tiny", **TINY_GPT))
    phases = step.ops.phase
    assert (np.diff(phases) >= 0).all() and set(phases) == {0, 1, 2}
    flash = [i for i, target in enumerate(step.ops.target) if "_scaled_dot_product" in target]
    assert [(step.ops.module[i], PHASES[phases[i]]) for i in flash] == [
        ("blocks.0.attention", "forward"),
        ("blocks.1.attention", "forward"),
        ("blocks.1.attention", "backward"),
        ("blocks.0.attention", "backward"),
    ]
    products = [
        i for i, name in enumerate(step.ops.module) if name == "blocks.0.expand" and step.ops.flops[i]
    ]
    assert [PHASES[phases[i]] for i in products] == ["forward", "backward", "backward"]
    updates = [i for i in np.flatnonzero(phases == 2) if step.ops.module[i] == "blocks.0.expand"]
    assert len(updates) == 2 * 9  # weight and bias, nine operations of AdamW each


def test_tensors_are_allocations_and_in_place_ops_write_what_they_read() -> None:
    step = capture(zoo("resnet18", optimizer="sgd", **TINY_RESNET))
    for op in np.flatnonzero(step.ops.view):
        assert not len(step.outputs[op])
    relu = next(i for i, target in enumerate(step.ops.target) if target == "aten.relu_.default")
    assert step.inputs[relu].tolist() == step.outputs[relu].tolist()
    norm = next(i for i, target in enumerate(step.ops.target) if "native_batch_norm.default" in target)
    written = [step.tensors.name[t] for t in step.outputs[norm]]
    assert [name for name in written if name.endswith(("running_mean", "running_var"))] == [
        "body.features.0.1.running_mean",
        "body.features.0.1.running_var",
    ]
    assert bytes_of(step, "parameter") == bytes_of(step, "gradient") == 4 * 11_689_512


def test_a_graphs_nodes_are_the_steps_ops_and_tensors() -> None:
    """What a runner of plans relies on."""
    traced = trace(zoo("gpt2-tiny", **TINY_GPT))
    calls = [
        n.name
        for n in traced.graph_module.graph.nodes
        if n.op == "call_function" and n.name in traced.tensor_of
    ]
    assert [name for name in calls if not name.startswith("getitem")] == list(traced.step.ops.name)
    placeholders = [n for n in traced.graph_module.graph.nodes if n.op == "placeholder"]
    for leaf, node in zip(traced.leaves, placeholders, strict=True):
        (tensor,) = traced.tensor_of[node.name]
        assert (traced.step.tensors.name[tensor], KINDS[traced.step.tensors.kind[tensor]]) == (
            leaf.name,
            leaf.kind,
        )


def test_inference_is_one_forward_pass_without_state() -> None:
    traced = trace(zoo("resnet18", training=False, **TINY_RESNET))
    assert set(traced.step.ops.phase) == {0}
    assert bytes_of(traced.step, "optimizer_state") == bytes_of(traced.step, "gradient") == 0
    replayed, eager = run_both(traced, steps=1)
    assert replayed[0].shape == (2, 1000) and torch.equal(replayed[0], eager[0])


def test_pure_half_precision_halves_every_tensor() -> None:
    single, half = (
        capture(zoo("gpt2-tiny", precision=precision, **TINY_GPT)) for precision in ("fp32", "bf16-pure")
    )
    assert bytes_of(half, "parameter") * 2 == bytes_of(single, "parameter")
    assert bytes_of(half, "optimizer_state") * 2 == bytes_of(single, "optimizer_state")


def test_a_model_larger_than_this_test_may_use_is_captured() -> None:
    """GPT-2 XL needs 60 GiB; the process grows by less than one."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = capture(zoo("gpt2-xl", training=False))
    assert step.facts["parameters"] == 1_557_611_200
    assert step.live_peak > 6 * 2**30
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 2**30


def test_an_op_without_the_asked_dtype_is_bad_input() -> None:
    """torch multiplies Mixtral's experts as groups, in bfloat16 only."""
    pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = {"model_type": "mixtral", "num_key_value_heads": 2, "vocab_size": 256, **sizes}
    options = WorkloadOptions(batch=1, sequence=8, dtype="float32")
    with pytest.raises(BadInput, match="mixtral: cannot run with dtype float32: Expected inputs of BF16"):
        capture(ModelSource("mixtral", config=config, options=options))
