"""A model: the sizes of its configuration, or an exported graph with its inputs and operators."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from experiments.estimates import estimate_llm
from experiments.summaries.drawing import BINS, card, plot, points
from experiments.summaries.summary import summary
from experiments.workloads.mixture import MIXTURES
from experiments.workloads.model import ModelSource
from experiments.workloads.program import GraphProgram
from experiments.workloads.transformer import from_config, has_closed_form

MOST_INPUTS = 8


_SHOWN_OF_CONFIG = (
    "model_type",
    "hidden_size",
    "n_embd",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "vocab_size",
    "intermediate_size",
    "num_local_experts",
)


@summary.register
def _model(value: ModelSource) -> dict[str, Any]:
    config = value.config
    if value.program is not None:
        return _program(value.program)
    cards = [card("model", value.zoo)] if value.zoo else []
    cards += [
        card(name.replace("_", " "), config[name]) for name in _SHOWN_OF_CONFIG if _is_plain(config.get(name))
    ]
    cards += _mixture_cards(value)
    known = has_closed_form(config)
    return {"cards": cards, "estimates": [], "plots": [], "closed_form": known}


def _mixture_cards(value: ModelSource) -> list[dict[str, Any]]:
    """Of a mixture of experts, the parameters of a token."""
    if value.config.get("model_type") not in MIXTURES or not has_closed_form(value.config):
        return []
    sizes = from_config(value.name, value.config, 1)
    return [card("parameters that a token passes", sizes.active_parameters)]


def _program(value: GraphProgram) -> dict[str, Any]:
    """An exported graph: its parameters, its inputs with open sizes by name, and its operators, most frequent
    first.
    """
    weights = value.parameters.values()
    cards = [
        card("parameters", sum(math.prod(weight.shape) for weight in weights)),
        card("size of parameters", sum(weight.bytes for weight in weights), "bytes"),
        card("type", value.dtype),
        card("nodes", len(value.nodes)),
    ]
    for entry in value.inputs[:MOST_INPUTS]:
        sizes = ", ".join(str(size) for size in entry.shape)
        cards.append(card(f"input {entry.name:.40}", f"{entry.dtype} [{sizes}]"))
    cards.append(card("output of the loss", value.output[:80]))
    counts = Counter(node.op for node in value.nodes).most_common(BINS)
    bars = points("nodes", [name for name, _ in counts], [count for _, count in counts])
    return {"cards": cards, "estimates": [], "plots": [plot("Operators", "bar", "operator", "nodes", [bars])]}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def rules_of_thumb(value: ModelSource, parameters: int, batch: int, sequence: int) -> list[dict[str, Any]]:
    """Return what a step of a dense transformer takes, by its shape and its counted parameters."""
    config = value.config
    if config.get("model_type") in MIXTURES:
        return []
    names = (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"))
    shape = [
        next((config[name] for name in pair if isinstance(config.get(name), int)), None) for pair in names
    ]
    vocab = config.get("vocab_size")
    if None in shape or not isinstance(vocab, int):
        return []
    hidden, layers, heads = (int(size) for size in shape if size is not None)
    rows = estimate_llm(hidden, layers, heads, vocab, sequence, batch, 2, parameters)
    return [row.to_json() for row in rows]
