"""A plan's space as JSON, ``{"model": "pool", "kind": "best_fit"}``; also from plans stored before it was one
field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from experiments.core.errors import BadInput
from experiments.memory.interface.record import load_record
from experiments.memory.interface.release import PagingRelease, Release, TwoEndedRelease, WaitingRelease
from experiments.memory.interface.space import (
    CACHED_STORAGE,
    CorrelationPaging,
    CountedBytes,
    DemandPaging,
    LinePaging,
    MemoryPool,
    Paging,
    ReadAheadPaging,
    Space,
)

#: What a space can be, by the name in JSON.
MODELS: Mapping[str, type[Space]] = {
    kind.model: kind
    for kind in (
        CountedBytes,
        MemoryPool,
        DemandPaging,
        ReadAheadPaging,
        CorrelationPaging,
        LinePaging,
        TwoEndedRelease,
        WaitingRelease,
        PagingRelease,
    )
}
#: The fields that a plan had instead of ``space``; at most one of them was set.
FORMER = ("pool", "paging", "artifact")


def space_json(space: Space) -> dict[str, Any]:
    return {"model": space.model, **dataclasses.asdict(space)}


def load_space(plan: Mapping[str, Any]) -> Space:
    """Return the space that the JSON of a plan asks for; ``BadInput`` names the field that is wrong."""
    given = [name for name in ("space", *FORMER) if plan.get(name) is not None]
    if len(given) > 1:
        raise BadInput(f"has {given[0]} and {given[1]}", "plan", "one of them")
    if not given:
        return CountedBytes()
    name, row = given[0], plan[given[0]]
    if name == "space":
        return _load_model(row)
    if name == "pool":
        return load_record(MemoryPool, row, "plan.pool")
    return _former_paging(row) if name == "paging" else _former_release(row)


def _load_model(row: Mapping[str, Any]) -> Space:
    values = dict(row)
    model = str(values.pop("model", None))
    if model not in MODELS:
        raise BadInput(f"unknown model {model!r}", "plan.space", "one of " + ", ".join(MODELS))
    return load_record(MODELS[model], values, "plan.space")


def _former_paging(row: Mapping[str, Any]) -> Paging:
    """Return the mechanism that was one flag among several: lines, correlation, read-ahead, or
    none of them.
    """
    values = dict(row)
    ahead, degree = values.pop("read_ahead", 0), values.pop("correlation", 0)
    lines = {name: values.pop(name) for name in ("line_bytes", "line_share", "ratio") if name in values}
    if values.pop("cached_in_host", False) and values.get("backing") == "storage":
        values["backing"] = CACHED_STORAGE
    by_lines = bool(lines.get("line_bytes")) or lines.get("ratio", 1.0) != 1.0
    if bool(ahead) + bool(degree) + by_lines > 1:
        raise BadInput("fetches by more than one mechanism", "plan.paging", "one of them")
    if by_lines:
        return load_record(LinePaging, values | lines, "plan.paging")
    if degree:
        return load_record(CorrelationPaging, values | {"degree": degree}, "plan.paging")
    if ahead:
        return load_record(ReadAheadPaging, values | {"window": ahead}, "plan.paging")
    return load_record(DemandPaging, values, "plan.paging")


#: The engines of a published release by their former names, and the options that each had.
ENGINES: Mapping[str, tuple[type[Release], tuple[str, ...]]] = {
    "two_ended": (TwoEndedRelease, ()),
    "waiting": (WaitingRelease, ("space_factor",)),
    "paging": (PagingRelease, ("lookahead", "keeps_dead", "block_bytes")),
}


def _former_release(row: Mapping[str, Any]) -> Release:
    engine = str(row.get("engine"))
    if engine not in ENGINES:
        raise BadInput(f"unknown engine {engine!r}", "plan.artifact", "one of " + ", ".join(ENGINES))
    kind, options = ENGINES[engine]
    return load_record(kind, {name: row[name] for name in options if name in row}, "plan.artifact")
