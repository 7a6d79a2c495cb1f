"""Leaderboards: one question each, a policy by its best, repeats with their interval, records in order."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow.parquet
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from benchmarks.plans_of_queries import rows_looked_at
from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import Place
from webapp.history import leaderboard
from webapp.history.boards import boards_of
from webapp.history.leaderboard import leaderboard_of, ranking_plot, record_plot, table_of
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 11, 20, 12, tzinfo=UTC)


def answers(there: Place) -> dict[str, Run]:
    """Runs of one question and of three others; each by a name."""
    made = cast.experiment(there.project)
    model = cast.ready(there.project)
    found: dict[str, Run] = {}

    def answer(name: str, policy: str, seconds: float, day: int, **more: Any) -> None:
        figures = {"step_time": seconds, "peak_memory": 4.0e9 / seconds}
        run = cast.run(made, policy, figures, artifact=more.pop("artifact", model), **more)
        Run.objects.filter(pk=run.pk).update(finished_at=DAY + timedelta(days=day), owner=there.user)
        found[name] = run

    answer("slow", "baseline", 4.0, 0)
    for seed, seconds in enumerate((2.0, 2.2, 1.8)):
        answer(f"repeat {seed}", "vdnn", seconds, 1 + seed, seed=seed)
    answer("worse knob", "vdnn", 3.0, 4, knobs={"lookahead": 1})
    answer("record", "capuchin", 1.5, 5)
    answer("later", "dtr", 1.9, 6)
    cast.run(made, "swap_all", state=Run.State.INFEASIBLE, artifact=model, outcome_status="infeasible")
    answer("other batch", "dtr", 0.1, 7, options={"batch": 8})
    answer("other hardware", "dtr", 0.1, 7, hardware="h100-80g")
    answer("measured", "dtr", 0.1, 7, mode="measured")
    answer("other model", "dtr", 0.1, 7, artifact=cast.ready(there.project, name="bert"))
    return found


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


def test_policies_are_ranked_by_their_best_on_just_this_question(ada: Place) -> None:
    runs = answers(ada)
    found = leaderboard_of(Run.objects.get(pk=runs["later"].pk), "")
    assert found.metric == "step_time"
    told = [(place.rank, place.entry.run.policy, place.estimate.value, place.tried) for place in found.places]
    assert told == [(1, "capuchin", 1.5, 1), (2, "dtr", 1.9, 1), (3, "vdnn", 2.0, 2), (4, "baseline", 4.0, 1)]
    vdnn = found.places[2]
    assert vdnn.estimate.n == 3 and vdnn.estimate.half_width == pytest.approx(0.2 * 4.302653 / 3**0.5)
    assert vdnn.behind == pytest.approx(1 / 3)
    assert found.unanswered == (("swap_all", "infeasible"),)
    assert [(one.run.policy, one.value) for one in found.records] == [
        ("baseline", 4.0),
        ("vdnn", 2.0),
        ("vdnn", 1.8),
        ("capuchin", 1.5),
    ]
    assert ranking_plot(found, ada.project)["lanes"] == ["capuchin", "dtr", "vdnn", "baseline"]
    staircase = record_plot(found, ada.project)
    assert staircase is not None and staircase["series"][0]["y"] == [4.0, 2.0, 1.8, 1.5]


def test_another_figure_ranks_another_way(ada: Place) -> None:
    runs = answers(ada)
    found = leaderboard_of(Run.objects.get(pk=runs["slow"].pk), "peak_memory")
    assert [place.entry.run.policy for place in found.places] == ["baseline", "vdnn", "dtr", "capuchin"]
    assert found.places[1].knobs == "lookahead 1"
    assert leaderboard_of(Run.objects.get(pk=runs["slow"].pk), "nothing").metric == "step_time"


def test_a_speed_up_that_nobody_saw_is_no_record_and_no_figure(ada: Place) -> None:
    made, model = cast.experiment(ada.project), cast.ready(ada.project)
    for policy, low, value, high in (("fast", 1.9, 2.0, 2.1), ("unclear", 0.5, 3.0, 5.5)):
        figures = {"speedup": value, "speedup_low": low, "speedup_high": high}
        run = cast.run(made, policy, figures, artifact=model, family="compilation")
    found = leaderboard_of(Run.objects.get(pk=run.pk), "speedup")
    assert [place.entry.run.policy for place in found.places] == ["fast", "unclear"]
    assert [(one.run.policy, one.value) for one in found.records] == [("fast", 2.0)]
    assert [row[4] for row in table_of(found, run).rows] == [2.0, "no difference seen"]


def test_questions_with_several_policies_are_listed_once_each(ada: Place) -> None:
    answers(ada)
    (board,) = boards_of(ada.project)
    assert (board.workload, board.hardware, board.policies, board.runs) == ("gpt2", "a100-40g", 4, 7)
    assert (board.leader, board.best, board.question) == ("capuchin", 1.5, "A training step of 4 samples")
    assert boards_of(cast.place("eve").project) == []


def test_the_pages_and_their_files(ada: Place) -> None:
    runs = answers(ada)
    page = cast.signed_in(ada.user)
    listed = page.get(ada.url("all-runs/leaderboards")).content.decode()
    assert "capuchin" in listed and "A training step of 4 samples" in listed
    address = ada.url(f"all-runs/leaderboards/{runs['slow'].pk}")
    text = page.get(address).content.decode()
    assert "capuchin leads on gpt2" in text and "swap_all (infeasible)" in text
    rows = page.get(address, {"export": "csv"}).content.decode().splitlines()
    assert rows[0].startswith("rank,policy,knobs,repeats,step time (s)") and rows[1].startswith("1,capuchin")
    stored = pyarrow.parquet.read_table(io.BytesIO(page.get(address, {"export": "parquet"}).content))
    numbers = [str(one.type) for one in stored.schema if one.name not in ("policy", "knobs")]
    assert numbers == ["int64", "int64", "double", "double", "double"], "no interval is missing, not words"
    assert cast.signed_in(cast.place("eve").user).get(address).status_code == 404
    assert Client().get(address).status_code == 302


def test_nothing_answered_says_what_to_do(ada: Place) -> None:
    page = cast.signed_in(ada.user)
    assert "Try several on one workload" in page.get(ada.url("all-runs/leaderboards")).content.decode()
    alone = cast.run(cast.experiment(ada.project), state=Run.State.FAILED)
    assert "None of its runs" in page.get(ada.url(f"all-runs/leaderboards/{alone.pk}")).content.decode()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(390, 1440))
def test_the_ranking_and_the_records_are_drawn(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    there = cast.place("ada")
    runs = answers(there)
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, there.user)
        for name, where in (("leaderboards", ""), ("leaderboard", f"/{runs['slow'].pk}")):
            page.goto(address + there.url(f"all-runs/leaderboards{where}"))
            for plot in ("#ranking", "#records") if where else ():
                page.locator(f"{plot} .main-svg").first.wait_for()
                assert ink(page, page.locator(plot)) > 0.01
            assert serious(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if folder := os.environ.get("LAB_SHOTS"):
                page.emulate_media(color_scheme="dark" if width < 1000 else "light")
                page.wait_for_timeout(300)
                page.screenshot(path=f"{folder}/{name}-{width}.png", full_page=True)


def test_questions_are_looked_for_among_the_answers_of_a_family_alone(ada: Place) -> None:
    """Of 2,000 answers in one family and 10 in another, a query finds its family's and reads them."""
    run = cast.run(cast.experiment(ada.project), "baseline", {"step_time": 1.0})
    (row,) = Run.objects.filter(pk=run.pk).values()
    families = ["memory"] * 1999 + ["cluster"] * 10
    copies = [Run(**{**row, "id": uuid4(), "spec_id": "", "family": family}) for family in families]
    Run.objects.bulk_create(copies)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE runs_run")
    with CaptureQueriesContext(connection) as seen:
        boards_of(ada.project)
    of_runs = [query["sql"] for query in seen if '"runs_run"' in query["sql"]]
    looked_at = [rows_looked_at([query])["runs_run"] for query in of_runs]
    assert looked_at[0] >= 2000 and max(looked_at[1:]) <= 20, looked_at  # memory is asked for first


def test_of_more_runs_than_are_looked_at_the_page_says_so(
    ada: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = answers(ada)
    client.force_login(ada.user, backend="django.contrib.auth.backends.ModelBackend")
    address = ada.url(f"all-runs/leaderboards/{runs['later'].pk}")
    assert "8 runs" in client.get(address).content.decode()
    monkeypatch.setattr(leaderboard, "MOST_RUNS", 3)
    assert "the newest 3 of 8 runs" in client.get(address).content.decode()
