"""A rewrite as two small drawings: the ops it took with their neighbors, and what stands there now.

Ops stand in layers, every op below all that it reads; the drawing is an SVG whose boxes name the op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Drawings of different rules, and boxes of one drawing.
MOST_DRAWINGS, MOST_BOXES = 4, 26
#: Pixels.
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 132, 28, 14, 26, 6


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    label: str
    words: str
    state: str

    @property
    def middle(self) -> int:
        return self.x + WIDTH // 2

    @property
    def baseline(self) -> int:
        return self.y + HEIGHT // 2 + 4


@dataclass(frozen=True)
class Arrow:
    path: str


@dataclass(frozen=True)
class Picture:
    """One graph: what it shows in words is for those who cannot see it."""

    title: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def words(self) -> str:
        return "; ".join(box.words for box in self.boxes)


@dataclass(frozen=True)
class Drawing:
    """The first use of a rule, before and after, and how often it was used."""

    rule: str
    uses: int
    pictures: tuple[Picture, Picture]


Rows = Mapping[str, Mapping[str, Any]]


def drawings_of(plan: Mapping[str, Any]) -> tuple[Drawing, ...]:
    """One for each of the first rules whose ops are still to be found in the two graphs."""
    if "after" not in plan:
        return ()
    before = {row["name"]: row for row in plan["before"]}
    after = {row["name"]: row for row in plan["after"]}
    by_rule: dict[str, list[Mapping[str, Any]]] = {}
    for step in plan.get("applied", ()):
        by_rule.setdefault(step["rule"], []).append(step)
    found = []
    for rule, steps in list(by_rule.items())[:MOST_DRAWINGS]:
        drawn = next((step for step in steps if _is_shown(step, before, after)), None)
        if drawn:
            found.append(_drawing(rule, len(steps), drawn, before, after))
    return tuple(found)


def _is_shown(step: Mapping[str, Any], before: Rows, after: Rows) -> bool:
    return any(n in before for n in step["took"]) and any(n in after for n in step["made"])


def _drawing(rule: str, uses: int, step: Mapping[str, Any], before: Rows, after: Rows) -> Drawing:
    took = [name for name in step["took"] if name in before]
    made = [name for name in step["made"] if name in after]
    fresh = _fresh_behind(made, after)
    return Drawing(
        rule,
        uses,
        (
            _picture("before", before, took, dict.fromkeys(took, "gone")),
            _picture("after", after, fresh, {name: after[name]["state"] for name in fresh}),
        ),
    )


def _fresh_behind(names: Sequence[str], rows: Rows) -> list[str]:
    """``names`` and the nodes that are computed once for them."""
    found, waiting = list(names), list(names)
    while waiting:
        for source in rows[waiting.pop()]["inputs"]:
            if source in rows and rows[source]["state"] == "once" and source not in found:
                found.append(source)
                waiting.append(source)
    return found


def _picture(title: str, rows: Rows, center: Sequence[str], states: Mapping[str, str]) -> Picture:
    kept = set(center)
    around = [source for name in center for source in rows[name]["inputs"] if source in rows]
    readers = [name for name, row in rows.items() if kept & set(row["inputs"])]
    names = list(dict.fromkeys([*center, *around, *readers]))[:MOST_BOXES]
    ordered = [name for name in rows if name in names]
    places = _places(ordered, rows)
    boxes = tuple(_box(rows[name], places[name], states.get(name, "kept")) for name in ordered)
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    height = max(y for _, y in places.values()) + HEIGHT + MARGIN
    return Picture(title, width, height, boxes, tuple(_arrows(ordered, rows, places)))


def _places(ordered: Sequence[str], rows: Rows) -> dict[str, tuple[int, int]]:
    """Layers by the longest way from a source; in a layer ops stand as their inputs do."""
    layer: dict[str, int] = {}
    for name in ordered:
        layer[name] = 1 + max(
            (layer[source] for source in rows[name]["inputs"] if source in layer), default=-1
        )
    for name in reversed(ordered):  # a source stands just above its first reader
        readers = [layer[reader] for reader in ordered if name in rows[reader]["inputs"]]
        if readers and not any(source in layer for source in rows[name]["inputs"]):
            layer[name] = max(0, min(readers) - 1)
    places: dict[str, tuple[int, int]] = {}
    for number in sorted(set(layer.values())):
        members = [name for name in ordered if layer[name] == number]
        members.sort(key=lambda name: (_is_weight(rows[name]), _mean(_across(rows[name], places))))
        for place, name in enumerate(members):
            places[name] = (MARGIN + place * (WIDTH + GAP_X), MARGIN + number * (HEIGHT + GAP_Y))
    return places


def _is_weight(row: Mapping[str, Any]) -> bool:
    """Weights, and what is computed of them once, stand on the right."""
    return bool(row["kind"] == "constant" or row["state"] == "once")


def _across(row: Mapping[str, Any], places: Mapping[str, tuple[int, int]]) -> Iterable[float]:
    return (places[source][0] for source in row["inputs"] if source in places)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _box(row: Mapping[str, Any], place: tuple[int, int], state: str) -> Box:
    target = row["target"].split(".")
    label = (target[1] if row["kind"] == "op" and len(target) > 2 else target[-1])[:19]
    shape = "×".join(map(str, row["shape"])) or "scalar"
    words = f"{row['name']}: {row['target']}, {row['dtype']} {shape}"
    return Box(*place, label, words, state if row["kind"] == "op" else "constant")


def _arrows(ordered: Sequence[str], rows: Rows, places: Mapping[str, tuple[int, int]]) -> Iterable[Arrow]:
    for name in ordered:
        x, y = places[name]
        for source in dict.fromkeys(rows[name]["inputs"]):
            if source in places:
                a, b = places[source]
                start, end = (a + WIDTH // 2, b + HEIGHT), (x + WIDTH // 2, y)
                bend = (start[1] + end[1]) // 2
                yield Arrow(f"M{start[0]} {start[1]} C{start[0]} {bend} {end[0]} {bend} {end[0]} {end[1]}")
