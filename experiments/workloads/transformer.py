"""A decoder-only transformer by its sizes: what its operators compute, move, keep and hold, in closed form.

Sources: Narayanan et al., SC'21, section 5.1 (FLOPs); Korthikanti et al., MLSys'23, section 4 (what each
operator keeps for the backward pass). Products are counted whole, without the saving of a causal mask, as
both papers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.workloads.hf import dropouts
from experiments.workloads.mixture import (
    LATENT_SIZES,
    MIXTURE_SIZES,
    MIXTURES,
    LatentAttention,
    Mixture,
    latent_attention,
)


@dataclass(frozen=True)
class Transformer:
    """Sizes. ``kv_heads`` below ``heads`` is grouped-query attention; a ``gated`` MLP has three matrices.

    ``bias`` are the biases of the linear layers: all, only those of query, key and value, or none.
    ``positions`` are learned (0: rotary or none). A model without ``vocabulary`` ends behind its last block
    and has no embedding, one with ``embedding_norm`` normalizes it. ``rms`` norms have a scale only, as have
    others without ``norm_bias``. ``fused_qkv`` computes query, key and value in one
    product, ``fused_gate`` both first matrices of a gated MLP. ``head_norms`` are RMS norms of each head's
    query and key, one scale for all heads. ``dropout`` keeps masks. Attention stays within documents of
    ``document`` tokens, 0: a sample is one. Blocks of a ``mixture`` have experts in place of the MLP; with
    ``latent`` attention ``head_size`` is that of queries and keys.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    head_size: int
    feedforward: int
    sequence: int
    kv_heads: int
    vocabulary: int = 0
    positions: int = 0
    tied: bool = True
    gated: bool = False
    rms: bool = False
    norm_bias: bool = True
    embedding_norm: bool = False
    rotary: bool = False
    bias: str = "all"
    fused_qkv: bool = True
    fused_gate: bool = False
    head_norms: bool = False
    final_norm: bool = True
    dropout: bool = False
    document: int = 0
    mixture: Mixture | None = None
    latent: LatentAttention | None = None

    @property
    def span(self) -> int:
        """Tokens that attend to one another."""
        return self.document or self.sequence

    @property
    def attention_width(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def value_size(self) -> int:
        """Of a head's value, and of what attention makes for it."""
        return self.latent.value if self.latent else self.head_size

    @property
    def context_width(self) -> int:
        """Values that attention makes for each token."""
        return self.heads * self.value_size

    @property
    def cached_width(self) -> int:
        """Keys and values of a token."""
        return self.kv_heads * (self.head_size + self.value_size)

    @property
    def norm_parameters(self) -> int:
        return 2 * self.hidden if self.norm_bias and not self.rms else self.hidden

    def linear_parameters(self, inputs: int, outputs: int, role: str = "") -> int:
        """Weight and bias of a linear layer; ``role`` "qkv" for query, key and value."""
        biased = self.bias == "all" or (self.bias == "qkv" and role == "qkv")
        return inputs * outputs + (outputs if biased else 0)

    def has_experts(self, block: int) -> bool:
        return self.mixture is not None and block not in self.mixture.dense

    @property
    def block_parameters(self) -> int:
        """Of a block; of one with experts where the model has any."""
        return self._block_parameters(self.mixture)

    def _block_parameters(self, mixture: Mixture | None) -> int:
        mlp = mixture.parameters(self.hidden) if mixture else self.dense_parameters
        return self.attention_parameters + mlp + self.block_norm_parameters

    @property
    def block_norm_parameters(self) -> int:
        """Of a block's two norms, and of those of its heads."""
        return 2 * self.norm_parameters + (2 * self.head_size if self.head_norms else 0)

    @property
    def attention_parameters(self) -> int:
        """Of a block's attention, with norms of its own but those of heads."""
        out = self.linear_parameters(self.context_width, self.hidden)
        if self.latent:
            return self.latent.weights(self.hidden, self.heads) + self.latent.norm_parameters + out
        qkv = self.linear_parameters(self.hidden, self.attention_width, "qkv")
        return qkv + 2 * self.linear_parameters(self.hidden, self.kv_width, "qkv") + out

    @property
    def dense_parameters(self) -> int:
        """Of a block's MLP where it has no experts."""
        mlp = (2 if self.gated else 1) * self.linear_parameters(self.hidden, self.feedforward)
        return mlp + self.linear_parameters(self.feedforward, self.hidden)

    @property
    def _blocks_parameters(self) -> int:
        dense = len(self.mixture.dense) if self.mixture else 0
        found = dense * self._block_parameters(None)
        return found + (self.layers - dense) * self.block_parameters

    @property
    def parameters(self) -> int:
        """Of the whole model; a tied output layer is counted once."""
        found = self._blocks_parameters
        if not self.vocabulary:
            return found
        embeddings = (1 if self.tied else 2) * self.vocabulary * self.hidden + self.positions * self.hidden
        norms = int(self.final_norm) + int(self.embedding_norm)
        return found + embeddings + norms * self.norm_parameters

    @property
    def active_parameters(self) -> int:
        """Of the whole model, those that one token passes."""
        if self.mixture is None:
            return self.parameters
        idle = self.mixture.parameters(self.hidden) - self.mixture.active_parameters(self.hidden)
        return self.parameters - (self.layers - len(self.mixture.dense)) * idle

    @property
    def block_flops(self) -> float:
        """FLOPs of one block's forward pass over a sample; of one with experts where the model has any.

        2 for each weight and token, 4 s^2 a d for scores and context (of each document, where it has
        several).
        """
        return self._block_flops(self.mixture)

    def _block_flops(self, mixture: Mixture | None) -> float:
        s = self.sequence
        weights = self.context_width * self.hidden
        if self.latent:
            weights += self.latent.weights(self.hidden, self.heads)
        else:
            weights += self.hidden * (self.attention_width + 2 * self.kv_width)
        dense = (3 if self.gated else 2) * self.hidden * self.feedforward
        weights += mixture.active_parameters(self.hidden) if mixture else dense
        return 2.0 * s * weights + 2.0 * s * self.span * (self.attention_width + self.context_width)

    @property
    def forward_flops(self) -> float:
        """Of a sample's forward pass, logits included."""
        dense = len(self.mixture.dense) if self.mixture else 0
        blocks = dense * self._block_flops(None) + (self.layers - dense) * self.block_flops
        return blocks + 2.0 * self.sequence * self.hidden * self.vocabulary


#: Sizes that every mixture's configuration has to give.
SHAPE = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")


def from_config(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """The model of a checked Hugging Face configuration.

    ``BadInput`` when a size is missing or does not divide.
    """
    family = config["model_type"]
    try:
        found = _BUILDERS[family](name, config, sequence)
    except KeyError as error:
        raise BadInput(f"{error.args[0]} is missing", name, f"a {family} configuration") from None
    if found.heads % found.kv_heads:
        what = f"{found.heads} heads do not share {found.kv_heads} key-value heads"
        raise BadInput(what, name, "heads that are a multiple of the key-value heads")
    return found


def has_closed_form(config: Mapping[str, Any]) -> bool:
    """Whether every operator of the configuration is one that ``Transformer`` describes."""
    if config.get("model_type") not in FAMILIES:
        return False
    projects = config.get("word_embed_proj_dim", config.get("hidden_size")) != config.get("hidden_size")
    unusual = projects or config.get("add_cross_attention") or config.get("_remove_final_layer_norm")
    post_norm = config.get("do_layer_norm_before") is False
    if unusual or post_norm or config.get("mlp_bias") or _lacks_sizes(config):
        return False
    return not _biased_llama(config) and not _rotates_partly(config) and not _has_windows(config)


def _lacks_sizes(config: Mapping[str, Any]) -> bool:
    """Whether a mixture leaves sizes to its type's defaults, or has experts where we do not know of them."""
    kind = str(config.get("model_type"))
    if kind not in MIXTURES:
        return False
    latent = LATENT_SIZES if kind in ("deepseek_v2", "deepseek_v3") else ()
    sizes = (*MIXTURE_SIZES[kind], *latent, *SHAPE)
    return config.get("moe_layer_freq", 1) != 1 or any(config.get(name) is None for name in sizes)


def _biased_llama(config: Mapping[str, Any]) -> bool:
    """Whether the output of attention has a bias too."""
    kinds = ("llama", "mistral", "gemma", "qwen3", "qwen3_moe", "deepseek_v2", "deepseek_v3")
    return bool(config.get("attention_bias")) and config.get("model_type") in kinds


def _rotates_partly(config: Mapping[str, Any]) -> bool:
    """Whether a Phi-3 turns a part of each head only."""
    share = config.get("partial_rotary_factor", 1.0)
    share = (config.get("rope_parameters") or {}).get("partial_rotary_factor", share)
    return config.get("model_type") == "phi3" and share != 1.0


def _has_windows(config: Mapping[str, Any]) -> bool:
    """Whether some layers of a Qwen3 see a window of tokens, or a Gemma sees those that follow."""
    layers = config.get("layer_types") or ()
    sliding = config.get("use_sliding_window") or any(kind != "full_attention" for kind in layers)
    return bool(sliding and config.get("model_type") in ("qwen3", "qwen2_moe", "qwen3_moe")) or bool(
        config.get("use_bidirectional_attention")
    )


def _dropout(config: Mapping[str, Any]) -> bool:
    """Whether the configuration itself asks for dropout on activations."""
    return bool(dropouts(config))


def _gpt2(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    hidden, heads = config.get("n_embd", 768), config.get("n_head", 12)
    return Transformer(
        name,
        layers=config.get("n_layer", 12),
        hidden=hidden,
        heads=heads,
        head_size=hidden // heads,
        feedforward=config.get("n_inner") or 4 * hidden,
        sequence=sequence,
        kv_heads=heads,
        vocabulary=config.get("vocab_size", 50257),
        positions=config.get("n_positions", 1024),
        tied=bool(config.get("tie_word_embeddings", True)),
        dropout=_dropout(config),
    )


def _from_sizes(
    name: str, config: Mapping[str, Any], sequence: int, *, feedforward: str, tied: bool
) -> Transformer:
    """With the names of sizes that most families share; ``feedforward`` is that of the inner width, ``tied``
    the default.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    return Transformer(
        name,
        layers=config["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        head_size=hidden // heads,
        feedforward=config[feedforward],
        sequence=sequence,
        kv_heads=heads,
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", tied)),
    )


def _neox(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    sized = _from_sizes(name, config, sequence, feedforward="intermediate_size", tied=False)
    return replace(sized, rotary=True, dropout=_dropout(config))


def _opt(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    sized = _from_sizes(name, config, sequence, feedforward="ffn_dim", tied=True)
    positions = config.get("max_position_embeddings", 2048) + 2
    return replace(sized, positions=positions, fused_qkv=False, dropout=_dropout(config))


def _starcoder(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A GPT with grouped-query attention and rotary positions."""
    sized = _from_sizes(name, config, sequence, feedforward="intermediate_size", tied=True)
    return replace(
        sized,
        kv_heads=config.get("num_key_value_heads") or 2,
        rotary=True,
        bias="all" if config.get("use_bias", True) else "none",
        fused_qkv=False,
        dropout=_dropout(config),
    )


def _llama(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    sized = _from_sizes(name, config, sequence, feedforward="intermediate_size", tied=False)
    return replace(
        sized,
        head_size=config.get("head_dim") or sized.head_size,
        kv_heads=config.get("num_key_value_heads") or sized.heads,
        gated=True,
        rms=True,
        rotary=True,
        bias="qkv" if config["model_type"] == "qwen2" else "none",
        fused_qkv=False,
    )


def _gemma(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A Llama whose heads are wider than hidden / heads; its norms scale by 1 + weight."""
    kv_heads = config.get("num_key_value_heads", 16)
    sized = _llama(name, {"head_dim": 256, **config}, sequence)
    return replace(sized, kv_heads=kv_heads, tied=bool(config.get("tie_word_embeddings", True)))


def _qwen3(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A Llama that normalizes every query and key."""
    sized = _llama(name, {"head_dim": 128, "num_key_value_heads": 32, **config}, sequence)
    return replace(sized, head_norms=True)


def _mixtral(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A Llama whose MLPs are experts; Qwen's first had biases of query, key and value."""
    sized = _llama(name, config, sequence)
    biased = config["model_type"] == "qwen2_moe" and config.get("qkv_bias", True)
    return replace(sized, bias="qkv" if biased else "none", mixture=MIXTURES[config["model_type"]](config))


def _qwen3_moe(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    return replace(_mixtral(name, config, sequence), head_norms=True)


def _deepseek(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A mixture with latent attention, which has a key for every head."""
    latent = latent_attention(config)
    sized = _mixtral(name, {**config, "head_dim": latent.key}, sequence)
    return replace(sized, kv_heads=sized.heads, latent=latent)


def _phi3(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A Llama with two products fewer in each block, and dropout behind both of its halves."""
    sized = _llama(name, config, sequence)
    return replace(sized, fused_qkv=True, fused_gate=True, dropout=_dropout(config))


def _mpt(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A GPT whose scores lean on distance (ALiBi) in place of positions, usually without biases."""
    hidden, heads = config.get("d_model", 2048), config.get("n_heads", 16)
    biased = not config.get("no_bias", True)
    return Transformer(
        name,
        layers=config.get("n_layers", 24),
        hidden=hidden,
        heads=heads,
        head_size=hidden // heads,
        feedforward=config.get("expansion_ratio", 4) * hidden,
        sequence=sequence,
        kv_heads=heads,
        vocabulary=config.get("vocab_size", 50368),
        norm_bias=False,
        bias="all" if biased else "none",
        dropout=_dropout(config),
    )


def _bloom(name: str, config: Mapping[str, Any], sequence: int) -> Transformer:
    """A GPT whose scores lean on distance (ALiBi) and whose embedding is normalized."""
    hidden = config.get("n_embed") or config.get("hidden_size", 64)
    heads = config.get("num_attention_heads") or config.get("n_head", 8)
    return Transformer(
        name,
        layers=config.get("n_layer") or config.get("num_hidden_layers", 2),
        hidden=hidden,
        heads=heads,
        head_size=hidden // heads,
        feedforward=4 * hidden,
        sequence=sequence,
        kv_heads=heads,
        vocabulary=config.get("vocab_size", 250880),
        embedding_norm=True,
        dropout=_dropout(config),
    )


_BUILDERS: Mapping[str, Callable[[str, Mapping[str, Any], int], Transformer]] = {
    "gpt2": _gpt2,
    "gpt_neox": _neox,
    "opt": _opt,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "starcoder2": _starcoder,
    "gemma": _gemma,
    "qwen3": _qwen3,
    "mixtral": _mixtral,
    "qwen2_moe": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "phi3": _phi3,
    "mpt": _mpt,
    "bloom": _bloom,
}
#: Families of Hugging Face configurations that are decoder-only transformers of these operators.
FAMILIES = tuple(_BUILDERS)
