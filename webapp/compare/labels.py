"""Which names stand next to the points of a scatter, and on which side, so that none covers another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def place_labels(
    points: Sequence[tuple[float, float]], names: Sequence[str], sides: Sequence[str] = SIDES
) -> list[tuple[str, str]]:
    """For each point its name and the side where it covers no other name and, if there is such a side, no
    point.

    No name where every side would cover another name: hover tells it.
    """
    spots = list(zip(_shares([x for x, _ in points]), _shares([y for _, y in points]), strict=True))
    marks = [Box(x - GAP / 2, y - GAP, x + GAP / 2, y + GAP) for x, y in spots]
    found, taken = [("", SIDES[0])] * len(points), list[Box]()
    for index in sorted(range(len(points)), key=lambda index: spots[index]):
        boxes = list(_boxes(*spots[index], names[index], sides)) if names[index] else []
        free = [(side, box) for side, box in boxes if not any(box.meets(other) for other in taken)]
        others = [mark for place, mark in enumerate(marks) if place != index]
        if free:
            side, box = min(free, key=lambda one: sum(one[1].meets(other) for other in others))
            taken.append(box)
            found[index] = (names[index], side)
    return found


def _shares(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def _boxes(x: float, y: float, name: str, sides: Sequence[str] = SIDES) -> Iterator[tuple[str, Box]]:
    width = LETTER * len(name)
    for side in sides:
        left = {"right": x + GAP, "left": x - GAP - width, "center": x - width / 2}[side.split()[1]]
        bottom = y + GAP if side.startswith("top") else y - GAP - LINE
        if left >= -0.03 and left + width <= 1.05:  # what axes and edges leave
            yield side, Box(left, bottom, left + width, bottom + LINE)
