"""Models whose training was published with its speed, as configurations: ``zoo:NAME`` without a file.

Sizes: Narayanan et al., SC'21, table 1 (1.7B to 1T; 175B: section 5.2) and Korthikanti et al., MLSys'23,
table 3 (22B; its 175B, 530B and 1T are those of SC'21); Llama 2, 3, 3.1, 3.2 and TinyLlama from their model
cards; ``-untied`` keep a head of their own, as litgpt does. The GPTs train with
dropout, 51,200 words and sequences of 2,048. ``megatron-core-7b`` is the model of Megatron-Core's own nightly
measurements (NVIDIA/Megatron-LM, tests/functional_tests/test_cases/gpt/gpt3_7b_*_memory_speed): a GPT with
8 key-value heads for 32 heads, whose learned positions (0.5 % of its parameters) are rotary here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from experiments.core.options import WorkloadOptions

#: name: layers, hidden size, heads.
_MEGATRON = {
    "1.7b": (24, 2304, 24),
    "3.6b": (30, 3072, 32),
    "7.5b": (36, 4096, 32),
    "18b": (40, 6144, 48),
    "22b": (48, 6144, 64),
    "39b": (48, 8192, 64),
    "76b": (60, 10240, 80),
    "145b": (80, 12288, 96),
    "175b": (96, 12288, 96),
    "310b": (96, 16384, 128),
    "530b": (105, 20480, 128),
    "1t": (128, 25600, 160),
}


def _gpt(layers: int, hidden: int, heads: int) -> Mapping[str, Any]:
    sizes = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": 2048, "vocab_size": 51200}
    dropout = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
    return {"model_type": "gpt2", "torch_dtype": "float16", **sizes, **dropout}


@dataclass(frozen=True)
class _Llama:
    """What tells the members of the family apart; the head is the token table where ``tied``."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    longest: int
    tied: bool = False

    @property
    def config(self) -> Mapping[str, Any]:
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "max_position_embeddings": self.longest,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0 if self.longest <= 4096 else 500000.0,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocabulary,
        }


_LLAMAS = {
    "tiny-llama-1.1b": _Llama(22, 2048, 32, 4, 5632, 32000, 2048),
    "llama2-7b": _Llama(32, 4096, 32, 32, 11008, 32000, 4096),
    "llama3-8b": _Llama(32, 4096, 32, 8, 14336, 128256, 8192),
    "llama3.1-8b": _Llama(32, 4096, 32, 8, 14336, 128256, 131072),
    "llama3.2-1b": _Llama(16, 2048, 32, 8, 8192, 128256, 131072, tied=True),
    "llama3.2-1b-untied": _Llama(16, 2048, 32, 8, 8192, 128256, 131072),
    "llama3.2-3b": _Llama(28, 3072, 24, 8, 8192, 128256, 131072, tied=True),
    "llama3.2-3b-untied": _Llama(28, 3072, 24, 8, 8192, 128256, 131072),
}


_MEGATRON_CORE = {
    "model_type": "starcoder2",
    "hidden_size": 4096,
    "intermediate_size": 16384,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "residual_dropout": 0.1,
    "embedding_dropout": 0.1,
    "attention_dropout": 0.1,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 131072,
}


@dataclass(frozen=True)
class Published:
    """A configuration and what its published runs had where a spec leaves it open."""

    config: Mapping[str, Any]
    sequence: int
    kernels: str
    attention: str

    def options(self, given: WorkloadOptions) -> WorkloadOptions:
        return replace(
            given,
            sequence=given.sequence or self.sequence,
            kernels=self.kernels if given.kernels == "auto" else given.kernels,
            attention=self.attention if given.attention == "auto" else given.attention,
        )


PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        **{
            f"megatron-{name}": Published(_gpt(*row), 2048, "fused", "math")
            for name, row in _MEGATRON.items()
        },
        "megatron-core-7b": Published(_MEGATRON_CORE, 8192, "fused", "flash"),
        **{
            name: Published(llama.config, min(llama.longest, 8192), "eager", "flash")
            for name, llama in _LLAMAS.items()
        },
    }
)
