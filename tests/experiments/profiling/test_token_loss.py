"""A language model's loss by chunks: a plain script's bit for bit, in the memory that its form needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from experiments.core import registry  # noqa: E402
from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.hardware import resolve  # noqa: E402
from experiments.memory.interface import machine_of  # noqa: E402
from experiments.memory.live.runner import StepRunner  # noqa: E402
from experiments.memory.simulator import Simulator  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.models.parts import strip_wrappers  # noqa: E402
from experiments.profiling.program import real_inputs  # noqa: E402
from experiments.sources import with_roofline_times  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.step import PHASES, Step  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.configs import NO_DROPOUT  # noqa: E402
from tests.experiments.memory.steps import plan_of  # noqa: E402
from tests.experiments.profiling.test_lengthened import content  # noqa: E402

pytestmark = pytest.mark.torch

WORDS, BATCH, TOKENS = 203, 3, 10
GPT2 = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": WORDS,
    **NO_DROPOUT,
}
UNTIED = {**GPT2, "tie_word_embeddings": False}
ROWS = BATCH * TOKENS
#: 30 tokens in 7 parts: 5 5 4 4 4 4 4.
CHUNKS = 7
HEAD = ("lm_head", "loss")
PURE = {"dtype": "bfloat16", "precision": "bf16-pure"}
FULL = {"dtype": "float32"}

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def source(config: dict[str, Any], **options: Any) -> ModelSource:
    known = {"batch": BATCH, "sequence": TOKENS, **options}
    return ModelSource(config["model_type"], config=config, options=WorkloadOptions(**known))


def whole(model: nn.Module, states: Tensor, target: Tensor) -> Tensor:
    loss = F.cross_entropy(model.lm_head(states).float(), target)
    loss.backward()
    return loss


def loss_by_chunks(model: nn.Module, states: Tensor, target: Tensor) -> Tensor:
    """torchtune's loop, without its compiler: every chunk in float32, their sum over all tokens."""
    total: Any = 0.0
    for part, words in zip(states.tensor_split(CHUNKS), target.tensor_split(CHUNKS), strict=True):
        total = total + F.cross_entropy(model.lm_head(part).float(), words, reduction="sum")
    loss = total / ROWS
    loss.backward()
    return loss  # type: ignore[no-any-return]


def loss_with_head(model: nn.Module, states: Tensor, target: Tensor) -> Tensor:
    """Each chunk forward and backward before the next: the head's gradient adds up from the first on."""
    inner = states.detach().requires_grad_()
    total: Any = 0.0
    for part, words in zip(inner.tensor_split(CHUNKS), target.tensor_split(CHUNKS), strict=True):
        loss = F.cross_entropy(model.lm_head(part).float(), words, reduction="sum")
        (loss / ROWS).backward()
        total = total + loss.detach()
    states.backward(inner.grad)
    return total / ROWS  # type: ignore[no-any-return]


