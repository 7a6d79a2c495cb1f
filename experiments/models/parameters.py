"""Where the parameters of a model are, before anything of it runs: exact, by kind of module."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from experiments.models.catalog import zoo_model
from experiments.workloads.model import ModelSource
from experiments.workloads.transformer import from_config, has_closed_form
from experiments.workloads.transformer_parameters import Held, parameters_by_module

#: A position in a list of like modules, and the modules of ours around a model.
PLACE, AROUND = re.compile(r"\.\d+(?=\.|$)"), re.compile(r"^(body\.)?(inner\.)?")


def count_parameters(source: ModelSource) -> list[Held]:
    """Return the modules that hold parameters, in their order; weights that two share are counted once.

    A transformer in closed form needs no torch; any other model is built on the meta device, without values.
    """
    config = source.config or (zoo_model(source.zoo).config if source.zoo else {})
    if has_closed_form(config):
        return parameters_by_module(from_config(source.name, config, 1))
    return _count_built(source)


def _count_built(source: ModelSource) -> list[Held]:
    import torch

    from experiments.models.build import build

    whole = replace(source, options=replace(source.options, training=False))
    with torch.device("meta"):
        module = build(whole, weights=False).module
    modules: dict[str, set[str]] = {}
    held: Counter[str] = Counter()
    for name, parameter in module.named_parameters():
        owner, kind = _kind_of(name)
        modules.setdefault(kind, set()).add(owner)
        held[kind] += parameter.numel()
    return [Held(kind, len(modules[kind]), count) for kind, count in held.items()]


def _kind_of(name: str) -> tuple[str, str]:
    """``layers.3.attention.query.weight``: the part of a list's member that holds it, and its kind.

    Here ``layers.3.attention`` and ``layers.*.attention``; outside of lists the outermost modules that hold
    parameters of their own.
    """
    path = AROUND.sub("", name).split(".")[:-1]
    last = max((place for place, word in enumerate(path) if word.isdigit()), default=None)
    owner = ".".join(path if last is None else path[: last + 2])
    return owner, PLACE.sub(".*", owner) or "itself"
