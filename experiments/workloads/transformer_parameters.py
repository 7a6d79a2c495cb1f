"""Where the parameters of a transformer that is known by its sizes are, by kind of module."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.workloads.transformer import Transformer

EXPERTS = "experts"


@dataclass(frozen=True)
class Held:
    """``parameters`` of all ``times`` modules of one kind together."""

    module: str
    times: int
    parameters: int


def parameters_by_module(model: Transformer) -> list[Held]:
    """Return the modules in the order of the forward pass; they add up to ``model.parameters``."""
    blocks = model.layers
    found = [
        _held("token embedding", bool(model.vocabulary), model.vocabulary * model.hidden),
        _held("learned positions", bool(model.vocabulary), model.positions * model.hidden),
        _held("attention", blocks, model.attention_parameters),
        *_feedforward(model),
        _held("norms of blocks", blocks, model.block_norm_parameters),
        _held("other norms", _outer_norms(model), model.norm_parameters),
        _held("output layer", bool(model.vocabulary) and not model.tied, model.vocabulary * model.hidden),
    ]
    return [one for one in found if one.parameters]


def _held(module: str, times: int, each: int) -> Held:
    return Held(module, int(times), int(times) * each)


def _feedforward(model: Transformer) -> list[Held]:
    mixture = model.mixture
    if mixture is None:
        return [_held("MLP", model.layers, model.dense_parameters)]
    sparse = model.layers - len(mixture.dense)
    experts = mixture.expert_parameters(model.hidden)
    return [
        _held("MLP", len(mixture.dense), model.dense_parameters),
        Held(EXPERTS, sparse * mixture.experts, sparse * experts),
        _held("router and shared experts", sparse, mixture.parameters(model.hidden) - experts),
    ]


def _outer_norms(model: Transformer) -> int:
    return (int(model.final_norm) + int(model.embedding_norm)) if model.vocabulary else 0
