"""Names beside the points of a scatter: each beside its own, none over another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.compare.labels import Box, _boxes, _shares, place_labels

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
