"""Names beside the points of a scatter: each beside its own, none over another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.compare.labels import LEFT_FIRST, Box, Frame, _boxes, _shares, place_labels

SHARE = st.floats(0, 1)


def boxes(points: list[tuple[float, float]], names: list[str]) -> list[Box]:
    """Where the names that are shown stand."""
    spots = zip(_shares([x for x, _ in points]), _shares([y for _, y in points]), strict=True)
    found = zip(spots, place_labels(points, names), strict=True)
    return [dict(_boxes(*spot, name))[side] for spot, (name, side) in found if name]


def test_a_name_that_would_reach_over_the_edge_stands_on_the_other_side() -> None:
    assert place_labels([(0, 0), (1, 1)], ["left", "right"]) == [("left", "top right"), ("right", "top left")]


def test_a_name_goes_where_no_point_is() -> None:
    points = [(0.0, 0.0), (0.5, 0.5), (0.53, 0.53), (1.0, 1.0)]
    assert place_labels(points, ["", "capuchin", "", ""])[1] == ("capuchin", "bottom right")


@settings(max_examples=50)
@given(st.lists(st.tuples(SHARE, SHARE, st.integers(0, 20)), min_size=1, max_size=30))
def test_no_name_covers_another(rows: list[tuple[float, float, int]]) -> None:
    shown = boxes([(x, y) for x, y, _ in rows], ["n" * length for _, _, length in rows])
    assert not any(one.meets(other) for i, one in enumerate(shown) for other in shown[i + 1 :])


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.58, 0.62), SHARE, st.integers(3, 16)), min_size=4, max_size=43))
def test_names_of_points_crowded_at_a_line_stay_clear_of_it_and_of_one_another(
    rows: list[tuple[float, float, int]],
) -> None:
    """As policies that fill a device to its capacity do. What is to be named first has its name."""
    points, names = [(x, y) for x, y, _ in rows], ["n" * length for _, _, length in rows]
    frame = Frame((0.0, 1.0), (-0.1, 1.1), 0.6)
    placed = place_labels(points, names, LEFT_FIRST, frame, first=[0])
    spots = [(x, (y + 0.1) / 1.2) for x, y in points]
    shown = [
        dict(_boxes(*spot, name))[side] for spot, (name, side) in zip(spots, placed, strict=True) if name
    ]
    assert placed[0][0] == names[0]
    assert not any(one.meets(other) for i, one in enumerate(shown) for other in shown[i + 1 :])
    assert not any(box.left < 0.6 < box.right or box.bottom < 0 or box.top > 1 for box in shown)
    sides = [(x > 0.6, side.split()[1]) for (x, _), (name, side) in zip(points, placed, strict=True) if name]
    assert not {(True, "left"), (False, "right")} & set(sides)
