"""A deep network's step, lengthened from a few of its equal blocks, is the capture of all of them."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from experiments.core.errors import BadInput
from experiments.core.options import OPTIMIZERS, WorkloadOptions
from experiments.core.precision import OPTIMIZER_MOMENTS
from experiments.profiling.capture import capture, few_blocks, trace
from experiments.workloads.hf import EQUAL_BLOCKS
from experiments.workloads.lengthened import lengthen
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

pytestmark = pytest.mark.torch
#: Of types of configurations, those that are lengthened with adapters.
ADAPTED = ("gpt2", "llama", "phi3")
DEPTHS = {"stage1": 1, "stage2": 6, "stage3": 7, "stage4": 1}


def network(preactivation: int = 0, optimizer: str = "momentum", **stages: int) -> ModelSource:
    sizes = {**DEPTHS, **stages, "preactivation": preactivation}
    options = WorkloadOptions(batch=2, image=32, optimizer=optimizer)
    return ModelSource("zoo:resnet2500", zoo="resnet2500", sizes=sizes, options=options)


def content(step: Step) -> dict[str, Any]:
    """Every column of the step, by name, as it prints (NaN equals itself)."""
    rows = {"inputs": step.inputs.lists(), "outputs": step.outputs.lists(), "facts": dict(step.facts)}
    tables = {"ops": step.ops, "tensors": step.tensors}
    columns = {
        f"{name}.{field.name}": getattr(table, field.name)
        for name, table in tables.items()
        for field in fields(table)
    }
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in columns.items()
    }
    return {**rows, **{name: [str(value) for value in column] for name, column in plain.items()}}


@pytest.mark.parametrize(("preactivation", "optimizer"), [(0, "adamw"), (1, "momentum")])
def test_a_lengthened_step_is_the_capture_of_all_blocks(preactivation: int, optimizer: str) -> None:
    source = network(preactivation, optimizer)
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


@pytest.mark.parametrize(("attention", "optimizer"), [("flash", "adamw"), ("math", "sgd")])
def test_a_transformers_blocks_are_counted_on_as_well(attention: str, optimizer: str) -> None:
    sizes = {"layers": 7, "width": 32, "heads": 2, "vocabulary": 64, "positions": 16}
    options = WorkloadOptions(batch=2, sequence=16, attention=attention, optimizer=optimizer)
    source = ModelSource("zoo:gpt2", zoo="gpt2", sizes=sizes, options=options)
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


CONFIG = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}
CONFIGS = {
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 6},
    "gpt_neox": {**CONFIG, "num_hidden_layers": 6},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 6},
    "bloom": {"hidden_size": 32, "n_head": 4, "n_layer": 6},
    **{name: {**CONFIG, "num_hidden_layers": 6} for name in ("bert", "roberta")},
    "distilbert": {"dim": 32, "n_heads": 4, "hidden_dim": 64, "n_layers": 6},
    "vit": {**CONFIG, "num_hidden_layers": 6, "image_size": 32, "patch_size": 16},
    "opt": {**CONFIG, "ffn_dim": 64, "word_embed_proj_dim": 32, "num_hidden_layers": 6},
    **{
        name: {**CONFIG, "head_dim": 8, "pad_token_id": 0, "num_hidden_layers": 6}
        for name in ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "phi3", "starcoder2")
    },
}


#: Those of which each has something that the others lack: adapters over fused projections and over plain
#: ones, experts, images, an encoder with a pooler. The others are like them (`LAB_LENGTHENED=all`).
USUAL = ("bert", "gpt2", "llama", "mixtral", "vit")
KINDS = sorted(CONFIGS) if os.environ.get("LAB_LENGTHENED") == "all" else USUAL


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_a_configuration_are_counted_on_as_well(kind: str) -> None:
    assert sorted(CONFIGS) == sorted(EQUAL_BLOCKS)
    adapter = {"adapter": "lora", "adapter_dropout": 0.1, "base": "nf4-double"} if kind in ADAPTED else {}
    sequence = None if kind == "vit" else 16
    options = WorkloadOptions(batch=2, sequence=sequence, optimizer="sgd", **adapter)
    source = ModelSource(
        kind, config={"model_type": kind, "vocab_size": 50, **CONFIGS[kind]}, options=options
    )
    assert len(few_blocks(source)[1]) == 1
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - set(OPTIMIZER_MOMENTS)))
def test_an_optimizer_whose_state_goes_by_a_tensors_size_is_counted_on_as_well(optimizer: str) -> None:
    """Matrices of 4,096 values have moments of fewer bits, smaller ones plain ones; so in every block."""
    layers = {"adapter": "lora", "adapter_targets": "up_proj"}  # of 256 values and of 4,096
    options = WorkloadOptions(batch=2, sequence=16, optimizer=optimizer, **layers)
    config = {"model_type": "llama", "vocab_size": 50, **CONFIGS["llama"], "intermediate_size": 512}
    source = ModelSource("llama", config=config, options=options)
    assert len(few_blocks(source)[1]) == 1
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


def test_blocks_that_attend_otherwise_are_all_traced() -> None:
    types = ["full_attention"] * 5 + ["sliding_attention"]
    for unlike in ({"use_sliding_window": True}, {"layer_types": types}):
        config = {"model_type": "qwen2", **CONFIGS["qwen2"], **unlike}
        assert few_blocks(ModelSource("qwen2", config=config)) == (ModelSource("qwen2", config=config), {})


def test_a_list_of_one_type_of_block_is_shortened_with_them() -> None:
    alike = {"layer_types": ["full_attention"] * 6, "vocab_size": 50}
    config = {"model_type": "qwen2", **CONFIGS["qwen2"], **alike}
    source = ModelSource("qwen2", config=config, options=WorkloadOptions(batch=2, sequence=16))
    few, more = few_blocks(source)
    assert (few.config["layer_types"], more) == (["full_attention"] * 5, {"model.layers": 1})
    ours, whole = content(capture(source)), content(trace(source).step)
    assert [name for name in whole if ours[name] != whole[name]] == []


def test_all_blocks_are_traced_where_those_traced_first_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Step:
        raise BadInput("blocks of 'features.stage2' differ")

    source = network(stage2=6, stage3=1)
    monkeypatch.setattr("experiments.profiling.capture.lengthen", refuse)
    assert content(capture(source)) == content(trace(source).step)


def test_too_few_blocks_and_blocks_that_differ_are_refused() -> None:
    step = trace(network(stage2=4, stage3=5)).step
    with pytest.raises(BadInput, match=r"4 blocks in 'features.stage2' .*expected 5 or more"):
        lengthen(step, "features.stage2", 3)
    targets = list(step.ops.target)
    place = next(op for op, name in enumerate(step.ops.module) if name.startswith("features.stage3.3."))
    targets[place] = "aten.other"
    object.__setattr__(step.ops, "target", tuple(targets))
    with pytest.raises(BadInput, match=r"blocks of 'features.stage3' differ"):
        lengthen(step, "features.stage3", 3)


def test_no_more_blocks_is_the_step_itself() -> None:
    step = trace(network(stage2=1, stage3=1)).step
    assert lengthen(step, "features.stage3", 0) is step
