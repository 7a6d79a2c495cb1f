"""Claims counted in words, and our figures drawn next to the paper's."""

from __future__ import annotations

import pytest

from experiments.core.paper import Claim
from experiments.core.verdicts import Verdict
from webapp.papers.catalog import ClaimRow
from webapp.papers.dots import dot_plot
from webapp.papers.tally import Tally, years_of


def row(ours: float | None, verdict: str = "reproduced", **claim: object) -> ClaimRow:
    told = {"id": "a", "text": "faster", "where": "abstract", "value": 2.0, "tolerance": 0.1, **claim}
    return ClaimRow(Claim(**told), Verdict(verdict, "", ours, claim.pop("low", None), None), (), ())  # type: ignore[arg-type]


def test_the_sentence_counts_proxies_as_reproduced_and_says_what_is_no_question_of_it() -> None:
    tally = Tally(
        {
            "reproduced": 5,
            "reproduced by proxy": 2,
            "direction only": 1,
            "not reproduced": 3,
            "fitted": 1,
            "identity": 1,
            "fits": 2,
            "cannot be carried out": 4,
            "not run": 1,
        }
    )
    assert (tally.reproduced, tally.in_direction, tally.not_reproduced, tally.total) == (7, 1, 3, 20)
    assert tally.rest == (
        "1 follows from the definition, 2 only ask whether something fits, on 1 constants were fitted, "
        "4 cannot be carried out here, 1 is not run"
    )


def test_years_without_a_system_have_no_bar() -> None:
    assert [(bar.year, bar.count, bar.share) for bar in years_of([2020, 2016, 2020])] == [
        (2016, 1, 0.5),
        (2020, 2, 1.0),
    ]


def test_a_dot_lies_at_its_difference_and_the_band_is_the_claims_own() -> None:
    """2.2 for 2.0 is a tenth above: half way to the end of an axis that ends at a fifth."""
    plot = dot_plot([row(2.2), row(1.6, "not reproduced", id="b", tolerance=0.05)])
    assert plot.limit == pytest.approx(0.2)
    first, second = plot.dots
    assert first.at == pytest.approx(75)
    assert (first.band.left, first.band.width) == (pytest.approx(25), pytest.approx(50))
    assert second.at == pytest.approx(0)
    assert second.band.width == pytest.approx(25)
    assert [round(at) for at, _ in plot.ticks] == [0, 25, 50, 75, 100]


def test_what_lies_beyond_the_axis_stays_at_its_end_and_is_marked() -> None:
    (dot,) = dot_plot([row(9.0, "not reproduced")]).dots
    assert (dot.at, dot.is_beyond) == (100, True)


def test_a_bound_is_shaded_to_the_end_of_the_axis_and_what_keeps_it_is_not_far() -> None:
    kept = row(3.0, bound="at least")
    (dot,) = dot_plot([kept]).dots
    assert dot.band.left + dot.band.width == pytest.approx(100)
    assert kept.distance == 0
    assert kept.difference == pytest.approx(0.5)


def test_a_claim_that_cannot_be_carried_out_has_no_line_and_one_without_a_figure_no_dot() -> None:
    cannot = row(None, "cannot be carried out", cannot="needs the authors' weights", value=None)
    plot = dot_plot([cannot, row(None, "not run")])
    assert [dot.at for dot in plot.dots] == [None]
