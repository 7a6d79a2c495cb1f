"""Forms of an update and small optimizers: bit for bit torch's own, with the bytes that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import OPTIMIZERS, WorkloadOptions  # noqa: E402
from experiments.core.precision import describe_states, state_bytes, states_of  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.profiling.capture import few_blocks  # noqa: E402
from experiments.profiling.optimizers import OPTIMIZERS as KNOWN  # noqa: E402
from experiments.profiling.program import real_inputs  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.step import KINDS, PHASES, Step  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.configs import NO_DROPOUT  # noqa: E402

pytestmark = pytest.mark.torch

GPT = {
    "model_type": "gpt2",
    "n_layer": 1,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": 50,
    **NO_DROPOUT,
}
#: What a plain script does with a module and its batch, a step at a time.
Script = Callable[[nn.Module, list[Tensor]], Tensor]


def source(**options: Any) -> ModelSource:
    sizes = {"batch": 2, "sequence": 16, **options}
    return ModelSource("gpt", config=GPT, options=WorkloadOptions(**sizes))


def plain_module(dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model without the lab's options."""
    torch.manual_seed(0)
    return build(source()).module.to(dtype)


def assert_same(asked: ModelSource, module: nn.Module, step: Script, steps: int = 3) -> None:
    """Losses and weights of the captured step are those of a plain script, bit for bit."""
    traced = trace(asked)
    ours, batch = traced.make_inputs(), real_inputs(asked, 0)[-2:]
    with torch.no_grad():
        for _ in range(steps):
            with torch.enable_grad():
                loss = step(module, batch)
            assert torch.equal(traced.graph_module(*ours), loss.detach())
    updated = dict(zip((leaf.name for leaf in traced.leaves), ours, strict=True))
    for name, value in module.named_parameters():
        assert torch.equal(updated[name], value.detach()), name


def script(optimizer: torch.optim.Optimizer, *more: torch.optim.Optimizer) -> Script:
    def step(module: nn.Module, batch: list[Tensor]) -> Tensor:
        loss = module(*batch)
        loss.backward()
        for one in (optimizer, *more):
            one.step()
            one.zero_grad()
        return loss

    return step


