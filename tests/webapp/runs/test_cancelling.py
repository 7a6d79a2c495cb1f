"""Cancelling an experiment: what waits ends, what runs is asked to, and what waits for either fails."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.webapp.cast import Cast, experiment_with, ready, signed_in
from webapp.runs.models import Run
from webapp.runs.services import cancel_experiment

pytestmark = pytest.mark.django_db


def test_cancelling_ends_what_waits_and_asks_what_runs(cast: Cast) -> None:
    experiment = experiment_with(cast.project, ready(cast.project), queued=1, running=1, succeeded=1)
    signed_in(cast.max).post(cast.url(f"experiments/{experiment.pk}/cancel"))
    states = dict(experiment.runs.values_list("state", "cancel_requested"))
    assert states == {"cancelled": True, "running": True, "succeeded": False}


def test_cancelling_an_experiment_fails_what_waits_for_its_runs_elsewhere(cast: Cast) -> None:
    """A run of its own that waits is cancelled with it, one of another experiment fails with the reason."""
    artifact = ready(cast.project)
    first, second = experiment_with(cast.project, artifact, queued=2).runs.order_by("seed")
    elsewhere, last = experiment_with(cast.project, artifact, queued=2).runs.order_by("seed")
    Run.objects.filter(pk__in=[second.pk, elsewhere.pk]).update(after=first)
    Run.objects.filter(pk=last.pk).update(after=elsewhere)
    cancel_experiment(first.experiment)
    for one in (first, second, elsewhere, last):
        one.refresh_from_db()
    assert [first.state, second.state] == ["cancelled"] * 2
    assert [elsewhere.state, last.state] == ["failed"] * 2
    assert elsewhere.reason == "what it needs was not made (cancelled): cancelled"
    assert last.reason == "what it needs was not made (failed): cancelled"


def test_many_runs_are_cancelled_by_as_many_queries_as_few(cast: Cast) -> None:
    artifact, asked = ready(cast.project), []
    for count in (2, 30):
        made = experiment_with(cast.project, artifact, queued=count, running=count)
        with CaptureQueriesContext(connection) as queries:
            cancel_experiment(made)
        asked.append(len(queries))
        assert dict(made.runs.values_list("state", "cancel_requested")) == {
            "cancelled": True,
            "running": True,
        }
    assert asked[0] == asked[1]


def test_a_viewer_gets_no_cancel_button(cast: Cast) -> None:
    experiment = experiment_with(cast.project, ready(cast.project), queued=1)
    assert b"Cancel" not in signed_in(cast.vera).get(cast.url(f"experiments/{experiment.pk}/")).content
