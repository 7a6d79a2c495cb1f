"""Adapters and bases in few bits: a step with them is a plain torch script's, and keeps what that keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

from experiments.core import registry  # noqa: E402
from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.core.precision import describe_states, states_of  # noqa: E402
from experiments.core.spec import load_workload  # noqa: E402
from experiments.hardware import resolve  # noqa: E402
from experiments.memory.interface import machine_of, violations  # noqa: E402
from experiments.memory.planning.host_update import parameter_count, update_of  # noqa: E402
from experiments.models.build import build  # noqa: E402
from experiments.models.quantized import NORMAL_FLOAT, QuantizedLinear  # noqa: E402
from experiments.profiling.capture import Traced, few_blocks  # noqa: E402
from experiments.profiling.program import real_inputs  # noqa: E402
from experiments.sources import with_roofline_times  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from experiments.workloads.step import KINDS  # noqa: E402
from tests.experiments.captures import capture, trace  # noqa: E402
from tests.experiments.configs import NO_DROPOUT  # noqa: E402
from tests.experiments.memory.steps import plan_of  # noqa: E402

pytestmark = pytest.mark.torch

LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "max_position_embeddings": 16},
}
GPT = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 32,
    "n_head": 4,
    "n_positions": 16,
    "vocab_size": 50,
    **NO_DROPOUT,
}
CONFIGS = {"llama": LLAMA, "gpt2": GPT}
TINY = {"layers": 2, "width": 32, "heads": 2, "vocabulary": 64, "positions": 16}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def of_config(kind: str, **options: Any) -> ModelSource:
    given = WorkloadOptions(batch=2, sequence=16, **options)
    return ModelSource(kind, config=CONFIGS[kind], options=given)


def tiny(**options: Any) -> ModelSource:
    given = WorkloadOptions(batch=2, sequence=16, **options)
    return ModelSource("zoo:gpt2", zoo="gpt2", sizes=TINY, options=given)


class PlainLayer(nn.Module):
    """A linear layer with its adapter, by the papers' formulas, from tensors of these names."""

    def __init__(self, values: Mapping[str, Tensor], right: bool, dora: bool, dropout: float) -> None:
        super().__init__()
        self.lora_A, self.lora_B = (nn.Parameter(values[name].clone()) for name in ("lora_A", "lora_B"))
        self.magnitude = nn.Parameter(values["magnitude"].clone()) if dora else None
        weight = values["base_layer.weight"] if "base_layer.weight" in values else unpacked(values, right)
        self.register_buffer("weight", weight.t() if right else weight)
        self.bias = values.get("base_layer.bias")
        self.scale, self.dropout = 8 / self.lora_A.shape[0], dropout

    def forward(self, x: Tensor) -> Tensor:
        out = F.linear(x, self.weight, self.bias)
        dropped = F.dropout(x, self.dropout) if self.dropout else x
        product = F.linear(F.linear(dropped, self.lora_A), self.lora_B)
        if self.magnitude is None:
            return out + product * self.scale
        merged = self.weight + self.scale * (self.lora_B @ self.lora_A)
        ratio = self.magnitude / merged.norm(dim=1).detach()
        alone = F.linear(dropped, self.weight) if self.dropout else out
        if not self.dropout and self.bias is not None:
            alone = out - self.bias
        return out + (ratio - 1) * alone + ratio * product * self.scale


