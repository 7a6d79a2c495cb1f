"""Configurations of mixtures of experts whose training or figures were published.

Sizes from the models' own configurations (mistralai/Mixtral-8x7B-v0.1 and 8x22B, Qwen/Qwen1.5-MoE-A2.7B,
Qwen2-57B-A14B, Qwen3-30B-A3B and 235B-A22B, deepseek-ai/DeepSeek-V2-Lite, V2 and V3). DeepSeek-V3's module
that predicts a second token is left out, as in its count of 671 billion parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


def _sizes(layers: int, hidden: int, heads: int, kv_heads: int, vocabulary: int, longest: int) -> Config:
    return {
        "hidden_size": hidden,
        "max_position_embeddings": longest,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
    }


def _mixtral(sizes: Config, inner: int) -> Config:
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    return {"model_type": "mixtral", **sizes, "intermediate_size": inner, **experts}


def _qwen(sizes: Config, experts: int, chosen: int, width: int, dense: int, shared: int = 0) -> Config:
    """The first of the family have a shared expert, the third heads of 128 values."""
    kind: dict[str, Any] = {"model_type": "qwen3_moe", "head_dim": 128}
    if shared:
        kind = {"model_type": "qwen2_moe", "shared_expert_intermediate_size": shared}
    counts = {"num_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    return {**kind, **sizes, "intermediate_size": dense, **counts, "decoder_sparse_step": 1}


def _deepseek(
    kind: str, sizes: Config, *, query: int | None, experts: int, chosen: int, width: int, dense: int
) -> Config:
    """``dense`` is the inner width of the first blocks: of one, in the third of the family of three.

    All but the one without short queries choose experts of few groups.
    """
    third = kind == "deepseek_v3"
    latent = {"q_lora_rank": query, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    counts = {"n_routed_experts": experts, "num_experts_per_tok": chosen, "moe_intermediate_size": width}
    shared = {"n_shared_experts": 1 if third else 2, "first_k_dense_replace": 3 if third else 1}
    groups = {"n_group": 8 if query else 1, "topk_group": (4 if third else 3) if query else 1}
    return {
        "model_type": kind,
        **sizes,
        "intermediate_size": dense,
        **latent,
        "v_head_dim": 128,
        **counts,
        **shared,
        **groups,
    }


MIXTURES: Mapping[str, Config] = {
    "mixtral-8x7b": _mixtral(_sizes(32, 4096, 32, 8, 32000, 32768), 14336),
    "mixtral-8x22b": _mixtral(_sizes(56, 6144, 48, 8, 32768, 65536), 16384),
    "qwen1.5-moe-a2.7b": _qwen(_sizes(24, 2048, 16, 16, 151936, 8192), 60, 4, 1408, 5632, 5632),
    "qwen2-57b-a14b": _qwen(_sizes(28, 3584, 28, 4, 151936, 131072), 64, 8, 2560, 18944, 20480),
    "qwen3-30b-a3b": _qwen(_sizes(48, 2048, 32, 4, 151936, 40960), 128, 8, 768, 6144),
    "qwen3-235b-a22b": _qwen(_sizes(94, 4096, 64, 4, 151936, 40960), 128, 8, 1536, 12288),
    "deepseek-v2-lite": _deepseek(
        "deepseek_v2",
        _sizes(27, 2048, 16, 16, 102400, 163840),
        query=None,
        experts=64,
        chosen=6,
        width=1408,
        dense=10944,
    ),
    "deepseek-v2": _deepseek(
        "deepseek_v2",
        _sizes(60, 5120, 128, 128, 102400, 163840),
        query=1536,
        experts=160,
        chosen=6,
        width=1536,
        dense=12288,
    ),
    "deepseek-v3": _deepseek(
        "deepseek_v3",
        _sizes(61, 7168, 128, 128, 129280, 163840),
        query=1536,
        experts=256,
        chosen=8,
        width=2048,
        dense=18432,
    ),
}