def make(name: str, values: Any, **form: bool) -> torch.optim.Optimizer:
    if name in ("sgd", "momentum"):
        return torch.optim.SGD(values, lr=0.01, momentum=0.9 if name == "momentum" else 0.0, **form)
    return (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(values, **form)


@pytest.mark.parametrize("form", ["foreach", "fused"])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
def test_updates_of_all_at_once_are_torch_s_own(name: str, form: str, precision: str) -> None:
    module = plain_module(torch.float32 if precision == "fp32" else torch.bfloat16)
    asked = source(optimizer=name, update=form, precision=precision)
    assert_same(asked, module, script(make(name, module.parameters(), **{form: True})))


def test_updates_in_the_backward_pass_are_those_of_hooks() -> None:
    """The head's weight is the token table's: it is updated once, when both gradients are there."""
    module = plain_module()
    optimizers = {value: torch.optim.AdamW([value]) for value in module.parameters()}

    def update(value: Any) -> None:
        optimizers[value].step()
        optimizers[value].zero_grad()

    for value in module.parameters():
        value.register_post_accumulate_grad_hook(update)

    def step(module: nn.Module, batch: list[Tensor]) -> Tensor:
        loss = module(*batch)
        loss.backward()
        return loss

    assert_same(source(optimizer="adamw", update="in-backward"), module, step)


def parameter_bytes(step: Step) -> int:
    return int(step.tensors.bytes[step.tensors.kind == KINDS.index("parameter")].sum())


def peak_of_update(step: Step) -> int:
    """Bytes beside the persistent ones at most, while the optimizer runs."""
    return int(step.live_bytes[step.ops.phase == PHASES.index("optimizer")].max() - step.persistent_bytes)


def test_forms_differ_by_the_temporaries_they_leave() -> None:
    """Gradients and one list of temporaries; gradients alone; a gradient and two temporaries at most."""
    weights = parameter_bytes(capture(source()))
    assert peak_of_update(capture(source(optimizer="adamw", update="foreach"))) == pytest.approx(
        2 * weights, abs=100
    )
    assert peak_of_update(capture(source(optimizer="adamw", update="fused"))) == pytest.approx(
        weights, abs=100
    )
    single, early = (
        capture(source(optimizer="adamw")),
        capture(source(optimizer="adamw", update="in-backward")),
    )
    largest = int(single.tensors.bytes[single.tensors.kind == KINDS.index("parameter")].max())
    assert weights < peak_of_update(single) <= weights + 2 * largest + 100
    gradients = early.tensors.kind == KINDS.index("gradient")
    held = np.zeros(len(early.ops), np.int64)
    for tensor in np.nonzero(gradients)[0]:
        held[early.first_use[tensor] : early.death[tensor] + 1] += early.tensors.bytes[tensor]
    assert held.max() < 0.4 * weights


def test_the_state_of_updates_in_the_backward_pass_has_no_gradients() -> None:
    words = describe_states(
        states_of(capture(source(optimizer="adamw", update="in-backward")).facts)["states"]
    )
    assert words.startswith("4 weights + 8 optimizer state = 12 bytes a parameter")


class Galore(torch.optim.Optimizer):
    """The authors' GaLoreAdamW with a basis of unit vectors, by its paper."""

    def __init__(self, values: Any, rank: int, matrices: set[Any]) -> None:
        super().__init__(list(values), {"rank": rank})
        self.matrices = matrices

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for value in self.param_groups[0]["params"]:
            state, slope = self.state[value], value.grad
            tall = value.dim() == 2 and value.shape[0] >= value.shape[1]
            if value in self.matrices:
                rank = self.param_groups[0]["rank"]
                basis = torch.eye(rank, value.shape[1]) if tall else torch.eye(value.shape[0], rank)
                slope = slope @ basis.t() if tall else basis.t() @ slope
            if not state:
                state |= {"step": 0, "mean": torch.zeros_like(slope), "square": torch.zeros_like(slope)}
            state["step"] += 1
            state["mean"].mul_(0.9).add_(slope, alpha=1.0 - 0.9)
            state["square"].mul_(0.999).addcmul_(slope, slope, value=1.0 - 0.999)
            update = state["mean"] / state["square"].sqrt().add_(1e-6)
            size = 1e-3 * (1 - 0.999 ** state["step"]) ** 0.5 / (1 - 0.9 ** state["step"])
            if value in self.matrices:
                update = (update @ basis if tall else basis @ update) * 0.25
            value.add_(update, alpha=-size)


def blocks(module: nn.Module) -> set[Any]:
    """The matrices of the layers."""
    return {value for name, value in module.named_parameters() if ".h." in name and value.dim() == 2}


@pytest.mark.parametrize("update", ["single", "in-backward"])
@pytest.mark.parametrize("name", ["adafactor", "muon", "galore_adamw", "paged_adamw"])
def test_other_optimizers_are_their_library_s(name: str, update: str) -> None:
    module = plain_module()
    matrices = blocks(module)
    rest = [value for value in module.parameters() if value not in matrices]
    ordered = [value for value in module.parameters() if value in matrices]
    rank = {"optimizer_rank": 8} if name == "galore_adamw" else {}
    made: dict[str, Callable[[], tuple[torch.optim.Optimizer, ...]]] = {
        "adafactor": lambda: (torch.optim.Adafactor(module.parameters(), foreach=False),),
        "muon": lambda: (torch.optim.Muon(ordered), torch.optim.AdamW(rest, foreach=False)),
        "galore_adamw": lambda: (Galore(module.parameters(), 8, matrices),),
        "paged_adamw": lambda: (torch.optim.AdamW(module.parameters(), foreach=False),),
    }
    optimizers = made[name]()
    asked = source(optimizer=name, update=update, **rank)
    assert_same(asked, module, script(*optimizers))
    assert kept_bytes(capture(asked)) == sum(library_bytes(optimizer) for optimizer in optimizers)


def kept_bytes(step: Step) -> int:
    """State of the optimizer; of galore without the basis, which its script makes anew."""
    state = step.tensors.kind == KINDS.index("optimizer_state")
    named = [not name.endswith(".basis") for name in step.tensors.name]
    return int(step.tensors.bytes[state & np.array(named)].sum())


def library_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of an optimizer's state by its own account, without step counts."""
    found = 0
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":
                inner = [getattr(value, part) for part in getattr(value, "tensor_attrs", ())] or [value]
                found += sum(part.numel() * part.element_size() for part in inner)
    return found


@pytest.mark.parametrize("update", ["single", "fused", "in-backward"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
@pytest.mark.parametrize("bits", [8, 4])
def test_moments_of_few_bits_are_torchao_s(
    bits: int, precision: str, update: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchao = pytest.importorskip("torchao.optim")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    module = plain_module(torch.float32 if precision == "fp32" else torch.bfloat16)
    optimizer = (torchao.AdamW8bit if bits == 8 else torchao.AdamW4bit)(module.parameters())
    asked = source(optimizer=f"adamw{bits}bit", update=update, precision=precision)
    assert_same(asked, module, script(optimizer))
    step = capture(asked)
    assert kept_bytes(step) == library_bytes(optimizer) == step.facts["optimizer_bytes"]
    words = describe_states(states_of(step.facts)["states"])
    assert "weights" in words and "optimizer state" in words


def test_a_paged_update_in_8_bits_is_the_same_as_on_the_device() -> None:
    ours, theirs = (trace(source(optimizer=name)) for name in ("paged_adamw8bit", "adamw8bit"))
    one, other = ours.make_inputs(), theirs.make_inputs()
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(ours.graph_module(*one), theirs.graph_module(*other))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_optimizer_that_can_be_chosen_is_known() -> None:
    assert set(OPTIMIZERS) == set(KNOWN)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_graph_replays_the_eager_step(name: str) -> None:
    traced = trace(source(optimizer=name, precision="bf16-mixed"))
    ours, eager = traced.make_inputs(), traced.make_inputs()
    with torch.no_grad():
        loss = traced.graph_module(*ours)
    assert torch.equal(loss, traced.eager(*eager))
    assert all(torch.equal(one, other) for one, other in zip(ours, eager, strict=True))


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("update", ["single", "fused"])
def test_parts_of_a_batch_are_those_of_a_loop(parts: int, update: str) -> None:
    module = plain_module()
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False, fused=update == "fused")

    def step(module: nn.Module, batch: list[Tensor]) -> Tensor:
        losses = []
        for share in zip(*(value.chunk(parts) for value in batch), strict=True):
            loss = module(*share) / parts
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).sum()

    asked = source(optimizer="adamw", batch=4, accumulate=parts, update=update)
    assert_same(asked, module, step)


def test_gradients_of_all_parts_are_held_once() -> None:
    """A second pass adds each gradient as it comes: never two whole sets."""
    step = capture(source(optimizer="sgd", batch=4, accumulate=2))
    weights = parameter_bytes(step)
    gradients = 0
    held = np.zeros(len(step.ops), np.int64)
    for tensor in np.nonzero(step.tensors.kind == KINDS.index("gradient"))[0]:
        held[step.first_use[tensor] : step.death[tensor] + 1] += step.tensors.bytes[tensor]
    gradients = int(held.max())
    assert gradients <= weights * 1.01
    assert step.live_bytes[-1] - step.persistent_bytes < 1.1 * weights


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_is_torch_s_own(dtype: str) -> None:
    module = plain_module()
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False)

    def step(module: nn.Module, batch: list[Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=getattr(torch, dtype)):
            loss = module(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    assert_same(source(optimizer="adamw", autocast=dtype), module, step)


def test_autocast_casts_each_weight_once_and_holds_it_through_the_forward_pass() -> None:
    step = capture(source(optimizer="adamw", autocast="bfloat16"))
    parameter = KINDS.index("parameter")
    casts = [
        op
        for op in range(len(step.ops))
        if step.ops.target[op] == "aten._to_copy.default"
        and step.phase_of(op) == "forward"
        and step.tensors.kind[step.inputs[op][0]] == parameter
    ]
    read = [int(step.inputs[op][0]) for op in casts]
    assert len(read) == len(set(read)) >= 9
    last = int(np.nonzero(step.ops.phase == 0)[0][-1])
    assert all(step.death[step.outputs[op][0]] >= last - len(casts) for op in casts)


@pytest.mark.parametrize(
    ("options", "where", "said"),
    [
        ({"optimizer_rank": 4}, "optimizer_rank", "optimizer_rank 4 with optimizer 'adamw'"),
        ({"update": "in-backward", "accumulate": 2}, "update", "gradients of 2 parts"),
        ({"update": "in-backward", "precision": "bf16-mixed-fp32-grads"}, "update", "holds the gradients"),
        ({"update": "foreach", "optimizer": "muon"}, "update", "no such form"),
        ({"accumulate": 3}, "accumulate", "batch 2 is not accumulate 3 equal parts"),
        ({"autocast": "bfloat16", "precision": "bf16-pure"}, "autocast", "precision 'bf16-pure'"),
        ({"update": "fused", "training": False}, "update", "training false"),
        ({"accumulate": 2, "training": False}, "accumulate", "training false"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        capture(source(**{"optimizer": "adamw", **options}))
    assert caught.value.where == f"options.{where}"


def test_closed_forms_refuse_what_only_a_capture_tells() -> None:
    with pytest.raises(BadInput, match="follows from a captured step alone"):
        state_bytes("bfloat16", "muon", "bf16-pure")


@pytest.mark.parametrize("option", [{"update": "fused"}, {"autocast": "bfloat16"}])
def test_all_blocks_are_traced_where_something_joins_them(option: dict[str, str]) -> None:
    asked = ModelSource("zoo:gpt2", zoo="gpt2", options=WorkloadOptions(**option))  # type: ignore[arg-type]
    assert few_blocks(asked) == (asked, {})
