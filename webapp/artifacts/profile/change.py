"""How two traces differ: operators and kernels by name, what changed most first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human
from webapp.artifacts.profile.ranks import Process
from webapp.artifacts.profile.words import PARTS, short


@dataclass(frozen=True)
class Change:
    """``parts`` are (words, here, there, change) of the devices' time; rows are those of ``ChangeTable``."""

    there: Process
    finding: str
    parts: tuple[tuple[str, float, float, float], ...]
    operators: list[dict[str, Any]]
    kernels: list[dict[str, Any]]


def change_of(here: Process, there: Process) -> Change:
    kernels = changes(here.told.get("kernels") or (), there.told.get("kernels") or (), "seconds")
    on_device = any(row["seconds"] for row in here.told.get("operators") or ())
    operators = changes(
        here.told.get("operators") or (),
        there.told.get("operators") or (),
        "seconds" if on_device else "host",
    )
    parts = _parts(here, there)
    return Change(there, _finding(parts, kernels or operators), parts, operators, kernels)


def changes(
    here: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]], key: str
) -> list[dict[str, Any]]:
    """One row for each name of either, by the size of its change."""
    ours, theirs = ({row["name"]: row for row in rows} for rows in (here, there))
    nothing = {key: 0.0, "count": 0}
    rows = []
    for name in {**ours, **theirs}:
        one, other = ours.get(name, nothing), theirs.get(name, nothing)
        change = {"name": name, "change": one[key] - other[key], "here": one[key], "there": other[key]}
        rows.append({**change, "calls_here": one["count"], "calls_there": other["count"]})
    return sorted(rows, key=lambda row: (-abs(row["change"]), row["name"]))


def _parts(here: Process, there: Process) -> tuple[tuple[str, float, float, float], ...]:
    """Of the first device of each; of the host where there is none."""
    if not (here.told["devices"] and there.told["devices"]):
        one, other = (process.told.get("host") or {} for process in (here, there))
        keys = [("operators", "inside operators"), ("between", "between them"), ("span", "in all")]
    else:
        one, other = here.told["devices"][0], there.told["devices"][0]
        keys = [*PARTS, ("span", "in all")]
    rows = [(words, one.get(key, 0.0), other.get(key, 0.0)) for key, words in keys]
    return tuple((words, mine, theirs, mine - theirs) for words, mine, theirs in rows)


def _finding(parts: Sequence[tuple[str, float, float, float]], rows: Sequence[Mapping[str, Any]]) -> str:
    """``120 ms shorter than there (−20 %); most of it in aten::mm (−80 ms).``"""
    _, here, there, change = parts[-1]
    relative = f" ({100 * change / there:+.0f} %)".replace("-", "−") if there else ""
    said = f"{human(abs(change), 's')} {'shorter' if change < 0 else 'longer'} than there{relative}"
    if not change:
        said = f"as long as there ({human(here, 's')})"
    if not rows or not rows[0]["change"]:
        return f"{said}."
    sign = "−" if rows[0]["change"] < 0 else "+"
    return (
        f"{said}; what changed most is {short(rows[0]['name'])} ({sign}{human(abs(rows[0]['change']), 's')})."
    )
