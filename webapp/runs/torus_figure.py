"""What the page of a model that is divided over a torus draws: its chips, what each keeps, and the divisions
that were compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.core.units import human
from webapp.runs.figures import plot_of

#: Chips of a row and of a column that are drawn.
MOST_DRAWN = 16
ATTENTION = {"heads": "over heads", "batch": "over the batch", "multihead": "heads with keys of their own"}
#: Parts of a division's time, with what they are called and their hue.
PARTS = (
    ("working_seconds", "computing or reading", "plot-1"),
    ("sending_seconds", "sending", "plot-2"),
)
#: Times that are drawn, by that of the chosen division.
READABLE = 10
GATHERED = {"gathered_x": "x", "gathered_xy": "x and y", "gathered_xyz": "all axes"}


@dataclass(frozen=True)
class TorusView:
    """``rows`` are chips along x, ``columns`` along y and z."""

    words: str
    x: int
    yz: int
    rows: range
    columns: range
    is_cut: bool
    plot: Mapping[str, Any]


def torus_view(outcome: Mapping[str, Any]) -> TorusView | None:
    """``None`` for a run that divides no model over a torus, or whose outcome is older than this figure."""
    plan: Mapping[str, Any] = outcome.get("plan") or {}
    if not {"torus", "chip", "compared"} <= set(plan):
        return None
    x, yz = int(plan["torus"]["x"]), int(plan["torus"]["yz"])
    return TorusView(
        _words(plan, x, yz),
        x,
        yz,
        range(min(x, MOST_DRAWN)),
        range(min(yz, MOST_DRAWN)),
        max(x, yz) > MOST_DRAWN,
        _plot(plan["compared"], (plan["layout"], plan["attention"])),
    )


def _words(plan: Mapping[str, Any], x: int, yz: int) -> str:
    """Where weights and attention are."""
    chip, layout = plan["chip"], plan["layout"]
    attention = f"attention is divided {ATTENTION.get(plan['attention'], plan['attention'])}"
    if layout == "1d":
        part = f"{-(-chip['inner'] // (x * yz)):,} of the {chip['inner']:,} columns of each matrix"
        return f"Each chip keeps {part}, and all rows; {attention}."
    rows = f"{chip['hidden_each']:,} of {chip['hidden']:,} rows"
    part = f"{rows} by {chip['inner_each']:,} of {chip['inner']:,} columns of each matrix"
    moved = f", which are gathered over {GATHERED[layout]} for each layer" if layout in GATHERED else ""
    return f"Each chip keeps {part}{moved}; {attention}."


def _plot(compared: Sequence[Mapping[str, Any]], chosen: tuple[str, str]) -> dict[str, Any]:
    """Times of the divisions as rows, the chosen one first; very long ones leave the figure."""
    rows = sorted(compared, key=lambda row: (row["layout"], row["attention"]) != chosen)
    names = [_name(row, chosen) for row in rows]
    series = []
    for key, label, color in PARTS:
        hover = [f"{human(row['seconds'], 's')}, {label} {human(row[key], 's')}" for row in rows]
        told = {"name": label, "color": color, "x": [row[key] for row in rows], "y": names, "hover": hover}
        series.append({**told, "hover_only": True})
    drawn = plot_of("Divisions that were compared", "rows", ("time", "s"), ("", ""), series)
    longest = max(row["seconds"] for row in rows)
    return drawn | {"lanes": names, "x_range": [0, min(1.05 * longest, READABLE * rows[0]["seconds"])]}


def _name(row: Mapping[str, Any], chosen: tuple[str, str]) -> str:
    name = f"{row['layout'].replace('_', ' ')}, {row['attention']}"
    if (row["layout"], row["attention"]) == chosen:
        return f"{name}: chosen"
    return name if row["fits"] else f"{name}: does not fit"
