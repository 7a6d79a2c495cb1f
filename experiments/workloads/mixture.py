"""Sizes of a mixture of experts and of latent attention, as parts of a transformer known by its sizes.

Sources: Jiang et al., "Mixtral of Experts", 2024 (top-k routing over gated experts); DeepSeek-AI,
"DeepSeek-V2", 2024, sections 2.1 (multi-head latent attention) and 2.2 (shared experts, first blocks dense,
experts of few devices for each token).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mixture:
    """Experts of a block: ``experts`` gated MLPs of inner width ``width``, ``chosen`` of them for each token.

    ``shared`` is the inner width of experts that every token passes (0: none), which ``shared_gate`` weighs
    by one value a token. The blocks numbered ``dense`` have a plain MLP instead. A token's experts are of
    ``chosen_groups`` of ``groups`` groups of neighbors.
    """

    experts: int
    chosen: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    dense: tuple[int, ...] = ()
    groups: int = 1
    chosen_groups: int = 1

    def expert_parameters(self, hidden: int) -> int:
        """Of all experts of a block."""
        return self.experts * 3 * hidden * self.width

    def parameters(self, hidden: int) -> int:
        """Of all that stands in place of a block's MLP, the router among it."""
        shared = 3 * hidden * self.shared + (hidden if self.shared_gate else 0)
        return self.expert_parameters(hidden) + self.experts * hidden + shared

    def active_parameters(self, hidden: int) -> int:
        """What one token passes."""
        idle = self.experts - self.chosen
        return self.parameters(hidden) - idle * 3 * hidden * self.width

    def load(self, parts: int, skew: float, capacity: float = 0.0) -> float:
        """Return the load of the fullest of ``parts`` equal groups of experts over the mean.

        One expert takes ``skew`` times the mean of all, the others share what remains. With a ``capacity``
        each takes so many times the mean, cut off or filled up.
        """
        if capacity:
            return capacity
        if self.experts == 1:
            return 1.0
        each = self.experts / parts
        others = (self.experts - skew) / (self.experts - 1)
        return (skew + (each - 1) * others) / each

    def nodes_reached(self, nodes: int) -> float:
        """Return on how many of ``nodes`` that share the experts a token has any, at even choices.

        It draws its experts from those of the groups that it chose; a node of several groups has all of them.
        """
        limited = nodes % self.groups == 0
        open_nodes = nodes * self.chosen_groups // self.groups if limited else nodes
        drawn_from, own = open_nodes * self.experts // nodes, self.experts // nodes
        missed = math.comb(drawn_from - own, self.chosen) / math.comb(drawn_from, self.chosen)
        return open_nodes * (1 - missed)


@dataclass(frozen=True)
class LatentAttention:
    """Queries, keys and values that come from short vectors of ``query`` and ``key_value`` values a token.

    ``query`` 0: straight from the hidden values. A head's query and key have ``plain`` values and ``rotary``
    ones, of which a key's are the same for all heads; its value has ``value``.
    """

    query: int
    key_value: int
    plain: int
    rotary: int
    value: int

    @property
    def key(self) -> int:
        """Values of a head's query, and of its key."""
        return self.plain + self.rotary

    def weights(self, hidden: int, heads: int) -> int:
        """Elements of all matrices but the projection behind attention."""
        queries = self.query * (hidden + heads * self.key) if self.query else hidden * heads * self.key
        return queries + hidden * (self.key_value + self.rotary) + self._up(heads)

    def _up(self, heads: int) -> int:
        return self.key_value * heads * (self.plain + self.value)

    @property
    def norm_parameters(self) -> int:
        return self.query + self.key_value


Config = Mapping[str, Any]


def _every_block(config: Config) -> Mixture:
    return Mixture(config["num_local_experts"], config["num_experts_per_tok"], config["intermediate_size"])


def _qwen(config: Config) -> Mixture:
    """Every ``decoder_sparse_step``-th block but those listed."""
    step, listed = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    blocks = range(config["num_hidden_layers"])
    dense = tuple(block for block in blocks if block in listed or (block + 1) % step)
    shared = config["shared_expert_intermediate_size"] if config["model_type"] == "qwen2_moe" else 0
    return Mixture(
        config["num_experts"],
        config["num_experts_per_tok"],
        config["moe_intermediate_size"],
        shared=shared,
        shared_gate=bool(shared),
        dense=dense,
    )


def _deepseek(config: Config) -> Mixture:
    width = config["moe_intermediate_size"]
    return Mixture(
        config["n_routed_experts"],
        config["num_experts_per_tok"],
        width,
        shared=config["n_shared_experts"] * width,
        dense=tuple(range(min(config["first_k_dense_replace"], config["num_hidden_layers"]))),
        groups=config.get("n_group") or 1,
        chosen_groups=config.get("topk_group") or 1,
    )


#: By the ``model_type`` of Hugging Face configurations.
MIXTURES: Mapping[str, Callable[[Config], Mixture]] = {
    "mixtral": _every_block,
    "qwen2_moe": _qwen,
    "qwen3_moe": _qwen,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}


_DEEPSEEK_SIZES = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
_QWEN_SIZES = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
#: What a configuration has to say of its experts.
MIXTURE_SIZES: Mapping[str, tuple[str, ...]] = {
    "mixtral": ("num_local_experts", "num_experts_per_tok"),
    "qwen2_moe": (*_QWEN_SIZES, "shared_expert_intermediate_size"),
    "qwen3_moe": _QWEN_SIZES,
    "deepseek_v2": (*_DEEPSEEK_SIZES, "n_shared_experts", "first_k_dense_replace"),
    "deepseek_v3": (*_DEEPSEEK_SIZES, "n_shared_experts", "first_k_dense_replace"),
}
LATENT_SIZES = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def latent_attention(config: Config) -> LatentAttention:
    """That of a DeepSeek configuration."""
    return LatentAttention(
        query=config.get("q_lora_rank") or 0,
        key_value=config["kv_lora_rank"],
        plain=config["qk_nope_head_dim"],
        rotary=config["qk_rope_head_dim"],
        value=config["v_head_dim"],
    )
