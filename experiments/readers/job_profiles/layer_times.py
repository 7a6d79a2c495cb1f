"""Layer profiles of a serving engine: ``dense.csv``, ``per_sequence.csv``, ``attention.csv``, and for unequal
contexts ``skew_fit.csv`` with its edges in ``meta.yaml`` (the layout of LLMServingSim 2.0).

Of an engine that attends to each prompt by itself ``meta.yaml`` says so: ``attention: {prompts: apart}``.
``wake.csv``, which our own engine's have too, tells how much longer a step takes after a pause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import Table, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.layer_times import (
    AttentionTimes,
    Curve,
    LayerTimes,
    Steady,
    UnequalContexts,
)

NEEDED = ("dense.csv", "per_sequence.csv", "attention.csv")
MICROSECOND = 1e-6
LARGEST_META = 1 << 18
#: Layers without which nothing can be priced.
LAYERS = ("qkv_proj", "o_proj", "down_proj", "layernorm", "embedding", "final_layernorm")
HEADS = ("lm_head", "sampler")
#: The axes of a bucket in ``meta.yaml``, in the order of ``UnequalContexts``.
AXES = ("n", "skew_rate", "kv_big", "kp")


def _files(members: Sequence[Member]) -> dict[str, Member]:
    return {member.name.replace("\\", "/").rsplit("/", 1)[-1].split(": ")[-1]: member for member in members}


def _recognizes(members: Sequence[Member]) -> bool:
    return set(NEEDED) <= set(_files(members))


def _read(members: Sequence[Member], name: str) -> LayerTimes:
    found = [member for member in members if member.name.endswith("dense.csv")]
    if len(found) > 1:
        folders = ", ".join(member.name.removesuffix("dense.csv") for member in found[:6])
        raise BadInput(f"has {len(found)} profiles", name, f"one of its folders: {folders}")
    files = _files(members)
    meta = _meta(files.get("meta.yaml"))
    ranks = _ranks(f"{name}/{found[0].name}", meta)
    dense = _curves(files["dense.csv"], "tokens")
    heads = _curves(files["per_sequence.csv"], "sequences")
    for known, wanted, file in ((dense, LAYERS, "dense.csv"), (heads, HEADS, "per_sequence.csv")):
        for layer in wanted:
            if layer not in known:
                raise BadInput(
                    f"has no layer {layer}", f"{name}: {file}", f"a curve of it beside {', '.join(known)}"
                )
    unequal = _unequal(files.get("skew_fit.csv"), meta, ranks, name)
    told = meta.get("attention")
    is_apart = isinstance(told, dict) and told.get("prompts") == "apart"
    attention = _attention(files["attention.csv"], is_apart)
    wake = _wake(files["wake.csv"]) if "wake.csv" in files else None
    return LayerTimes(name, ranks, dense, heads, attention, unequal, wake)


def _ranks(path: str, meta: Mapping[str, Any]) -> int:
    """Of a folder's name (``tp2``); of others what the profile says it was measured with."""
    found = re.search(r"(?:^|[/ ])tp(\d+)[/:]", path)
    if found:
        return int(found[1])
    degrees = meta.get("tp_degrees")
    return int(degrees[0]) if isinstance(degrees, list) and len(degrees) == 1 else 1


def _meta(member: Member | None) -> Mapping[str, Any]:
    if member is None:
        return {}
    if len(member.data) > LARGEST_META:
        raise BadInput(f"has {len(member.data)} bytes", member.name, f"at most {LARGEST_META}")
    try:
        found = yaml.safe_load(member.data.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{error}"[:200], member.name, "YAML") from None
    return found if isinstance(found, dict) else {}


def _table(member: Member, columns: Sequence[str]) -> Table:
    return read_table(member.data, member.name, columns)


def _curves(member: Member, axis: str) -> dict[str, Curve]:
    table = _table(member, ("layer", axis, "time_us"))
    rows: dict[str, dict[float, float]] = {}
    places, times = table.counts(axis).tolist(), table.numbers("time_us").tolist()
    for layer, place, time in zip(table.columns["layer"], places, times, strict=True):
        rows.setdefault(layer, {})[float(place)] = time * MICROSECOND
    return {layer: _curve(found) for layer, found in rows.items()}


def _wake(member: Member) -> Curve:
    table = _table(member, ("pause_us", "time_us"))
    pauses, times = table.numbers("pause_us").tolist(), table.numbers("time_us").tolist()
    return _curve(
        {pause * MICROSECOND: time * MICROSECOND for pause, time in zip(pauses, times, strict=True)}
    )


def _curve(found: Mapping[float, float]) -> Curve:
    points = tuple(sorted(found))
    return Curve(points, tuple(found[point] for point in points))


def _attention(member: Member, is_apart: bool) -> AttentionTimes:
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    table = _table(member, names)
    columns = [table.numbers(name).tolist() for name in names]
    grid: dict[tuple[int, int], dict[float, dict[float, float]]] = {}
    for chunk, prompt, count, decode, time in zip(*columns, strict=True):
        rows = grid.setdefault((int(chunk), int(count)), {})
        rows.setdefault(prompt, {})[decode] = time * MICROSECOND
    return AttentionTimes({pair: _steady(rows) for pair, rows in grid.items()}, is_apart)


def _steady(rows: Mapping[float, Mapping[float, float]]) -> Steady:
    contexts = tuple(sorted(rows))
    return Steady(contexts, tuple(_curve(rows[context]) for context in contexts))


def _unequal(member: Member | None, meta: Mapping[str, Any], ranks: int, name: str) -> UnequalContexts | None:
    told = meta.get("skew_fit")
    if member is None or not isinstance(told, dict) or not told.get("enabled"):
        return None
    try:
        axes, usual = told["bucket_axes"], float(told["per_tp"][ranks]["alpha_default"])
        labels = [[str(label) for label in axes[f"{axis}_labels"]] for axis in AXES]
        edges = [[float(edge) for edge in axes[f"{axis}_bins"][1:]] for axis in AXES]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"skew_fit lacks {error}", f"{name}: meta.yaml", "bucket_axes and per_tp") from None
    table = _table(member, ("pc", "alpha", *(f"{axis}_label" for axis in AXES)))
    share: dict[tuple[int, int, int, int, int], float] = {}
    alphas, chunks = table.numbers("alpha", -1e6, 1e6).tolist(), table.numbers("pc").tolist()
    for row, (chunk, alpha) in enumerate(zip(chunks, alphas, strict=True)):
        bucket = [_place(table, axis, row, known) for axis, known in zip(AXES, labels, strict=True)]
        share[(int(chunk), *bucket)] = alpha  # type: ignore[index]
    return UnequalContexts(share, usual, tuple(edges))  # type: ignore[arg-type]


def _place(table: Table, axis: str, row: int, labels: Sequence[str]) -> int:
    column = f"{axis}_label"
    label = table.columns[column][row]
    if label not in labels:
        raise BadInput(f"{column} {label!r:.40}", table.name, f"one of {', '.join(labels)}")
    return labels.index(label)


PROFILES = ProfileReader(
    "layer-times",
    "layer profiles of a serving engine: dense.csv, per_sequence.csv and attention.csv",
    _recognizes,
    _read,
)
