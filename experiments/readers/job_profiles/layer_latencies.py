"""Layer profiles of a serving engine, one latency a layer: ``layers.csv`` and ``attention.csv``.

The layout of LLMServingSim's first version, whose attention is Vidur's table. ``layers.csv`` has the
nanoseconds of each layer by the tokens of its input; its ``attn`` is a prompt's attention without a context.
``attention.csv`` has milliseconds of a prompt's part behind a context, and of decodes of one context each.
Both were timed apart, so they add up. Medians are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.csv_table import Table, read_table
from experiments.readers.job_profiles import ProfileReader
from experiments.workloads.profiles.layer_times import ApartTimes, AttentionTimes, Curve, LayerTimes, Steady

LAYERS, ATTENTION = "layers.csv", "attention.csv"
COLUMNS = ("layer_name", "input", "tp_size", "latency(ns)")
PROMPT, DECODE = "time_stats.attn_prefill.median", "time_stats.attn_decode.median"
SIZES = ("batch_size", "prefill_chunk_size", "kv_cache_size", "num_tensor_parallel_workers")
NANOSECOND, MILLISECOND = 1e-9, 1e-3
#: The head runs for the sequences of a step, attention by what it reads; all other layers by their tokens.
HEAD, ATTEND = "lm_head", "attn"
#: Share of a curve's length at which the last part of it begins.
BASE = 7 / 8
NEEDED = ("embedding", "o_proj", "down_proj", "final_layernorm", HEAD, ATTEND)


def _file(members: Sequence[Member], name: str) -> Member | None:
    found = [one for one in members if one.name.replace("\\", "/").rsplit("/", 1)[-1].split(": ")[-1] == name]
    return found[0] if len(found) == 1 else None


def _recognizes(members: Sequence[Member]) -> bool:
    layers = _file(members, LAYERS)
    if layers is None or _file(members, ATTENTION) is None:
        return False
    header = layers.data.split(b"\n", 1)[0].decode(errors="replace")
    return set(COLUMNS) <= {name.strip() for name in header.split(",")}


def _read(members: Sequence[Member], name: str) -> LayerTimes:
    layers, attention = _file(members, LAYERS), _file(members, ATTENTION)
    assert layers is not None and attention is not None
    table = read_table(layers.data, layers.name, COLUMNS)
    curves = _layers(table)
    for layer in NEEDED:
        if layer not in curves:
            raise BadInput(
                f"has no layer {layer}", f"{name}: {LAYERS}", f"a curve of it beside {', '.join(curves)}"
            )
    ranks = _one_degree(table, "tp_size")
    alone, head = curves.pop(ATTEND), curves.pop(HEAD)
    times = read_table(attention.data, attention.name, (PROMPT, DECODE, "is_prefill", *SIZES))
    if (other := _one_degree(times, "num_tensor_parallel_workers")) != ranks:
        what = f"was measured on {other} devices, {LAYERS} on {ranks}"
        raise BadInput(what, f"{name}: {ATTENTION}", "files of one tensor degree")
    return LayerTimes(name, ranks, curves, {HEAD: head}, _attention(times, alone))


def _layers(table: Table) -> dict[str, Curve]:
    rows: dict[str, dict[float, float]] = {}
    places, times = table.counts("input").tolist(), table.numbers("latency(ns)").tolist()
    for layer, place, time in zip(table.columns["layer_name"], places, times, strict=True):
        rows.setdefault(layer, {})[float(place)] = time * NANOSECOND
    return {layer: _curve(_with_a_base(found)) for layer, found in rows.items()}


def _with_a_base(found: Mapping[float, float]) -> dict[float, float]:
    """Without the points of the last eighth, but for the end of it.

    There is one for every token, and beyond the last times go on as between the last two: over a single token
    that is what noise says.
    """
    end = max(found)
    return {place: time for place, time in found.items() if place == end or place <= end * BASE}


def _curve(found: Mapping[float, float]) -> Curve:
    points = tuple(sorted(found))
    return Curve(points, tuple(found[point] for point in points))


def _one_degree(table: Table, column: str) -> int:
    degrees = sorted(set(table.counts(column).tolist()))
    if len(degrees) != 1:
        raise BadInput(f"has {len(degrees)} tensor degrees", f"{table.name}, column {column}", "one")
    return int(degrees[0])


def _attention(table: Table, alone: Curve) -> ApartTimes:
    """``alone``: a prompt's attention without a context, by its tokens."""
    prompts: dict[int, dict[float, float]] = {}
    decodes: dict[int, dict[float, float]] = {}
    batches, parts = table.counts("batch_size").tolist(), table.counts("prefill_chunk_size", 0).tolist()
    contexts = table.counts("kv_cache_size", 0).tolist()
    prompt, decode = (table.numbers(name, empty=0.0).tolist() for name in (PROMPT, DECODE))
    rows = zip(table.columns["is_prefill"], batches, parts, contexts, prompt, decode, strict=True)
    for row, (kind, batch, part, context, prefill, answer) in enumerate(rows):
        if kind not in ("True", "False"):
            raise table.bad("is_prefill", row, "tells neither", "True or False")
        seconds = (prefill if kind == "True" else answer) * MILLISECOND
        if seconds <= 0:
            column = PROMPT if kind == "True" else DECODE
            raise table.bad(column, row, "is no time of such a row", "milliseconds above 0")
        grid, key = (prompts, part) if kind == "True" else (decodes, batch)
        grid.setdefault(key, {})[float(context)] = seconds
    for part in prompts:
        prompts[part][0.0] = float(alone.at(float(part)))
    longest = max(prompts, default=0)
    prompts |= {int(n): {0.0: s} for n, s in zip(alone.points, alone.seconds, strict=True) if n > longest}
    return ApartTimes(
        AttentionTimes({(part, 0): _by_prompt(found) for part, found in prompts.items()}),
        AttentionTimes({(0, count): Steady((0.0,), (_curve(found),)) for count, found in decodes.items()}),
    )


def _by_prompt(found: Mapping[float, float]) -> Steady:
    contexts = tuple(sorted(found))
    return Steady(contexts, tuple(Curve((0.0,), (found[context],)) for context in contexts))


PROFILES = ProfileReader(
    "layer-latencies",
    "layer latencies of a serving engine: layers.csv and attention.csv",
    _recognizes,
    _read,
)
