"""Models from Hugging Face configurations, built offline by ``transformers`` from the configuration alone."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput, LabError
from experiments.models.documents import divide_documents
from experiments.models.dropout import keep_masks
from experiments.models.images_and_text import images_and_text
from experiments.models.logits import Logits
from experiments.models.model import Geometry, InputSpec, Model, Objective, classification
from experiments.models.step_options import type_of
from experiments.workloads.hf import TEXT, TOWER, ModelType, check_config

#: Loggers that warn of what no reader of a run can change: kernels that this host has no library for.
TALKATIVE = ("transformers", "torchao", "torch.utils._pytree")
#: What ``transformers`` raises on a configuration whose values do not fit one another.
MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def from_config(
    config: Mapping[str, Any], geometry: Geometry, weights: bool = True, dropout: bool = False
) -> Model:
    """The model of ``config``, without its ``dropout`` unless that is asked for.

    ``weights=False`` skips initialization, which fake tensors cannot all follow.
    """
    kind = type_of(config)
    fields, _ = check_config(config, "config")
    inner = _built(kind, fields, weights, geometry.document, dropout)
    if dropout:
        keep_masks(inner)
    _check_length(kind, inner.config, geometry)
    if kind.parts:
        return images_and_text(inner, geometry)
    classes = inner.config.num_labels if kind.image else inner.config.vocab_size
    names, inputs, target = _batch(kind, geometry, int(classes))
    facts = {"hf": kind.name, **({"document": geometry.document} if geometry.document else {})}
    body = Logits(inner, names, geometry.document)
    return Model(Objective(body, classification), (*inputs, target), facts=facts)


def _check_length(kind: ModelType, config: Any, geometry: Geometry) -> None:
    longest = getattr(config.get_text_config(), kind.positions, None)
    if not isinstance(longest, int) or kind.two_sided:
        return
    what = "document" if geometry.document else "sequence"
    length = geometry.document or geometry.sequence
    if length > longest - kind.reserved:
        limit = f"at most {longest - kind.reserved}"
        raise BadInput(f"{what} {length} is too long", f"options.{what}", limit)


def _batch(
    kind: ModelType, geometry: Geometry, classes: int
) -> tuple[tuple[str, ...], tuple[InputSpec, ...], InputSpec]:
    if kind.image:
        pictures = InputSpec("pixel_values", (geometry.batch, 3, geometry.image, geometry.image))
        return ("pixel_values",), (pictures,), InputSpec("target", (geometry.batch,), classes)
    shape = (geometry.batch, geometry.sequence)
    names = ("input_ids", "decoder_input_ids") if kind.two_sided else ("input_ids",)
    return (
        names,
        tuple(InputSpec(name, shape, classes) for name in names),
        InputSpec("target", shape, classes),
    )


def _built(kind: ModelType, fields: Mapping[str, Any], weights: bool, document: int, dropout: bool) -> Any:
    """The ``transformers`` module; a configuration that it refuses is bad input."""
    try:
        import transformers
        from huggingface_hub.errors import StrictDataclassError
        from transformers.initialization import no_init_weights
    except ImportError:
        raise LabError("building from a config.json needs the package transformers, version 5") from None
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        config = transformers.AutoConfig.for_model(**fields)
        for part, name in () if dropout else _dropout_rates(config):
            setattr(part, name, 0.0)
        config.use_cache = False
        if document:
            divide_documents(config, document)
        with contextlib.nullcontext() if weights else no_init_weights():
            model = getattr(transformers, kind.head).from_config(config, trust_remote_code=False)
        model.tie_weights()
        return model
    except (*MISFITS, StrictDataclassError) as error:
        text = " ".join(str(error).split())
        raise BadInput(f"cannot be built: {text:.200}", "config", "sizes that fit one another") from error


def _dropout_rates(config: Any) -> list[tuple[Any, str]]:
    """Return the configuration's dropout rates that are not 0, each with the part that it stands in."""
    names = (TEXT, TOWER, "attn_config")
    parts = (config, *(getattr(config, name) for name in names if hasattr(config, name)))
    rates = [(part, *row) for part in parts for row in part.to_dict().items()]
    return [
        (part, name) for part, name, value in rates if "drop" in name and isinstance(value, float) and value
    ]
