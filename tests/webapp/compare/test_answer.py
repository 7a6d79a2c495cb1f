"""What a comparison of memory policies says in words: figures that a reader can work out."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.answer import Answer, answer_of
from webapp.compare.choice import Choice
from webapp.compare.comparison import compare
from webapp.compare.filters import comparable
from webapp.runs.models import Experiment, RunDocument

pytestmark = pytest.mark.django_db
GIB = 2**30


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


def made(ada: Place, needs: float, **more: object) -> Experiment:
    """On 40 GiB: a baseline of ``needs`` bytes, and in 30, 20 and 10 GiB what takes 1.1, 1.2 and 9 s; one
    infeasible.
    """
    found = cast.experiment(ada.project)
    gpt2 = cast.ready(ada.project)
    fits = needs <= 40 * GIB
    figures = {"peak_memory": needs, "step_time": 1.0, "ideal_step_time": 1.0} if fits else {}
    status = {} if fits else {"outcome_status": "infeasible", "reason": "too large"}
    base = cast.run(found, "baseline", figures, artifact=gpt2, hardware="a100-40g", **status)
    RunDocument.objects.create(run=base, outcome={"provenance": {"live_peak": needs}})
    for name, gib, seconds in (("quick", 30, 1.1), ("even", 20, 1.2), ("small", 10, 9.0)):
        values = {"peak_memory": gib * GIB, "step_time": seconds, "ideal_step_time": 1.0}
        cast.run(found, name, values, artifact=gpt2, hardware="a100-40g")
    cast.run(found, "never", artifact=gpt2, hardware="a100-40g", outcome_status="infeasible", reason="no")
    cast.run(found, "slow", artifact=gpt2, hardware="a100-40g", state="running", outcome_status="")
    return found


def answer(experiment: Experiment) -> Answer:
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    found = answer_of(compare(runs, Choice()))
    assert found is not None
    return found


def test_the_winners_are_named_with_their_figures(ada: Place) -> None:
    """61 GiB do not fit in 40. The surprise: the smallest product is 20 x 1.2, neither the least nor the
    fastest.
    """
    found = answer(made(ada, 61.0 * GIB))
    assert (found.needs, found.baseline_fits) == (61.0 * GIB, False)
    assert [entry.name for entry in found.fits] == ["quick", "even", "small"]
    assert [entry.name for entry in found.too_large] == ["baseline", "never"]
    assert [entry.name for entry in found.waiting] == ["slow"]
    assert [(winner.what, winner.entry.name) for winner in found.winners] == [
        ("least memory", "small"),
        ("fastest that fits", "quick"),
        ("best trade-off", "even"),
    ]
    assert found.winners[1].sentence == (
        "is the fastest that fits: 30 GiB and 1.1 s per step, 1.1 times the time with endless memory,"
        " with 50.8 % less memory than the baseline"
    )


def test_where_the_baseline_fits_nothing_is_faster(ada: Place) -> None:
    found = answer(made(ada, 39.0 * GIB))
    assert found.baseline_fits
    assert found.winners[1].entry.name == "baseline"
    assert found.winners[1].sentence == (
        "is the fastest that fits: 39 GiB and 1 s per step, as fast as with endless memory"
    )


def test_two_devices_are_two_questions_and_get_no_answer(ada: Place) -> None:
    experiment = made(ada, 39.0 * GIB)
    cast.run(experiment, "quick", {"peak_memory": 1.0}, hardware="t4-16g")
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    assert answer_of(compare(runs, Choice())) is None


def test_the_page_says_it_and_follows_what_is_still_planning(client: Client, ada: Place) -> None:
    client.force_login(ada.user)
    experiment = made(ada, 61.0 * GIB)
    page = client.get(ada.url(f"compare/{experiment.pk}/")).content.decode()
    assert "does not fit" in page
    assert "1 still planning" in page
    assert "sse-connect" in page
    experiment.runs.filter(policy="slow").update(state="failed")
    page = client.get(ada.url(f"compare/{experiment.pk}/")).content.decode()
    assert "still planning" not in page
    assert "sse-connect" not in page
    assert "1 gave no answer" in page


def test_many_policies_once_each_hide_their_knobs_until_asked(ada: Place) -> None:
    """The surprise: two policies that happen to call a knob ``ahead`` do not differ by it."""
    experiment = cast.experiment(ada.project)
    gpt2 = cast.ready(ada.project)
    for ahead, name in enumerate("abcdefgh"):
        cast.run(experiment, name, {"step_time": 1.0}, artifact=gpt2, knobs={"ahead": ahead})
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    assert [column.key for column in compare(runs, Choice()).parameters] == []
    asked = compare(runs, Choice(columns=("knob.ahead", "metric.step_time")))
    assert [column.key for column in asked.parameters] == ["knob.ahead"]
