"""``build(source)``: a model source as a torch module with its batch.

Models of the zoo have no dropout: a step is then a function of its tensors alone, and a captured graph, an
eager run and a run with recomputed ops agree bit for bit (``docs/decisions``). A configuration's own dropout
is kept in training, unless the option ``dropout`` is false; then they agree where they draw from the same
state.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import torch

from experiments.core.errors import BadInput
from experiments.core.options import PLANNED_ATTENTION, WorkloadOptions
from experiments.core.precision import default_precision
from experiments.models.catalog import ZooModel, zoo_model
from experiments.models.fine_tuning import adapt
from experiments.models.model import Geometry, Model
from experiments.models.parts import freeze
from experiments.models.step_options import defaults_of, spell_out
from experiments.models.token_loss import with_loss
from experiments.workloads.hf import dropouts
from experiments.workloads.model import ModelSource
from experiments.workloads.samples import check_documents, refuse_documents, refuse_images

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16")}


@dataclass(frozen=True)
class Chosen:
    """The options of a step with every default filled in."""

    geometry: Geometry
    dtype: str
    precision: str
    optimizer: str
    training: bool
    attention: str


def chosen(source: ModelSource) -> Chosen:
    """What ``source.options`` leave open, filled in from the model's own defaults."""
    usual = defaults_of(source)
    _refuse_foreign_sizes(source.name, source.options, usual)
    options = spell_out(source.options, usual)
    geometry = Geometry(
        options.batch or usual.batch,
        options.sequence or 0,
        options.image or 0,
        options.images,
        options.document,
    )
    check_documents(geometry.sequence, options)
    dtype = options.dtype or usual.dtype
    precision = options.precision or default_precision(dtype)
    optimizer = options.optimizer or usual.optimizer
    return Chosen(geometry, dtype, precision, optimizer, options.training, options.attention)


def _refuse_foreign_sizes(name: str, options: WorkloadOptions, defaults: ZooModel) -> None:
    for size in ("sequence", "image"):
        if getattr(options, size) is not None and getattr(defaults, size) is None:
            raise BadInput(f"{name} has no {size}", f"options.{size}", "the option left out")
    if not defaults.images:
        refuse_images(name, options)
    if not defaults.documents:
        refuse_documents(name, "causal attention" if defaults.sequence else "sequence", options)


def build(source: ModelSource, weights: bool = True) -> Model:
    """The model in float32, in training or evaluation mode. Seed torch first for repeatable weights.

    ``weights=False`` may leave them uninitialized: for fake tensors, which hold no values anyway.
    """
    evaluation_only = zoo_model(source.zoo).evaluation_only if source.zoo else ""
    if source.options.training and evaluation_only:
        raise BadInput(f"has no training step: {evaluation_only}", source.name, "options.training false")
    if source.options.dropout and not dropouts(source.config):
        raise BadInput(f"{source.name} has no dropout", "options.dropout", "false")
    if source.options.attention in PLANNED_ATTENTION:
        what = f"{source.name} is built, and {source.options.attention} is known in closed form alone"
        raise BadInput(what, "options.attention", "auto, math or flash")
    geometry = chosen(source).geometry
    model = _build(source, geometry, weights)
    if source.options.training and next(model.module.parameters(), None) is None:
        raise BadInput(
            "has no parameters to train", source.name, "options.training false, or a model with some"
        )
    adapt(model.module, source.options, source.options.training)
    parts = source.micro_batches * source.options.accumulate
    model = with_loss(model, source.options, geometry.batch * geometry.sequence // parts)
    freeze(model.module, source.options.frozen)
    model.module.train(source.options.training)
    return model


def _build(source: ModelSource, geometry: Geometry, weights: bool) -> Model:
    if source.program is not None:
        from experiments.models.from_program import from_program

        return from_program(source.program, geometry, weights, source.options.training)
    if not source.zoo:
        from experiments.models.from_config import from_config

        return from_config(source.config, geometry, weights, source.draws_dropout)
    entry = zoo_model(source.zoo)
    module_name, function = entry.builder.split(":")
    builder: Any = getattr(importlib.import_module(f"experiments.models.{module_name}"), function)
    model: Model = builder(geometry, **{**entry.arguments, **source.sizes})
    return model
