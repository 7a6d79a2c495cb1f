"""Which names stand next to the points of a scatter, and on which side, so that none covers another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

#: A letter's width and a line's height as parts of a plot of usual size, and how far a name stands from its
#: point.
LETTER, LINE, GAP = 0.0125, 0.055, 0.012
#: Tried in this order: right of the point, then left, then centered; plotly's words for them.
SIDES = ("top right", "bottom right", "top left", "bottom left", "top center", "bottom center")
#: The same for points next to a line that names should not cross.
LEFT_FIRST = ("top left", "bottom left", "top right", "bottom right", "top center", "bottom center")


@dataclass(frozen=True)
class Box:
    """A rectangle of the plot, which reaches from 0 to 1 in both directions."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.top <= other.bottom or other.top <= self.bottom)


@dataclass(frozen=True)
class Frame:
    """What the axes reach over, and a vertical line: names stand on their points' side of it.

    Without ends of its own an axis reaches over the points.
    """

    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None
    wall: float | None = None

    @property
    def wall_share(self) -> float | None:
        """Where the line stands, from 0 to 1."""
        return None if self.wall is None else _shares([self.wall], self.x)[0]

    def holds(self, box: Box, x: float) -> bool:
        """Whether the name of a point at ``x`` is on its side of the line and inside of known ends."""
        wall = self.wall_share
        is_on_its_side = wall is None or (box.left >= wall if x > wall else box.right <= wall)
        is_inside = self.y is None or (box.bottom >= 0 and box.top <= 1)
        return is_inside and is_on_its_side


def place_labels(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    sides: Sequence[str] = SIDES,
    frame: Frame | None = None,
    first: Collection[int] = (),
) -> list[tuple[str, str]]:
    """For each point its name and the side where it covers no other name and, if there is such a side, no
    point.

    No name where every side would cover another name: hover tells it. The ``first`` are placed before all
    others, which then may cover no point either.
    """
    frame = frame or Frame()
    spots = list(
        zip(
            _shares([x for x, _ in points], frame.x),
            _shares([y for _, y in points], frame.y),
            strict=True,
        )
    )
    marks = [Box(x - GAP / 2, y - GAP, x + GAP / 2, y + GAP) for x, y in spots]
    found, taken = [("", SIDES[0])] * len(points), list[Box]()
    for index in sorted(range(len(points)), key=lambda index: (index not in first, spots[index])):
        boxes = list(_boxes(*spots[index], names[index], sides)) if names[index] else []
        others = [mark for place, mark in enumerate(marks) if place != index]
        must_be_clear = taken if not first or index in first else [*taken, *others]
        free = [
            (side, box)
            for side, box in boxes
            if frame.holds(box, spots[index][0]) and not any(box.meets(other) for other in must_be_clear)
        ]
        if free:
            side, box = min(free, key=lambda one: sum(one[1].meets(other) for other in others))
            taken.append(box)
            found[index] = (names[index], side)
    return found


def _shares(values: Sequence[float], ends: tuple[float, float] | None = None) -> list[float]:
    low, high = ends or (min(values), max(values))
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def _boxes(x: float, y: float, name: str, sides: Sequence[str] = SIDES) -> Iterator[tuple[str, Box]]:
    width = LETTER * len(name)
    for side in sides:
        left = {"right": x + GAP, "left": x - GAP - width, "center": x - width / 2}[side.split()[1]]
        bottom = y + GAP if side.startswith("top") else y - GAP - LINE
        if left >= -0.03 and left + width <= 1.05:  # what axes and edges leave
            yield side, Box(left, bottom, left + width, bottom + LINE)
