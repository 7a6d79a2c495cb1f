"""Alerts: a step is told with its levels and suspects, noise and one odd night are none, gaps are said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from experiments.core.suites import load_suite
from tests.webapp.cast import Place, place
from webapp.hosts.models import Host
from webapp.nightly import charts, history, services, steps
from webapp.nightly.calendar import cells, count_nights
from webapp.nightly.levels import is_worth_telling, segments
from webapp.nightly.models import Schedule
from webapp.runs.models import Run, RunDocument, RunMetric

SLOT = datetime(2026, 3, 2, 2, 0, tzinfo=UTC)
SUITE = "memory-gpt2"


@pytest.fixture
def ada(db: None) -> Place:
    return place("ada")


@pytest.fixture
def nightly(ada: Place) -> Schedule:
    made = services.create_schedule(ada.project, ada.user, SUITE, 2, 0)
    Schedule.objects.update(created_at=SLOT - timedelta(days=1))
    made.refresh_from_db()
    return made


def record(
    nightly: Schedule, day: int, value: float | None, revision: str = "aaa", **columns: object
) -> None:
    """The night of ``day``: every run took ``value`` seconds; without one, all failed."""
    night = services.tick(nightly, SLOT + timedelta(days=day))
    assert night.experiment is not None
    runs = night.experiment.runs
    if value is None:
        runs.update(state=Run.State.FAILED)
        return
    for run in runs.all():
        RunMetric.objects.create(run=run, name="step_time", value=value)
        RunDocument.objects.create(run=run, outcome={"provenance": {"revision": revision}})
    runs.update(**{"state": Run.State.SUCCEEDED, "outcome_status": "ok", **columns})


def levels(values: Sequence[float]) -> list[tuple[int, int, float]]:
    return [(piece.first, piece.end, piece.level) for piece in segments(tuple(values))]


def test_noise_is_no_step_and_a_step_in_noise_is_one() -> None:
    noise = random.Random(1)
    quiet = [1.0 + noise.gauss(0, 0.02) for _ in range(30)]
    assert len(levels(quiet)) == 1
    first, second = levels([*quiet, *(value + 0.2 for value in quiet[:5])])
    assert (first[:2], second[:2]) == ((0, 30), (30, 35))
    assert second[2] - first[2] == pytest.approx(0.2, abs=0.03)


def test_a_measured_step_of_one_percent_is_worth_telling_and_none_at_all_is_not() -> None:
    assert is_worth_telling(100.0, 101.0) and is_worth_telling(100.0, 99.0) and is_worth_telling(0.0, 1e-9)
    assert not is_worth_telling(100.0, 100.9) and not is_worth_telling(0.0, 0.0)


def test_one_odd_night_among_noisy_ones_is_no_step() -> None:
    noise = random.Random(2)
    quiet = [1.0 + noise.gauss(0, 0.02) for _ in range(30)]
    assert len(levels([*quiet[:15], 1.1, *quiet[15:]])) == 1


def test_a_simulated_figure_steps_by_a_thousandth_and_back() -> None:
    assert levels([2.0] * 10 + [2.002] * 5 + [2.0] * 3) == [(0, 10, 2.0), (10, 15, 2.002), (15, 18, 2.0)]


def test_an_alert_says_levels_suspects_and_the_nights_that_brought_nothing(nightly: Schedule) -> None:
    """Two failed nights lie between the revisions: the change may be of any of the three."""
    for day in range(3):
        record(nightly, day, 1.0, "aaa")
    record(nightly, 3, None)
    record(nightly, 4, None)
    record(nightly, 5, 1.5, "ddd")
    record(nightly, 6, 1.5, "eee")
    alert, *more = steps.alerts(history.history(nightly))
    assert len(more) == len(load_suite(SUITE).runs) - 1
    assert (alert.before, alert.after, alert.better) == (1.0, 1.5, False)
    assert (alert.suspects, alert.silent, alert.lasted) == ("aaa..ddd", 2, 2)
    assert alert.first_after.slot == SLOT + timedelta(days=5)


def test_a_change_under_one_revision_clears_the_code_and_names_the_hosts(nightly: Schedule) -> None:
    old, new = Host.objects.create(name="old"), Host.objects.create(name="new")
    record(nightly, 0, 1.0, host=old)
    record(nightly, 1, 0.5, host=new)
    alert = steps.alerts(history.history(nightly))[0]
    assert alert.better is True
    assert alert.suspects == "aaa both times, not the code; host old before, new after"


def test_a_measured_series_of_a_few_nights_raises_no_alert_and_says_why(
    ada: Place, nightly: Schedule, client: Client
) -> None:
    client.force_login(ada.user)
    for day in range(5):
        record(nightly, day, 1.0 if day < 4 else 1.3, mode="measured")
    assert steps.alerts(history.history(nightly)) == []
    url = ada.url(f"nightly/{nightly.pk}/")
    assert "from its 8th night on" in client.get(url).content.decode()
    for day in range(5, 8):
        record(nightly, day, 1.3, mode="measured")
    assert steps.alerts(history.history(nightly))[0].lasted == 4
    assert "from its 8th night on" not in client.get(url).content.decode()


def test_charts_draw_the_levels_and_mark_nights_without_figures(nightly: Schedule) -> None:
    for day, value in enumerate((1.0, 1.0, None, 2.0)):
        record(nightly, day, value)
    running = services.tick(nightly, SLOT + timedelta(days=4))
    services.tick(nightly, SLOT + timedelta(days=5))
    assert running.experiment is not None
    plot = charts.chart(history.history(nightly), "step_time", nightly, cells(count_nights(nightly)))
    runs = len(load_suite(SUITE).runs)
    level = plot["series"][runs]
    assert level["of"] == 0
    days = ["2026-03-02 02:00", "2026-03-03 02:00", None, "2026-03-05 02:00", "2026-03-05 02:00", None]
    assert level["x"] == days
    assert level["y"] == [1.0, 1.0, None, 2.0, 2.0, None]
    assert plot["marks"] == [
        {"x": "2026-03-07 02:00", "text": "skipped"},
        {"x": "2026-03-04 02:00", "text": "failed"},
    ]


def test_alerts_leave_as_a_file_in_si_units(ada: Place, nightly: Schedule, client: Client) -> None:
    client.force_login(ada.user)
    record(nightly, 0, 0.001, "aaa")
    record(nightly, 1, 0.002, "bbb")
    names = "&".join(f"alerts-column={name}" for name in ("metric", "unit", "before", "after", "suspects"))
    rows = client.get(ada.url(f"nightly/{nightly.pk}/?export=csv&{names}")).content.decode().splitlines()
    assert rows[:2] == ["Figure,Unit,Before,After,Suspects", "step_time,s,0.001,0.002,aaa..bbb"]