def script(
    config: dict[str, Any], start: dict[str, Tensor], batch: list[Tensor], loss: Loss, steps: int = 3
) -> Any:
    """Three steps of a plain training loop: losses and weights by name."""
    given = transformers.AutoConfig.for_model(**config, attn_implementation="sdpa", use_cache=False)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(given, name, 0.0)
    model = transformers.AutoModelForCausalLM.from_config(given)
    model = model.to(next(iter(start.values())).dtype).train()
    model.load_state_dict(start, strict=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        states = model.base_model(batch[0]).last_hidden_state
        losses.append(loss(model, states.flatten(0, 1), batch[1].flatten()).detach())
        optimizer.step()
    return losses, dict(model.named_parameters())


@pytest.mark.parametrize("precision", [FULL, PURE], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("config", [GPT2, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({"logits": "float32"}, whole),
        ({"loss": "chunked", "loss_chunks": CHUNKS}, loss_by_chunks),
        ({"loss": "fused", "loss_chunks": CHUNKS}, loss_with_head),
    ],
    ids=["float32-logits", "chunked", "fused"],
)
def test_every_loss_is_a_plain_scripts_bit_for_bit(
    config: dict[str, Any], precision: dict[str, Any], options: dict[str, Any], plain: Loss
) -> None:
    traced = trace(source(config, optimizer="sgd", **precision, **options))
    ours = traced.make_inputs()
    names = [strip_wrappers(leaf.name) for leaf in traced.leaves]
    start = {name: value.clone() for name, value in zip(names, ours, strict=True)}
    losses, expected = script(config, start, ours[-2:], plain)
    with torch.no_grad():
        found = [traced.graph_module(*ours) for _ in losses]
    assert [float(loss) for loss in found] == [float(loss) for loss in losses]
    updated = dict(zip(names, ours, strict=True))
    for name, value in expected.items():
        assert torch.equal(updated[name], value.detach()), name


def gradients(options: dict[str, Any]) -> dict[str, Tensor]:
    asked = source(UNTIED, dtype="float64", **options)
    torch.manual_seed(0)
    module = build(asked).module.double()
    module(*real_inputs(asked, 0)[-2:]).backward()
    return {name: value.grad for name, value in module.named_parameters() if value.grad is not None}


@pytest.mark.parametrize("loss", ["chunked", "fused"])
def test_gradients_by_chunks_are_those_of_the_whole_loss(loss: str) -> None:
    expected, found = gradients({}), gradients({"loss": loss, "loss_chunks": CHUNKS})
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-15)


def logits_of(step: Step) -> dict[int, str]:
    """Tensors with a column for each word of the vocabulary, and their types."""
    shapes = zip(step.tensors.shape, step.tensors.dtype, step.persistent.tolist(), strict=True)
    return {
        number: dtype
        for number, (shape, dtype, kept) in enumerate(shapes)
        if not kept and len(shape) > 1 and shape[-1] == WORDS
    }


def most_alive(step: Step, tensors: list[int]) -> int:
    """Bytes of ``tensors`` at the op where most of them live."""
    first, last = dict[int, int](), dict[int, int]()
    for op in range(len(step.ops)):
        for tensor in {*step.inputs[op].tolist(), *step.outputs[op].tolist()} & set(tensors):
            first.setdefault(tensor, op)
            last[tensor] = op
    sizes = step.tensors.bytes
    return max(
        sum(int(sizes[tensor]) for tensor in first if first[tensor] <= op <= last[tensor])
        for op in range(len(step.ops))
    )


def test_chunked_keeps_16_bit_logits_and_float32_of_one_chunk() -> None:
    step = capture(source(GPT2, **PURE, loss="chunked", loss_chunks=CHUNKS))
    logits = logits_of(step)
    halves = [tensor for tensor, dtype in logits.items() if dtype == "bfloat16"]
    wide = [tensor for tensor, dtype in logits.items() if dtype == "float32"]
    assert most_alive(step, wide) == 2 * 4 * 5 * WORDS
    # A chunk's 16-bit gradient comes when its logits have been read for the last time.
    assert most_alive(step, halves) == 2 * ROWS * WORDS


def test_fused_never_has_logits_of_more_than_one_chunk() -> None:
    step = capture(source(GPT2, **PURE, loss="fused", loss_chunks=CHUNKS))
    logits = logits_of(step)
    assert {step.tensors.shape[tensor][0] for tensor in logits} == {4, 5}
    # In bytes a word: two in float32 or one of those and the 16-bit logits or gradient.
    assert most_alive(step, list(logits)) == 8 * 5 * WORDS


def test_fused_begins_the_backward_pass() -> None:
    """So no policy takes gradients for activations that the forward pass could recompute."""
    step = capture(source(GPT2, loss="fused"))
    phases = [PHASES[phase] for phase in step.ops.phase]
    of_the_loss = {phase for phase, name in zip(phases, step.ops.module, strict=True) if name in HEAD}
    assert of_the_loss == {"backward"}
    assert phases == sorted(phases, key=PHASES.index)


@pytest.mark.parametrize("loss", ["chunked", "fused"])
def test_a_plan_carries_a_loss_by_chunks_out_bit_for_bit_in_the_simulated_memory(loss: str) -> None:
    traced = trace(source(GPT2, loss=loss, loss_chunks=CHUNKS))
    local = resolve("local")
    on = replace(machine_of(local), synchronous=True)
    step = with_roofline_times(traced.step, local.device)
    plan = plan_of(registry.create("memory", "checkpoint", {}), step, on)
    runner, ours, plain = StepRunner(traced, plan), traced.make_inputs(), traced.make_inputs()
    with torch.no_grad():
        assert [float(runner(ours)) for _ in range(3)] == [
            float(traced.graph_module(*plain)) for _ in range(3)
        ]
    assert all(torch.equal(one, other) for one, other in zip(ours, plain, strict=True))
    assert runner.ledger.peak == pytest.approx(Simulator(step, on).run(plan).peak_bytes, rel=1e-3)


def test_a_float32_copy_of_the_logits_is_memory() -> None:
    """Of 16-bit logits four tensors live at once; where the model gives float32 they are twice as large."""
    plain, wide = (capture(source(GPT2, **PURE, **more)) for more in ({}, {"logits": "float32"}))
    assert most_alive(plain, list(logits_of(plain))) == 4 * 2 * ROWS * WORDS
    assert most_alive(wide, list(logits_of(wide))) == 4 * 4 * ROWS * WORDS


def test_a_frozen_head_has_no_gradient_made() -> None:
    options = {**PURE, "loss": "fused", "loss_chunks": CHUNKS}
    trained, frozen = (capture(source(UNTIED, **options, frozen=name)) for name in ("", "lm_head.*"))
    assert len(head_gradients(trained)) == CHUNKS
    assert head_gradients(frozen) == []


def head_gradients(step: Step) -> list[str]:
    """Products in the shape of the head's weight."""
    rows = zip(step.tensors.name, step.tensors.shape, strict=True)
    return [name for name, shape in rows if shape == (WORDS, 32) and name.startswith("mm")]


@pytest.mark.parametrize("loss", ["chunked", "fused"])
def test_blocks_are_counted_on_before_any_loss(loss: str) -> None:
    sizes = {"layers": 7, "width": 32, "heads": 2, "vocabulary": 64, "positions": 16}
    options = WorkloadOptions(batch=2, sequence=16, loss=loss, loss_chunks=3)
    asked = ModelSource("zoo:gpt2", zoo="gpt2", sizes=sizes, options=options)
    ours, traced = content(capture(asked)), content(trace(asked).step)
    assert [name for name in traced if ours[name] != traced[name]] == []


@pytest.mark.parametrize(
    ("options", "where", "said"),
    [
        ({"loss": "fused", "loss_chunks": 31}, "options.loss_chunks", "31 chunks of 30 tokens"),
        ({"loss_chunks": 4}, "options.loss_chunks", "cut no whole loss"),
        ({"loss": "compiled"}, "options.loss", "for parallel plans in closed form"),
        ({"loss": "chunked", "training": False}, "options.loss", "without training has no loss"),
        ({"logits": "float32", "training": False}, "options.logits", "without training has no loss"),
    ],
)
def test_losses_that_cannot_be_are_refused(options: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        capture(source(GPT2, **options))
    assert caught.value.where == where


def test_chunks_are_of_a_micro_batchs_tokens() -> None:
    asked = source(GPT2, loss="fused", loss_chunks=11)
    capture(asked)
    with pytest.raises(BadInput, match="11 chunks of 10 tokens"):
        capture(replace(asked, micro_batches=3))
    with pytest.raises(BadInput, match="11 chunks of 10 tokens"):
        capture(source(GPT2, loss="fused", loss_chunks=11, accumulate=3))


@pytest.mark.parametrize("name", ["resnet18", "bert-base", "dlrm"])
def test_a_model_without_a_vocabulary_head_has_no_loss_by_chunks(name: str) -> None:
    asked = ModelSource(f"zoo:{name}", zoo=name, options=WorkloadOptions(batch=2, loss="fused"))
    with pytest.raises(BadInput, match="vocabulary head") as caught:
        capture(asked)
    assert caught.value.where == "options.loss"
