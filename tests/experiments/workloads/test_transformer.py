"""Transformers in closed form: the counts of papers, and those of the captured model."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.core.units import DTYPE_BYTES
from experiments.estimates.memory import layer_activation_bytes
from experiments.estimates.parameters import llm_parameters
from experiments.hardware import resolve
from experiments.profiling.capture import capture
from experiments.sources import layers_of
from experiments.workloads.aggregate import layer_graph
from experiments.workloads.hf import MODEL_TYPES, check_config, value_type
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer import FAMILIES, Transformer, from_config, has_closed_form
from experiments.workloads.transformer_layers import CAPTURED, OPERATORS, at_granularity, transformer_layers

TINY = Transformer("tiny", 2, 8, 2, 4, 32, 4, 2, vocabulary=10, positions=4, dropout=True)
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_DEEPSEEK = {
    **{**_SIZES, "intermediate_size": 48, "num_key_value_heads": 4, "max_position_embeddings": 16},
    **{"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 16},
    **{"n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 1},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 16, "topk_group": 1},
}
#: The second of two blocks has experts but in Mixtral, where both have.
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {
        **{**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2},
        **{"num_local_experts": 4, "num_experts_per_tok": 2},
    },
    "qwen2_moe": {
        **{**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, **_EXPERTS},
        **{"shared_expert_intermediate_size": 24, "decoder_sparse_step": 2},
    },
    "qwen3_moe": {
        **{**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 16, **_EXPERTS},
        "mlp_only_layers": [0],
    },
    "deepseek_v2": {**_DEEPSEEK, "q_lora_rank": None},
    "deepseek_v3": {**_DEEPSEEK, "q_lora_rank": 24},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": 50},
    "gpt_neox": {**_SIZES, "intermediate_size": 64, "max_position_embeddings": 16},
    "opt": {**_SIZES, "ffn_dim": 64, "max_position_embeddings": 16, "word_embed_proj_dim": 32},
    "llama": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 16},
    "mistral": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 16},
    "starcoder2": {**_SIZES, "intermediate_size": 128, "num_key_value_heads": 2, "use_bias": True},
    "qwen2": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "gemma": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 1, "head_dim": 16},
    "qwen3": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 16},
    **MIXTURES,
    "phi3": {**_SIZES, "intermediate_size": 48, "num_key_value_heads": 2, "pad_token_id": 0},
    "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 50, "max_seq_len": 16},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_and_products_are_the_captured_models(family: str) -> None:
    config, _ = check_config({"model_type": family, **CONFIGS[family]}, family)
    options = WorkloadOptions(batch=2, sequence=8)
    captured = layer_graph(capture(ModelSource(family, config=config, options=options)))
    model = from_config(family, config, 8)
    dtype = value_type(config, MODEL_TYPES[family])
    ours = transformer_layers(model, batch=2, dtype=dtype, granularity=OPERATORS)
    expected = DTYPE_BYTES[dtype] * model.parameters
    assert ours.parameter_bytes.sum() == captured.parameter_bytes.sum() == expected
    assert ours.forward_flops.sum() == pytest.approx(captured.forward_flops.sum(), rel=1e-9)


def test_a_gpt_of_the_zoo_has_the_closed_form_of_its_configuration() -> None:
    workload = Workload("zoo:gpt2-tiny", options=WorkloadOptions(batch=2))
    captured, ours = (layers_of(workload, None, granularity=how)[0] for how in (CAPTURED, OPERATORS))
    assert ours.work and not captured.work
    assert ours.parameter_bytes.sum() == captured.parameter_bytes.sum()
    assert ours.forward_flops.sum() == pytest.approx(captured.forward_flops.sum(), rel=1e-9)
    assert (ours.batch, ours.facts["sequence"]) == (captured.batch, captured.facts["sequence"])


def test_configurations_of_other_shapes_have_no_closed_form() -> None:
    assert has_closed_form({"model_type": "llama", **CONFIGS["llama"]})
    assert not has_closed_form({"model_type": "bert"})
    assert not has_closed_form({"model_type": "opt", **CONFIGS["opt"], "do_layer_norm_before": False})
    assert not has_closed_form({"model_type": "llama", **CONFIGS["llama"], "attention_bias": True})
    for family, field in (
        ("gemma", {"attention_bias": True}),
        ("gemma", {"use_bidirectional_attention": True}),
        ("qwen3", {"use_sliding_window": True}),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("qwen2_moe", {"use_sliding_window": True}),
        ("deepseek_v3", {"attention_bias": True}),
        ("deepseek_v2", {"moe_layer_freq": 2}),
        ("phi3", {"partial_rotary_factor": 0.75}),
        ("phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    ):
        assert has_closed_form({"model_type": family, **CONFIGS[family]})
        assert not has_closed_form({"model_type": family, **CONFIGS[family], **field})


def test_counts_of_a_tiny_model() -> None:
    """h=8, s=4, a=2, V=10: 12h^2+13h a block, s h (34 + 5as/h) bytes kept, 24 s h^2 + 4 s^2 h and 2 s h V
    FLOPs.
    """
    graph = transformer_layers(TINY, batch=1, dtype="float16", granularity=OPERATORS)
    block = [i for i, name in enumerate(graph.layer) if name.startswith("blocks.1.")]
    assert TINY.parameters == llm_parameters(8, 2, 10, 4) == graph.parameter_bytes.sum() / 2
    assert graph.stash_bytes[block].sum() == layer_activation_bytes(1, 4, 8, 2)
    assert graph.forward_flops[block].sum() == 24 * 4 * 64 + 4 * 16 * 8
    assert TINY.forward_flops == graph.forward_flops.sum() == 2 * (24 * 4 * 64 + 4 * 16 * 8) + 2 * 4 * 8 * 10
    assert [graph.layer[i].removeprefix("blocks.1.") for i in block] == [
        *("norm1", "qkv", "attention", "projection", "residual1"),
        *("norm2", "expand", "activation", "contract", "residual2"),
    ]


def test_blocks_are_their_operators() -> None:
    operators = transformer_layers(TINY, batch=3, dtype="float16", granularity=OPERATORS)
    blocks = at_granularity(operators, "blocks")
    assert blocks.layer == ("embedding", "blocks.0", "blocks.1", "norm", "logits", "loss")
    assert blocks.predecessors.lists() == [[], [0], [1], [2], [3], [4]]
    for column in ("forward_flops", "parameter_bytes", "stash_bytes"):
        assert getattr(blocks, column).sum() == getattr(operators, column).sum()


def test_an_attention_kernel_that_never_stores_the_matrix_keeps_sums_only() -> None:
    """Without dropout and matrix: 34 minus two masks, and a float32 sum for each head and token."""
    model = dataclasses.replace(TINY, dropout=False)
    graph = transformer_layers(model, batch=1, dtype="float16", fused_attention=True)
    assert graph.stash_bytes[1] == 4 * 8 * (34 - 2) + 4 * 2 * 4


def test_published_sizes_have_their_published_parameters() -> None:
    """SC'21, table 1 and section 5.2; Llama 3.1's model card."""
    for name, billions in (("1.7b", 1.7), ("18b", 18.4), ("145b", 145.6), ("175b", 174.6), ("1t", 1008.0)):
        graph, _ = layers_of(Workload(f"zoo:megatron-{name}"), None, lambda *_: None, OPERATORS)
        assert graph.transformer is not None and graph.transformer.sequence == 2048
        assert graph.transformer.parameters / 1e9 == pytest.approx(billions, abs=0.06)
    core, _ = layers_of(Workload("zoo:megatron-core-7b"), None, lambda *_: None, OPERATORS)
    assert core.transformer is not None and core.transformer.parameters == 6_712_401_920
    llama, _ = layers_of(Workload("zoo:llama3.1-8b"), None, lambda *_: None, OPERATORS)
    assert llama.transformer is not None and llama.transformer.parameters == 8_030_261_248


def test_fused_kernels_of_other_years_have_another_rate() -> None:
    rates = {}
    for attention in ("flash1", "flash", "flash3"):
        workload = Workload("zoo:llama2-7b", options=WorkloadOptions(attention=attention))
        graph, _ = layers_of(workload, None, granularity=OPERATORS)
        (rates[attention],) = {work.rate for rows in graph.work for work in rows if work.fused}
    assert rates == {"flash1": 0.5, "flash": 1.0, "flash3": 1.66}


def test_a_kernel_for_hopper_is_refused_on_other_devices() -> None:
    workload = Workload("zoo:llama2-7b", options=WorkloadOptions(attention="flash3"))
    assert layers_of(workload, resolve("h200-141g").device, granularity=OPERATORS)
    with pytest.raises(BadInput, match="attention 'flash3' on a100-80g, which has no such kernel"):
        layers_of(workload, resolve("a100-80g").device, granularity=OPERATORS)
