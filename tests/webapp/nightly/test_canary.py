"""The canary of a host tells a slower host from slower code."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from experiments.core.suites import Suite, load_suite
from tests.webapp.cast import Place, place
from tests.webapp.nightly.test_alerts import SLOT
from webapp.accounts.models import Role
from webapp.hosts.services import register
from webapp.nightly import canary, changes, services
from webapp.nightly.history import history
from webapp.nightly.models import Change, Schedule
from webapp.runs.models import Experiment, Run, RunDocument, RunMetric

NIGHTS, STEP = 16, 9
NOW = SLOT + timedelta(days=NIGHTS)
State = Change.State


@pytest.fixture
def ada(db: None) -> Place:
    return place("ada", Role.ADMIN)


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every suite: sixteen nights of all would take minutes to look at."""
    monkeypatch.setattr(services, "load_suite", lambda name: _first_of(load_suite(name)))


def _first_of(suite: Suite) -> Suite:
    return replace(suite, runs=suite.runs[:1])


def nights(ada: Place, canaries: tuple[float, float], metric: str = "latency", **more: Any) -> Schedule:
    """Nights of a measured suite whose figure is half as high again from ``STEP`` on; the canary's are as
    told before and after.
    """
    made = services.create_schedule(ada.project, ada.user, "compilation", 2, 0)
    Schedule.objects.update(created_at=SLOT - timedelta(days=1))
    hosts = [register(name, {"device_kinds": ["cpu"], "sandbox_tier": "limits"}) for name in ("one", "two")]
    for day in range(NIGHTS):
        night = services.tick(made, SLOT + timedelta(days=day))
        assert night.experiment is not None, night.skipped
        is_late = day >= STEP
        for run in night.experiment.runs.all():
            is_canary = run.policy == "eager" and run.artifact.name == "gpt2-tiny"
            value = canaries[is_late] if is_canary else 1.5 if is_late else 1.0
            host = hosts[more.get("canary_host", 0) if is_canary else 0]
            name = canary.METRIC if is_canary else metric
            RunMetric.objects.create(run=run, name=name, value=value * (1 + 0.0001 * (day % 3)))
            RunDocument.objects.create(
                run=run, outcome={"provenance": {"revision": "aaa" if is_late else "bbb"}}
            )
            Run.objects.filter(pk=run.pk).update(state="succeeded", mode="measured", host=host)
    return made


def test_a_measured_night_has_a_canary_and_a_simulated_one_has_none(ada: Place) -> None:
    measured = services.tick(services.create_schedule(ada.project, ada.user, "compilation", 2, 0), SLOT)
    assert measured.experiment is not None
    titles = list(measured.experiment.request["titles"].values())
    assert titles.count(canary.TITLE) == 1
    assert measured.experiment.runs.count() == len(titles)
    simulated = services.tick(services.create_schedule(ada.project, ada.user, "memory-gpt2", 3, 0), SLOT)
    assert simulated.experiment is not None
    assert canary.TITLE not in simulated.experiment.request["titles"].values()
    assert Experiment.objects.count() == 2


def test_a_host_that_drifted_as_much_explains_it(ada: Place) -> None:
    made = nights(ada, (0.010, 0.0145))
    changes.watch(NOW)
    found = Change.objects.exclude(title__startswith=canary.TITLE)
    assert {one.state for one in found} == {State.DRIFT}
    assert found[0].drift == pytest.approx(0.45, abs=0.01)
    assert not any(one.confirmation for one in found)
    assert history(made).of(canary.METRIC)[canary.TITLE][0].value == 0.010


@pytest.mark.parametrize("canaries", [(0.010, 0.010), (0.010, 0.0102), (0.010, 0.006)])
def test_a_host_that_is_as_it_was_explains_nothing(ada: Place, canaries: tuple[float, float]) -> None:
    nights(ada, canaries)
    changes.watch(NOW)
    states = {one.state for one in Change.objects.exclude(title__startswith=canary.TITLE)}
    assert states == {State.CONFIRMING}


def test_memory_does_not_drift_and_another_hosts_canary_tells_nothing(ada: Place) -> None:
    nights(ada, (0.010, 0.0145), metric="peak_memory")
    changes.watch(NOW)
    assert {one.state for one in Change.objects.exclude(title__startswith=canary.TITLE)} == {State.CONFIRMING}
    Change.objects.all().delete()
    Schedule.objects.all().delete()
    nights(ada, (0.010, 0.0145), canary_host=1)
    changes.watch(NOW)
    found = Change.objects.exclude(title__startswith=canary.TITLE)
    assert {one.state for one in found} == {State.CONFIRMING} and {one.drift for one in found} == {None}
