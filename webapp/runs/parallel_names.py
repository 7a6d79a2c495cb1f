"""The tables of a parallel plan in words: layers by name, slots counted, collectives as phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.core.units import human
from webapp.runs.parallel_figure import SLOTS, device_names
from webapp.runs.plan_names import Named, add_meaning

#: A row of a plan's table, and the names of its layers by number.
Row = Mapping[str, Any]
Names = Mapping[str, str]


def in_parallel_words(table: str, rows: Sequence[Row], layers: Names) -> list[Row]:
    """The rows of ``table`` for readers; as they are where nothing better is known."""
    match table:
        case "stages":
            return [_stage(number, row, layers) for number, row in enumerate(rows)]
        case "workers":
            return [_worker(number, row) for number, row in enumerate(rows)]
        case "shardings":
            return [_sharding(row, layers) for row in rows]
    return list(rows)


def layers_in_words(begin: int, end: int, layers: Names) -> Named:
    """``embed_tokens to layers.7.mlp`` with the numbers on hover; the numbers where no names are kept."""
    numbers = str(begin) if end - begin == 1 else f"{begin}-{end - 1}"
    ends = [layers.get(str(layer), "") for layer in dict.fromkeys((begin, end - 1))]
    return add_meaning(" to ".join(ends) if all(ends) else numbers, numbers)


def _stage(number: int, row: Row, layers: Names) -> Row:
    rest = {name: value for name, value in row.items() if name not in ("begin", "end", "workers")}
    return {
        "stage": number,
        "layers": layers_in_words(row["begin"], row["end"], layers),
        "number of layers": row["end"] - row["begin"],
        "workers": add_meaning(device_names(row["workers"]), ", ".join(map(str, row["workers"]))),
        **rest,
    }


def _worker(number: int, row: Row) -> Row:
    counts = Counter(SLOTS.get(slot[:1], "other") for slot in row["slots"])
    slots = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    rest = {name: value for name, value in row.items() if name not in ("devices", "slots")}
    order = " ".join(row["slots"][:100])
    return {
        "worker": number,
        "devices": device_names(row["devices"]),
        "slots": add_meaning(slots, order, row["slots"]),
        **rest,
    }


def _sharding(row: Row, layers: Names) -> Row:
    layer = str(row["layer"])
    collectives = {name: ", ".join(map(_collective, row.get(name) or ())) for name in ("forward", "backward")}
    rest = {name: value for name, value in row.items() if name not in ("layer", *collectives)}
    return {"layer": add_meaning(layers.get(layer, layer), layer), **rest, **collectives}


def _collective(one: Row) -> str:
    """``all reduce of 32 MiB a sample among 2``."""
    kind, size = one["kind"].replace("_", " "), human(one["bytes"], "bytes")
    return f"{kind} of {size} a {one['per']} among {one['ranks']}"
