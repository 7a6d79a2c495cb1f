"""What a serving simulator must know of a language model: its sizes. From a table, the zoo or an HF
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.errors import BadInput
from experiments.models.catalog import zoo_model
from experiments.workloads.hf import MODEL_TYPES
from experiments.workloads.mixture import MIXTURES
from experiments.workloads.model import ModelSource


@dataclass(frozen=True)
class ServedModel:
    """A decoder-only transformer.

    ``kv_heads`` < ``heads`` for grouped queries; ``parameters`` embeddings included.

    ``inner`` is the width of the feed-forward layer where it is not four times ``hidden`` or is gated.
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    source: str
    inner: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """Its sizes by the names of HF configurations; what else such a file has nobody published."""
        return {
            "model_type": self.name,
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner or 4 * self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.context,
        }

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Keys and values of one token in all layers: 2 x layers x KV heads x head size x element."""
        return 2 * self.layers * self.kv_heads * self.head_dim * dtype_bytes

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _gpt3(name: str, parameters: float, layers: int, hidden: int, heads: int) -> ServedModel:
    source = "Yu et al., Orca, OSDI 2022, table 1"
    return ServedModel(name, parameters, layers, hidden, heads, heads, hidden // heads, 2048, source)


def _llama(
    name: str, parameters: float, layers: int, hidden: int, heads: int, kv_heads: int, inner: int
) -> ServedModel:
    source = "Touvron et al., Llama 2, 2023, and the published configurations"
    return ServedModel(name, parameters, layers, hidden, heads, kv_heads, 128, 4096, source, inner)


def _opt(name: str, parameters: float, layers: int, hidden: int, heads: int) -> ServedModel:
    source = "Zhang et al., OPT, 2022, table 1"
    return ServedModel(name, parameters, layers, hidden, heads, heads, hidden // heads, 2048, source)


def _palm(name: str, parameters: float, layers: int, hidden: int, heads: int) -> ServedModel:
    """One head of keys and values for all; the feed-forward layer is four times as wide."""
    source = "Chowdhery et al., PaLM, JMLR 2023, table 1"
    return ServedModel(name, parameters, layers, hidden, heads, 1, 256, 2048, source, 4 * hidden)


#: Of the published configurations.
META = "config.json of meta-llama/Llama-3.1-"
MISTRAL = "config.json of mistralai/Mistral-7B-v0.1, without its sliding window"
YI = "config.json of 01-ai/Yi-34B-200K"
QWEN = "config.json of Qwen/Qwen3-32B"

SERVED: Mapping[str, ServedModel] = {
    model.name: model
    for model in (
        _llama("llama2-7b", 6.738e9, 32, 4096, 32, 32, 11008),
        _llama("llama2-13b", 13.016e9, 40, 5120, 40, 40, 13824),
        _llama("llama2-70b", 68.977e9, 80, 8192, 64, 8, 28672),
        ServedModel("llama31-8b", 8.030e9, 32, 4096, 32, 8, 128, 131072, META + "8B", 14336),
        ServedModel("llama31-70b", 70.554e9, 80, 8192, 64, 8, 128, 131072, META + "70B", 28672),
        ServedModel("mistral-7b", 7.242e9, 32, 4096, 32, 8, 128, 32768, MISTRAL, 14336),
        ServedModel("yi-34b", 34.389e9, 60, 7168, 56, 8, 128, 200000, YI, 20480),
        ServedModel("qwen3-32b", 32.762e9, 64, 5120, 64, 8, 128, 40960, QWEN, 25600),
        _opt("opt-13b", 12.853e9, 40, 5120, 40),
        _opt("opt-66b", 65.717e9, 64, 9216, 72),
        _opt("opt-175b", 174.604e9, 96, 12288, 96),
        _palm("palm-8b", 8.63e9, 32, 4096, 16),
        _palm("palm-62b", 62.50e9, 64, 8192, 32),
        _palm("palm-540b", 540.35e9, 118, 18432, 48),
        _gpt3("gpt3-13b", 13e9, 40, 5120, 40),
        _gpt3("gpt3-101b", 101e9, 80, 10240, 80),
        _gpt3("gpt3-175b", 175e9, 96, 12288, 96),
    )
}

DEFAULT = "llama2-7b"
#: What is needed of a model that is a workload of its own.
DENSE_DECODER = "a dense decoder of text whose sizes are known, such as gpt2, llama3-70b or palm-62b"
#: Types of configurations whose feed-forward layers have three matrices, whether they say so or not.
GATED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "phi3")


def served_model(source: str, config: Mapping[str, Any] | None = None) -> ServedModel:
    """The model called ``source``: in the table, ``zoo:gpt2...``, or described by a parsed HF ``config``."""
    if config is not None:
        return _from_config(source, config)
    if source in SERVED:
        return SERVED[source]
    if source.startswith("zoo:"):
        return _from_zoo(source)
    raise BadInput(f"{source!r:.80} is not a model to serve", "spec.workload.options.model", known_names())


def sizes_of(source: ModelSource) -> ServedModel:
    """Return the sizes of a model that is a workload itself; ``BadInput`` where it is no dense decoder."""
    name, kind = source.zoo or source.name.removeprefix("zoo:"), str(source.config.get("model_type"))
    if name in SERVED:
        return SERVED[name]
    is_other = kind in MIXTURES or (kind in MODEL_TYPES and not MODEL_TYPES[kind].causal)
    if source.program is not None or is_other:
        what = "an exported graph" if source.program is not None else f"a {kind}"
        raise BadInput(f"{name} is {what}", "spec.workload.source", DENSE_DECODER)
    return served_model(f"zoo:{name}" if source.zoo else name, source.config or None)


def generates(source: ModelSource) -> bool:
    """Return whether a model is one of those that have such sizes."""
    try:
        sizes_of(source)
    except BadInput:
        return False
    return True


def known_names() -> str:
    return "one of " + ", ".join(SERVED) + ", zoo:gpt2..., or an HF config.json"


def _from_zoo(source: str) -> ServedModel:
    model = zoo_model(source.removeprefix("zoo:"))
    sizes = model.arguments
    if model.builder != "gpt:gpt" or not {"layers", "width", "heads", "vocabulary", "positions"} <= set(
        sizes
    ):
        raise BadInput(f"{source!r} generates no text", "spec.workload.options.model", known_names())
    layers, hidden, heads = sizes["layers"], sizes["width"], sizes["heads"]
    parameters = _parameters(
        layers, hidden, 4 * hidden, sizes["vocabulary"] + sizes["positions"], gated=False
    )
    name, context = source.removeprefix("zoo:"), sizes["positions"]
    return ServedModel(name, parameters, layers, hidden, heads, heads, hidden // heads, context, "the zoo")


def _from_config(source: str, config: Mapping[str, Any]) -> ServedModel:
    """Reads the names that GPT-2 and Llama-like configurations use; ``BadInput`` names what is missing."""

    def size(*names: str, default: int | None = None) -> int:
        value = next((config[name] for name in names if config.get(name) is not None), default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9:
            return value
        raise BadInput(f"{names[0]} = {value!r:.40}", source, "a decoder-only language model's config.json")

    layers, hidden = size("num_hidden_layers", "n_layer"), size("hidden_size", "n_embd")
    heads = size("num_attention_heads", "n_head")
    kind = config.get("model_type")
    gated = kind in GATED or (kind not in MODEL_TYPES and "hidden_act" in config)
    inner = size("intermediate_size", "n_inner", default=4 * hidden)
    context = size("max_position_embeddings", "n_positions", "n_ctx")
    kv_heads, head_dim = size("num_key_value_heads", default=heads), size("head_dim", default=hidden // heads)
    tied = config.get("tie_word_embeddings", not gated)
    rows = size("vocab_size") * (1 if tied else 2)
    saved = 2 * hidden * (heads - kv_heads) * head_dim * layers
    parameters = _parameters(layers, hidden, inner, rows, gated=gated) - saved
    return ServedModel(
        source, parameters, layers, hidden, heads, kv_heads, head_dim, context, "its config.json", inner
    )


def _parameters(layers: int, hidden: int, inner: int, rows: int, *, gated: bool) -> float:
    """Attention 4 h^2, two or three (gated) h x inner matrices, embeddings; biases and norms left out (below
    1 %).
    """
    return layers * (4 * hidden**2 + (3 if gated else 2) * hidden * inner) + rows * hidden