def unpacked(values: Mapping[str, Tensor], right: bool) -> Tensor:
    """The weight that 4-bit codes stand for: the first weight of a byte is in its lower half."""
    codes, scales = values["base_layer.codes"].int(), values["base_layer.scales"].float()
    if "base_layer.factors" in values:
        scales = torch.cat(
            [part * f for part, f in zip(scales.split(256), values["base_layer.factors"], strict=True)]
        )
    pairs = torch.stack((codes % 16, codes // 16), 1).flatten()
    flat = torch.tensor(NORMAL_FLOAT)[pairs] * scales.repeat_interleave(64)[: len(pairs)]
    sides = values["lora_B"].shape[0], values["lora_A"].shape[1]
    return flat.view(*reversed(sides)) if right else flat.view(*sides)


def plain_model(source: ModelSource, values: Mapping[str, Tensor]) -> nn.Module:
    """The model of ``transformers`` with ``values`` and ``PlainLayer``s."""
    transformers = pytest.importorskip("transformers")
    options, config = source.options, dict(source.config)
    made = transformers.AutoConfig.for_model(**config)
    made.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(made)
    model.requires_grad_(False)
    for path in {name.rpartition(".")[0] for name in values if name.endswith("lora_A")}:
        own = {name.removeprefix(f"{path}."): v for name, v in values.items() if name.startswith(f"{path}.")}
        parent, _, name = path.rpartition(".")
        right = config["model_type"] == "gpt2"
        layer = PlainLayer(own, right, options.adapter == "dora", options.adapter_dropout)
        setattr(model.get_submodule(parent), name, layer)
    missing, _ = model.load_state_dict(values, strict=False)
    assert all(name.endswith((".weight", ".bias")) for name in missing)
    return model.train()


def by_name(traced: Traced, inputs: list[Tensor]) -> dict[str, Tensor]:
    names = [leaf.name.removeprefix("body.inner.") for leaf in traced.leaves]
    return dict(zip(names, inputs, strict=True))


FORMS = [
    {"adapter": "lora"},
    {"adapter": "lora", "adapter_dropout": 0.25, "base": "nf4"},
    {"adapter": "dora"},
    {"adapter": "dora", "adapter_dropout": 0.25, "base": "nf4-double", "adapter_rank": 4},
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_steps_are_those_of_a_plain_script_bit_for_bit(kind: str, form: dict[str, Any]) -> None:
    source = of_config(kind, **form)
    traced = trace(source)
    inputs = traced.make_inputs()
    for name, value in by_name(traced, inputs).items():
        if name.endswith(".bias"):
            value.normal_()  # GPT-2's begin at 0
    model = plain_model(source, by_name(traced, inputs))
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(trained.values())
    ids, target = inputs[-2:]
    for step in range(3):
        torch.manual_seed(step)
        with torch.no_grad():
            loss = traced.graph_module(*inputs)
        torch.manual_seed(step)
        optimizer.zero_grad()
        plain = F.cross_entropy(model(input_ids=ids).logits.reshape(-1, 50), target.reshape(-1))
        plain.backward()
        optimizer.step()
        assert torch.equal(loss, plain.detach())
    updated = by_name(traced, inputs)
    assert {name for name in trained if not torch.equal(updated[name], trained[name].detach())} == set()
    assert len(trained) == (3 if form["adapter"] == "dora" else 2) * (14 if kind == "llama" else 8)


@pytest.mark.parametrize("form", [*FORMS, {"adapter": "lora", "base": "int8", "adapter_dropout": 0.5}])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_what_autograd_saves_is_what_the_step_keeps(kind: str, form: dict[str, Any]) -> None:
    source = of_config(kind, **form)
    step = capture(source)
    model = build(source).module
    inputs = real_inputs(source, 0)[-2:]
    persistent = {value.untyped_storage().data_ptr() for value in (*model.parameters(), *model.buffers())}
    persistent |= {value.untyped_storage().data_ptr() for value in inputs}
    saved: dict[int, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        saved[value.untyped_storage().data_ptr()] = value
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        loss = model(*inputs)
    found = sum(v.untyped_storage().nbytes() for key, v in saved.items() if key not in persistent)
    del loss
    starts = np.array(["ones_like" in target for target in step.ops.target])  # at the loss
    forward, backward = step.ops.phase == 0, (step.ops.phase == 1) & ~step.ops.view & ~starts
    made = {t for op in np.nonzero(forward)[0] for t in step.outputs[op].tolist()}
    read = {t for op in np.nonzero(backward)[0] for t in step.inputs[op].tolist()}
    kept = [t for t in made & read if not step.persistent[t]]
    assert sum(int(step.tensors.bytes[t]) for t in kept) == found


def test_a_frozen_linear_layer_keeps_no_input_and_below_the_lowest_adapter_nothing_is_kept() -> None:
    upper = capture(tiny(adapter="lora", adapter_targets="blocks.1.expand"))
    kept = saved_by_module(upper)
    assert not any(name.startswith("blocks.0.") for name in kept)
    assert not any(name.startswith("blocks.1.attention") for name in kept)
    both = saved_by_module(capture(tiny(adapter="lora", adapter_targets="qkv")))
    assert {name for name in both if name.endswith("attention.project")} == set()


def saved_by_module(step: Any) -> set[str]:
    """Modules whose activations a backward op reads."""
    made_by = {t: op for op in np.nonzero(step.ops.phase == 0)[0] for t in step.outputs[op].tolist()}
    read = {t for op in np.nonzero(step.ops.phase == 1)[0] for t in step.inputs[op].tolist()}
    return {step.ops.module[made_by[t]] for t in read if t in made_by and not step.persistent[t]}


@pytest.mark.parametrize(
    ("name", "knobs"), [("checkpoint", {"variant": "sqrt"}), ("selective_recompute", {})]
)
@pytest.mark.parametrize("base", ["plain", "nf4"])
def test_masks_and_4_bit_weights_survive_recomputation_bit_for_bit(
    name: str, knobs: dict[str, Any], base: str
) -> None:
    from experiments.memory.live.runner import StepRunner

    traced = trace(tiny(adapter="lora", adapter_dropout=0.25, base=base, attention="math"))
    assert "aten.native_dropout.default" in traced.step.ops.target
    local = resolve("local")
    step = with_roofline_times(traced.step, local.device)
    on = replace(machine_of(local), synchronous=True)
    plan = plan_of(registry.create("memory", name, knobs), step, on)
    assert violations(plan, step, on) == [] and plan.moves
    torch.manual_seed(3)
    plain = traced.make_inputs()
    with torch.no_grad():
        expected = [float(traced.graph_module(*plain)) for _ in range(3)]
    torch.manual_seed(3)
    ours = traced.make_inputs()
    runner = StepRunner(traced, plan)
    assert [float(runner(ours)) for _ in range(3)] == expected
    assert all(map(torch.equal, ours, plain))


@pytest.mark.parametrize(("sides", "outputs"), [((48, 40), 0), ((40, 48), 1), ((100, 700), 0), ((3, 3), 0)])
def test_stored_bytes_are_the_formulas(sides: tuple[int, int], outputs: int) -> None:
    weight, count = torch.randn(sides), math.prod(sides)
    blocks = math.ceil(count / 64)
    linear = nn.Linear(sides[1], sides[0], bias=False)
    linear.weight = nn.Parameter(weight)
    expected = {
        "int8": count + 4 * sides[outputs],
        "nf4": math.ceil(count / 2) + 4 * blocks,
        "nf4-double": math.ceil(count / 2) + blocks + 4 * math.ceil(blocks / 256),
    }
    for form, size in expected.items():
        stored = QuantizedLinear(linear, form, outputs)
        assert sum(value.nbytes for value in stored.parameters()) == size, form
        assert sum(stored.weight_counts.values()) == count
        whole = stored.dequantize(torch.float32)
        step = {"int8": 1 / 127, "nf4": 0.16, "nf4-double": 0.17}[form]
        assert float((whole - weight).abs().max()) <= step * float(weight.abs().max())
        assert stored.dequantize(torch.bfloat16).dtype == torch.bfloat16


def test_one_matrix_is_whole_at_a_time() -> None:
    step = capture(of_config("llama", adapter="lora", base="nf4", adapter_targets="q_proj"))
    whole = [op for op, target in enumerate(step.ops.target) if target.startswith("lab.dequantize_nf4")]
    assert len(whole) == 14 + 11  # the lowest block's q, k and v: their input's gradient is nobody's
    for op in whole:
        (tensor,) = step.outputs[op].tolist()
        assert step.death[tensor] - op <= 4
    plain = capture(of_config("llama", adapter="lora", adapter_targets="q_proj"))
    assert step.facts["parameters"] == plain.facts["parameters"]
    assert step.facts["trained_parameters"] == plain.facts["trained_parameters"] == 2 * 8 * (32 + 32)
    update = update_of(step)
    assert update is not None and parameter_count(step, update) == 2 * 8 * (32 + 32)
    words = describe_states(states_of(step.facts)["states"])
    assert words.endswith("of them trained, the others weights alone, in layers with nf4 of fewer bytes")
    weights = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
    saved = weights * 4 - (weights // 2 + weights // 64 * 4)
    assert plain.persistent_bytes - step.persistent_bytes == saved


def test_adapters_have_their_own_type_and_no_master_copy_in_float32() -> None:
    step = capture(of_config("llama", dtype="bfloat16", adapter="lora", adapter_dtype="float32"))
    own = {t for t, name in enumerate(step.tensors.name) if "lora_" in name and step.persistent[t]}
    assert {step.tensors.dtype[t] for t in own} == {"float32"}
    assert not any(name.endswith(".master") for name in step.tensors.name)
    mixed = capture(of_config("llama", dtype="bfloat16", adapter="lora"))
    masters = [name for name in mixed.tensors.name if name.endswith(".master")]
    assert len(masters) == 28 and all("lora_" in name for name in masters)


@settings(max_examples=4, deadline=None)
@given(
    st.integers(1, 16), st.integers(1, 16), st.permutations(["qkv", "project", "expand", "contract"]),
    st.sampled_from([("lora", 0.0), ("lora", 0.1), ("dora", 0.0)]),
)  # fmt: skip
def test_more_rank_or_targets_never_lower_the_peak(
    rank: int, more: int, names: list[str], form: tuple[str, float]
) -> None:
    def peak(rank: int, count: int) -> int:
        asked = {"adapter": form[0], "adapter_dropout": form[1], "adapter_rank": rank}
        return int(capture(tiny(**asked, adapter_targets=",".join(names[:count]))).live_peak)

    low = peak(rank, 2)
    assert low <= peak(rank + more, 2)
    assert low <= peak(rank, 3)


def test_all_linear_leaves_out_the_head_and_names_may_have_it() -> None:
    def layers_with_adapter(**options: Any) -> set[str]:
        step = capture(tiny(adapter="lora", **options))
        return {name.split(".")[-2] for name in step.tensors.name if name.endswith("lora_A")}

    assert layers_with_adapter() == {"qkv", "project", "expand", "contract"}
    assert layers_with_adapter(adapter_targets="head, qkv") == {"head", "qkv"}
    assert layers_with_adapter(adapter_targets="all-linear, head") == layers_with_adapter() | {"head"}


REFUSED = [
    ({"adapter": "lora", "adapter_targets": "q_proj,query"}, "adapter_targets", "'q_proj' names no linear"),
    ({"adapter": "lora", "adapter_targets": " "}, "adapter_targets", "names no layer"),
    (
        {"adapter": "lora", "adapter_rank": 33},
        "adapter_rank",
        "rank 33 for blocks.0.attention.qkv of 96",
    ),
    ({"base": "nf4"}, "base", "'nf4' belongs to nothing .expected an adapter"),
    ({"adapter_rank": 4}, "adapter_rank", "4 belongs to nothing"),
    ({"adapter_dropout": 0.1}, "adapter_dropout", "0.1 belongs to nothing"),
    ({"adapter": "lora", "base_targets": "qkv"}, "base_targets", "expected a base of int8"),
    ({"adapter": "lora", "training": False}, "adapter", "lora without training"),
    ({"adapter": "lora", "base": "nf4", "base_targets": "head"}, "base_targets", "head is the embedding's"),
    ({"adapter": "lora", "frozen": "*"}, "frozen", "freezes all"),
]


@pytest.mark.parametrize(("options", "where", "said"), REFUSED)
def test_what_fits_nothing_is_refused(options: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        capture(tiny(**options))
    assert caught.value.where == f"options.{where}" and caught.value.exit_code == 2


def test_refusals_name_the_layers_that_there_are() -> None:
    with pytest.raises(BadInput, match="expected all-linear or some of qkv, project, expand, contract, head"):
        capture(tiny(adapter="lora", adapter_targets="q_proj"))
    parts = build(of_zoo("resnet18")).module.named_modules()
    name = next(path for path, part in parts if isinstance(part, nn.Conv2d)).removeprefix("body.")
    with pytest.raises(BadInput, match=r"is a convolution .expected all-linear or some of classifier"):
        capture(of_zoo("resnet18", adapter="lora", adapter_targets=name))
    with pytest.raises(BadInput, match="none beside the head"):
        capture(of_zoo("resnet18", adapter="lora"))


def of_zoo(name: str, **options: Any) -> ModelSource:
    return ModelSource(f"zoo:{name}", zoo=name, options=WorkloadOptions(batch=2, image=32, **options))


@pytest.mark.parametrize("value", [0, -1, 2**17])
def test_ranks_out_of_bounds_are_refused_where_they_are_read(value: int) -> None:
    given = {"source": "zoo:gpt2", "options": {"adapter": "lora", "adapter_rank": value}}
    with pytest.raises(BadInput, match=r"options.adapter_rank: .* is too (small|large)"):
        load_workload(given)


def test_a_large_models_equal_blocks_are_traced_once() -> None:
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "vocab_size": 128256}
    config = {**LLAMA, **sizes, "num_hidden_layers": 32, "num_key_value_heads": 8}
    options = WorkloadOptions(
        batch=1, sequence=16, dtype="bfloat16", adapter="lora", base="nf4", adapter_targets="q_proj,v_proj"
    )
    source = ModelSource("llama", config=config, options=options)
    assert few_blocks(source)[1] == {"model.layers": 27}
    step = capture(source)
    assert step.facts["trained_parameters"] == 32 * 8 * (4096 + 4096 + 4096 + 1024)
    assert step.facts["parameters"] == 8030261248 + step.facts["trained_parameters"]
    kinds = {KINDS[kind] for kind in set(step.tensors.kind[step.persistent].tolist())}
    assert kinds == {"parameter", "optimizer_state", "buffer", "input"}


def test_blocks_are_not_equal_where_one_alone_is_named() -> None:
    config = {**LLAMA, "num_hidden_layers": 8}
    for word, few in (("q_proj", {"model.layers": 3}), ("layers.7.self_attn.q_proj", {})):
        given = WorkloadOptions(batch=2, sequence=16, adapter="lora", adapter_targets=word)
        assert few_blocks(ModelSource("llama", config=config, options=given))[1] == few
