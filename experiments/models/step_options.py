"""The options of a model's step with nothing left open. No torch here, so that pages can tell them too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.precision import default_precision, dtype_for
from experiments.models.catalog import ZooModel, zoo_model
from experiments.workloads.hf import (
    MODEL_TYPES,
    PICTURES,
    SEQUENCES,
    TOWER,
    ModelType,
    longest_sequence,
    text_part,
    value_type,
)
from experiments.workloads.model import ModelSource
from experiments.workloads.program import GraphProgram

#: The options whose default is the model's own.
OPEN = ("batch", "sequence", "image", "dtype", "precision", "optimizer")


def defaults_of(source: ModelSource) -> ZooModel:
    """Return batch, sequence, image, dtype and optimizer of a step unless its options say otherwise."""
    if source.zoo:
        return zoo_model(source.zoo)
    if source.program is not None:
        return _of_program(source.program)
    return _of_config(source.config)


def spell_out(options: WorkloadOptions, usual: ZooModel, fp32_gradients: bool = False) -> WorkloadOptions:
    """Return ``options`` with what they leave open filled in from the ``usual`` step of the model.

    A forward pass keeps no model states, so its precision and optimizer stay open.
    """
    dtype = dtype_for(options.dtype, options.precision, usual.dtype)
    filled = replace(
        options,
        batch=options.batch or usual.batch,
        sequence=options.sequence or usual.sequence,
        image=options.image or usual.image,
        dtype=dtype,
    )
    if not options.training:
        return filled
    return replace(
        filled,
        precision=options.precision or default_precision(dtype, fp32_gradients),
        optimizer=options.optimizer or usual.optimizer,
    )


def longest_of(source: ModelSource) -> int | None:
    """Return the most tokens that the model has positions for, where it tells."""
    if source.zoo:
        return zoo_model(source.zoo).arguments.get("positions")
    kind = MODEL_TYPES.get(str(source.config.get("model_type")))
    positions = text_part(source.config).get(kind.positions) if kind else None
    return positions - kind.reserved if kind and isinstance(positions, int) else None


def type_of(config: Mapping[str, Any]) -> ModelType:
    """Return the type of a configuration; ``BadInput`` for one that cannot be built."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise BadInput(
            f"model_type {kind!r:.80} cannot be built", "config", "one of " + ", ".join(MODEL_TYPES)
        )
    return MODEL_TYPES[kind]


def _of_program(program: GraphProgram) -> ZooModel:
    """A step as the file was exported."""
    return ZooModel(
        program.format,
        "from an exported graph",
        "",
        batch=program.batch,
        sequence=program.sequence,
        image=program.image,
        optimizer="sgd" if program.image else "adamw",
        dtype=program.dtype,
    )


def _of_config(config: Mapping[str, Any]) -> ZooModel:
    """A step as the configuration has it, where it says so."""
    kind = type_of(config)
    return ZooModel(
        kind.name,
        "from a configuration",
        "",
        batch=PICTURES if kind.image else SEQUENCES,
        sequence=None if kind.image else longest_sequence(config, kind),
        image=_image_side(config, kind),
        images=bool(kind.parts),
        documents=kind.causal,
        optimizer="adamw",
        dtype=value_type(config, kind),
    )


def _image_side(config: Mapping[str, Any], kind: ModelType) -> int | None:
    if kind.image:
        size = config.get("image_size")
        return size if isinstance(size, int) else 224
    if kind.side or not kind.parts:
        return kind.side or None
    tower = config.get(TOWER)
    size = tower.get("image_size") if isinstance(tower, Mapping) else None
    if not isinstance(size, int):
        raise BadInput(f"{TOWER}.image_size = {size!r:.80}", "config", "the pixels per side of an image")
    return size
