"""Layers that a plan computes otherwise than the model it was made for.

A policy that rewrites operators says with its plan what each layer that it touched takes and keeps now; the
simulator carries the plan out on the model with these layers in place. Layers stay as many and in the same
order: a layer whose work another does now takes no time and passes on what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from experiments.workloads.layers import LayerGraph
from experiments.workloads.ragged import Ragged


@dataclass(frozen=True)
class RewrittenLayer:
    """One layer as it is computed: seconds, FLOPs and bytes for the model's own batch.

    Columns are those of ``LayerGraph``; ``operators`` are the names of what was put in, for people.
    """

    layer: int
    operators: tuple[str, ...]
    forward_seconds: float
    backward_seconds: float
    forward_flops: float
    backward_flops: float
    parameter_bytes: float
    output_bytes: float
    stash_bytes: float
    predecessors: tuple[int, ...]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> RewrittenLayer:
        """Return the layer that ``asdict`` wrote."""
        lists = {name: tuple(row[name]) for name in ("operators", "predecessors")}
        return cls(**{**row, **lists})


#: What a rewritten layer says in the place of a model's columns.
COLUMNS = tuple(
    field.name for field in fields(RewrittenLayer) if field.name not in ("layer", "operators", "predecessors")
)


def rewritten_violations(layers: Sequence[RewrittenLayer], model: LayerGraph) -> Iterator[str]:
    """Yield what is wrong with rewritten layers: twice, not of the model, cyclic, figures that are none."""
    numbers = [row.layer for row in layers]
    if len(set(numbers)) < len(numbers):
        yield "a layer is rewritten twice"
    for row in layers:
        if not 0 <= row.layer < len(model):
            yield f"layer {row.layer} is rewritten, of {len(model)} layers"
        elif any(not 0 <= source < row.layer for source in row.predecessors):
            yield f"layer {row.layer} is rewritten to read one that comes after it"
        elif any(not 0 <= getattr(row, name) < math.inf for name in COLUMNS):
            yield f"layer {row.layer} is rewritten to figures that are negative or no numbers"
    if layers and model.work:
        yield "layers known by their shapes are rewritten by their times"


def rewritten_model(model: LayerGraph, layers: Sequence[RewrittenLayer]) -> LayerGraph:
    """Return ``model`` with ``layers`` in the place of its own; their operators are not those of a source."""
    if not layers:
        return model
    columns = {name: getattr(model, name).copy() for name in COLUMNS}
    read = model.predecessors.lists()
    for row in layers:
        read[row.layer] = list(row.predecessors)
        for name in COLUMNS:
            columns[name][row.layer] = getattr(row, name)
    return replace(model, **columns, predecessors=Ragged.of(read), einsums=())
