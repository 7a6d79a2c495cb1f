"""Models whose training was published with its speed, as configurations: ``zoo:NAME`` without a file.

Sizes: Narayanan et al., SC'21, table 1 (1.7B to 1T; 175B: section 5.2) and Korthikanti et al., MLSys'23,
table 3 (22B; its 175B, 530B and 1T are those of SC'21); LLaMA 65B (Touvron et al., 2023, table 2); Llama 2,
3, 3.1, 3.2, Code Llama and TinyLlama from their model cards; ``-untied`` keep a head of their own, as litgpt
does. The GPTs train with dropout, 51,200 words and sequences of 2,048. ``megatron-core-7b`` is the model of
Megatron-Core's own nightly measurements (NVIDIA/Megatron-LM,
tests/functional_tests/test_cases/gpt/gpt3_7b_*_memory_speed): a GPT with 8 key-value heads for 32 heads,
whose learned positions (0.5 % of its parameters) are rotary here; the others of its name are those of its
weak scaling on H100 (images/model_table.png). MPT from MosaicML's training benchmarks (mosaicml/llm-foundry);
BLOOM and the shapes that were timed before it, ``-l`` layers ``-a`` heads, and ``bigscience-``, GPTs of
50,257 words, from bigscience-workshop/bigscience; ``internlm-7b`` from InternLM/InternEvo; ``nanotron-`` from
huggingface/nanotron's search of degrees; mixtures of experts stand in ``published_mixtures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from experiments.core.options import WorkloadOptions
from experiments.workloads.published_mixtures import MIXTURES

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
    "llama-65b": _Llama(80, 8192, 64, 64, 22016, 32000, 2048),
    "llama2-13b": _Llama(40, 5120, 40, 40, 13824, 32000, 4096),
    "llama2-70b": _Llama(80, 8192, 64, 8, 28672, 32000, 4096),
    "codellama-34b": _Llama(48, 8192, 64, 8, 22016, 32000, 16384),
    "llama3-70b": _Llama(80, 8192, 64, 8, 28672, 128256, 8192),
    "llama3.1-70b": _Llama(80, 8192, 64, 8, 28672, 128256, 131072),
    "llama3.1-405b": _Llama(126, 16384, 128, 8, 53248, 128256, 131072),
    "internlm-7b": _Llama(32, 4096, 32, 32, 11008, 103168, 2048),
    "nanotron-1.34b": _Llama(16, 2048, 32, 32, 8192, 131072, 4096, tied=True),
    "nanotron-3.57b": _Llama(28, 3072, 32, 32, 8192, 131072, 4096, tied=True),
    "nanotron-8.86b": _Llama(32, 4096, 32, 32, 14336, 131072, 4096),
    "nanotron-80b": _Llama(80, 8192, 64, 64, 28672, 131072, 4096),
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


#: name: layers, hidden size, heads; each with as many key-value heads, and 4,096 tokens.
_MEGATRON_CORE_WEAK = {
    "1.7b": (24, 2048, 16),
    "7.1b": (30, 4096, 32),
    "16b": (32, 6144, 48),
    "32b": (48, 7168, 56),
    "70b": (84, 8192, 64),
    "119b": (92, 10240, 80),
    "177b": (96, 12288, 96),
    "314b": (96, 16384, 128),
    "462b": (112, 18432, 144),
}


def _megatron_core(layers: int, hidden: int, heads: int) -> Mapping[str, Any]:
    sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers}
    return {**_MEGATRON_CORE, **sizes, "num_attention_heads": heads, "num_key_value_heads": heads}


#: name: layers, hidden size, heads.
_MPT = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}


def _mpt(layers: int, hidden: int, heads: int) -> Mapping[str, Any]:
    sizes = {"n_layers": layers, "d_model": hidden, "n_heads": heads, "vocab_size": 50368}
    return {"model_type": "mpt", "torch_dtype": "bfloat16", "max_seq_len": 2048, **sizes}


#: name: layers, hidden size, heads.
_BLOOM = {
    "bloom-176b": (70, 14336, 112),
    "bloom-176b-l70-a64": (70, 14336, 64),
    "bloom-178b-l82-a64": (82, 13312, 64),
    "bloom-181b-l72-a64": (72, 14336, 64),
    "bloom-182b-l78-a96": (78, 13824, 96),
    "bloom-187b-l80-a96": (80, 13824, 96),
    "bloom-200b-l80-a96": (80, 14400, 96),
}


def _bloom(layers: int, hidden: int, heads: int) -> Mapping[str, Any]:
    sizes = {"n_layer": layers, "n_embed": hidden, "num_attention_heads": heads, "vocab_size": 250880}
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    return {"model_type": "bloom", "torch_dtype": "bfloat16", "seq_length": 2048, **sizes, **dropout}


#: name: layers, hidden size, heads.
_BIGSCIENCE = {"18b": (40, 6144, 32), "39b": (48, 8192, 32), "52b": (64, 8192, 32)}


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


#: The options that a published model says besides its sizes.
OF_PUBLISHED = ("kernels", "attention")

PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {
        **{
            f"megatron-{name}": Published(_gpt(*row), 2048, "fused", "math")
            for name, row in _MEGATRON.items()
        },
        "megatron-core-7b": Published(_MEGATRON_CORE, 8192, "fused", "flash"),
        **{
            f"megatron-core-{name}": Published(_megatron_core(*row), 4096, "fused", "flash")
            for name, row in _MEGATRON_CORE_WEAK.items()
        },
        **{f"mpt-{name}": Published(_mpt(*row), 2048, "eager", "flash") for name, row in _MPT.items()},
        **{name: Published(_bloom(*row), 2048, "fused", "math") for name, row in _BLOOM.items()},
        **{
            f"bigscience-{name}": Published(
                {**_gpt(*row), "n_positions": 1024, "vocab_size": 50257}, 1024, "fused", "math"
            )
            for name, row in _BIGSCIENCE.items()
        },
        **{
            name: Published(llama.config, min(llama.longest, 8192), "eager", "flash")
            for name, llama in _LLAMAS.items()
        },
        **{name: Published(config, 4096, "eager", "flash") for name, config in MIXTURES.items()},
    }
)
