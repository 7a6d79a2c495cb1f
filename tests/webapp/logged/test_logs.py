"""Logs of own runs over the API: stored once, to the byte, whatever is sent twice, late or wrong."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.logged.logs import STARTED, beginning, ending, falling, lines, log
from webapp.accounts.models import Role
from webapp.api.services import make_token
from webapp.history.search import parse
from webapp.history.search.rows import search
from webapp.history.search.words import say, write
from webapp.history.table import runs_of
from webapp.logged import points, services
from webapp.logged.models import LoggedRun, Series
from webapp.runs.models import Experiment, Run

pytestmark = pytest.mark.django_db


class Program:
    """Logs a run of its own to the API; ``status`` is that of the last answer."""

    def __init__(self, place: Place, role: str = Role.MEMBER) -> None:
        _, secret = make_token(place.project.team, place.user, "program", role)
        self.client = Client(headers={"authorization": f"Bearer {secret}"})
        self.run, self.status = uuid4(), 0

    def send(self, body: bytes, offset: int = 0, run: Any = None) -> Any:
        return self._read(
            self.client.post(
                f"/api/v1/logs/{run or self.run}?offset={offset}", body, content_type="application/x-ndjson"
            )
        )

    def get(self, path: str) -> Any:
        return self._read(self.client.get(f"/api/v1/logs/{self.run}{path}"))

    def _read(self, answer: Any) -> Any:
        self.status = answer.status_code
        return answer.json()


@pytest.fixture
def program(ada: Place) -> Program:
    return Program(ada)


def test_a_program_logs_from_its_beginning_to_its_end(ada: Place, program: Program) -> None:
    first = lines(
        beginning(
            params={"lr": 0.1, "optimizer.name": "adam"},
            tags=["paper"],
            hardware="H100",
            seed=3,
            diff="+ x\0",
        ),
        *falling(10),
        {"progress": [0.5, "epoch 1"]},
    )
    answer = program.send(first)
    assert (program.status, answer["offset"], answer["state"]) == (200, len(first), "running")
    run = Run.objects.get(pk=program.run)
    assert (run.kind, run.policy, run.hardware, run.seed, run.progress) == (
        "logged",
        "resnet",
        "H100",
        3,
        0.5,
    )
    assert run.queued_at == datetime.fromtimestamp(STARTED, UTC)
    assert run.experiment is not None and run.experiment.name == "resnet"
    rest = lines([10, STARTED + 10, {"train/loss": "nan", "accuracy": 0.9}], ending(reason="enough"))
    answer = program.send(rest, len(first))
    assert (answer["offset"], answer["state"]) == (len(first) + len(rest), "succeeded")
    run.refresh_from_db()
    assert (run.reason, run.progress) == ("enough", 1.0)
    loss, accuracy = (Series.objects.get(logged=run.pk, name=name) for name in ("train/loss", "accuracy"))
    assert (loss.count, loss.broken, loss.first_step, loss.last_step) == (11, 1, 0, 10)
    assert (loss.last, loss.least, loss.largest) == (0.2, 0.2, 2.0)
    assert dict(run.metrics.values_list("name", "value")) == {"train/loss": 0.2, "accuracy": accuracy.last}
    assert [tag.name for tag in run.tags.all()] == ["paper"]
    told = program.get("/points?name=train/loss")
    assert (
        told["steps"] == list(range(11)) and told["values"][-1] == "nan" and told["moments"][3] == STARTED + 3
    )
    assert [row["name"] for row in program.get("/series")["series"]] == ["accuracy", "train/loss"]
    assert LoggedRun.objects.get(pk=run.pk).diff == "+ x\ufffd"


def test_what_comes_again_is_stored_once_and_a_gap_is_told(program: Program) -> None:
    first, second = lines(beginning(), *falling(5)), lines(*falling(5)[:1])
    for _ in range(2):
        assert program.send(first)["offset"] == len(first)
    assert program.send(second, len(first) + 7) == {
        "detail": f"the log is stored up to byte {len(first)}",
        "offset": len(first),
    }
    assert program.status == 409
    assert program.send(second, len(first) - 3)["offset"] == len(first) and program.status == 409
    program.send(second, len(first))
    program.send(second, len(first))
    assert Series.objects.get().count == 6
    assert len(program.get("/points?name=train/loss")["steps"]) == 6


def test_a_foreign_id_is_nothing_and_a_reader_logs_nothing(ada: Place, program: Program) -> None:
    program.send(lines(beginning()))
    eve = Program(cast.place("eve"))
    assert eve.send(lines(beginning()), run=program.run) and eve.status == 404
    eve.run = program.run
    for path in ("", "/series", "/points?name=x"):
        assert eve.get(path) and eve.status == 404
    mine = cast.run(cast.experiment(ada.project))
    assert program.send(lines(beginning()), run=mine.pk) and program.status == 404
    reader = Program(ada, Role.VIEWER)
    assert reader.send(lines(beginning())) and reader.status == 403


NO_BEGINNING = '{"begin": {"name": ...}} as its first line'


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        (b"", "body", "line feed"),
        (b"{", "body", "line feed"),
        (b"{\n", "line 1", "a JSON array or object"),
        (b"\xff\xfe\n", "line 1", "a JSON array or object"),
        (lines([0, 1.0, {}]), "line 1", NO_BEGINNING),
        (lines(beginning(), beginning()), "line 2", NO_BEGINNING),
        (lines(beginning(), ending(), [0, 1.0, {}]), "line 3", "end as the last line"),
        (lines(beginning(""), []), "line 1.begin.name", "80 characters"),
        (lines(beginning(nmae=1)), "line 1.begin", "name, experiment"),
        (lines(beginning(params={"a": [1]})), "line 1.begin.params", "text, a number"),
        (lines(beginning(params={"a": "x\x00"})), "line 1.begin.params.a", "U+0000"),
        (lines(beginning(seed=2**63)), "line 1.begin.seed", "64 bits"),
        (lines({"begin": {"name": "x"}}), "line 1.begin.started", "seconds since 1970"),
        (lines(beginning(), [-1, 1.0, {"a": 1}]), "line 2", "an integer of at least 0"),
        (lines(beginning(), [True, 1.0, {"a": 1}]), "line 2", "an integer of at least 0"),
        (lines(beginning(), [1, 1e300, {"a": 1}]), "line 2", "seconds since 1970"),
        (lines(beginning(), [1, 1.0, {"a": "high"}]), "line 2", "a number, or nan"),
        (lines(beginning(), [1, 1.0, {"a": None}]), "line 2", "a number, or nan"),
        (lines(beginning(), [1, 1.0, {"x" * 61: 1}]), "line 2", "60 characters"),
        (lines(beginning(), [1, 1.0, {"a\nb": 1}]), "line 2", "60 characters"),
        (lines(beginning(), [1, 1.0, {"loss (ema)": 1}]), "line 2", "60 characters without"),
        (lines(beginning(), {"progress": ["half", ""]}), "line 2.progress", "a finite number"),
        (lines(beginning(), {"progress": [0.5, "a\x00b"]}), "line 2.progress", "U+0000"),
        (lines(beginning(), ending(reason="a\x00b")), "line 2.end.reason", "U+0000"),
        (lines(beginning(), {"tags": ["x" * 41]}), "line 2.tags", "at most 40"),
        (lines(beginning(), ending("perhaps")), "line 2.end.state", "succeeded, failed, cancelled"),
        (lines(beginning(), {"else": 1}), "line 2", "begin, progress, table, image, tags or end"),
        (lines(beginning(), 7), "line 2", "begin, progress, table, image, tags or end"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_of_its_part_is_stored(
    program: Program, body: bytes, field: str, expected: str
) -> None:
    answer = program.send(body)
    assert program.status == 422, answer
    assert answer["field"] == field and expected in answer["expected"]
    assert not Run.objects.exists() and not Experiment.objects.exists()


def test_behind_its_end_a_log_takes_nothing(program: Program) -> None:
    whole = lines(beginning(), ending())
    program.send(whole)
    assert "has ended" in program.send(lines([0, 1.0, {"a": 1}]), len(whole))["detail"]
    assert program.status == 422


def test_a_run_that_falls_silent_is_given_up_and_goes_on_when_it_is_heard_again(program: Program) -> None:
    first = lines(beginning(), *falling(3))
    program.send(first)
    now = timezone.now()
    assert services.give_up_silent(now + timedelta(hours=5)) == 0
    assert services.give_up_silent(now + timedelta(hours=7)) == 1
    assert program.get("")["state"] == "failed"
    program.send(b"", len(first))
    assert program.get("")["state"] == "failed", "a sign of life alone is no word of it"
    program.send(lines(*falling(1)), len(first))
    assert program.get("")["state"] == "running"


def test_who_asks_a_run_to_stop_is_heard_by_its_program(ada: Place, program: Program) -> None:
    first = lines(beginning())
    program.send(first)
    page = cast.signed_in(ada.user)
    assert page.post(ada.url(f"runs/{program.run}/cancel")).status_code == 302
    assert program.send(lines(*falling(1)), len(first))["stop"] is True


def test_a_file_stands_on_the_page(ada: Place, program: Program) -> None:
    program.send(lines(beginning()))
    made = cast.ready(ada.project, name="trace.json")
    other = cast.ready(cast.place("eve").project, name="secret")
    for number, status in ((made.pk, 200), (other.pk, 404), ("x", 422)):
        answer = program.client.post(
            f"/api/v1/logs/{program.run}/files",
            json.dumps({"artifact": number}),
            content_type="application/json",
        )
        assert answer.status_code == status
    page = cast.signed_in(ada.user).get(ada.url(f"own-runs/{program.run}")).content.decode()
    assert "trace.json" in page and "secret" not in page


def test_stretches_are_means_and_ends_of_what_is_finite(ada: Place) -> None:
    drawn = random.Random(7)
    told: list[Any] = [
        [step, STARTED + step, {"a": drawn.choice([drawn.gauss(0, 1), "nan", "inf"])}]
        for step in sorted(drawn.sample(range(10_000), 3000))
    ]
    series = log(ada.project, ada.user, "x", told).series.get()
    found = points.read_stretches([series.pk], 40)[series.pk]
    assert len(found.steps) == 40
    steps = series.last_step - series.first_step + 1
    for place, first in enumerate(found.steps):
        inside = [
            (step, value["a"]) for step, _, value in told if (step - series.first_step) * 40 // steps == place
        ]
        values = [value for _, value in inside if not isinstance(value, str)]
        assert first == inside[0][0]
        assert math.isclose(found.mean[place] or 0.0, sum(values) / len(values), abs_tol=1e-9)
        assert (found.least[place], found.largest[place]) == (min(values), max(values))
    whole = points.read_stretches([series.pk], 100_000)[series.pk]
    assert len(whole.steps) == 3000


def test_months_that_are_past_are_packed_and_read_the_same(
    ada: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    months = [datetime(2020, month, 28, tzinfo=UTC) for month in (1, 2, 12)]
    run = log(ada.project, ada.user, "x", falling(20))
    series = run.series.get()
    for place, month in enumerate(months):
        rows = [(series.pk, 100 * (place + 1) + step, 1.0, float(step)) for step in range(5)]
        points.append(rows, month)
    before = points.read([series.pk])[series.pk]
    assert len(before.steps) == 35
    assert points.pack(date(2020, 3, 30)) == ["logged_point_2020_01_01"]
    assert points.pack(date(2020, 4, 1)) == ["logged_point_2020_02_01"]
    assert points.read([series.pk])[series.pk] == before
    assert len(points.read_stretches([series.pk], 10**6)[series.pk].steps) == 35
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM logged_point_2020_12_01")
        assert cursor.fetchone() == (5,)


def test_points_go_with_their_run(ada: Place) -> None:
    gone, stays = (log(ada.project, ada.user, name) for name in ("gone", "stays"))
    series = gone.series.get().pk
    points.append([(series, 999, 1.0, 1.0)], datetime(2026, 1, 5, tzinfo=UTC))
    points.pack(date(2026, 6, 1))
    assert gone.run.experiment is not None
    gone.run.experiment.delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM logged_point WHERE series = %s", [series])
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT count(*) FROM logged_packed")
        assert cursor.fetchone() == (0,)
    kept = stays.series.get().pk
    assert len(points.read([kept])[kept].steps) == 50


def test_own_runs_are_found_among_all_by_figures_and_parameters(ada: Place) -> None:
    for rate in (0.1, 0.01):
        log(ada.project, ada.user, "sgd", falling(10, start=rate), params={"lr": rate, "opt.name": "sgd"})
    cast.run(cast.experiment(ada.project), metrics={"step_time": 1.0})

    def found(text: str) -> list[float]:
        query = parse(text)
        assert parse(write(query)) is not None and say(query)
        return [run.spec["knobs"].get("lr") for run in search(runs_of(ada.project), query)]

    assert found("metric.train/loss < 0.005") == [0.01]
    assert found("param.lr > 0.05 and param.opt.name = sgd") == [0.1]
    assert sorted(found("not (metric.train/loss missing)")) == [0.01, 0.1]
    page = cast.signed_in(ada.user).get(ada.url("all-runs/"), {"q": "order by metric.train/loss desc"})
    assert page.status_code == 200 and "train/loss" in page.content.decode()
    words = cast.signed_in(ada.user).get(ada.url("all-runs/completion"), {"q": "train/"}).json()["words"]
    assert words == ["metric.train/loss"]


def test_the_pages_of_a_run_and_of_an_experiment(ada: Place) -> None:
    made = [
        log(
            ada.project,
            ada.user,
            "net",
            params={"lr": rate},
            experiment="rates",
            environment={"host": "gpu7"},
        )
        for rate in (0.1, 0.01)
    ]
    page = cast.signed_in(ada.user)
    one = page.get(ada.url(f"runs/{made[0].pk}"), follow=True)
    text = one.content.decode()
    assert one.redirect_chain[-1][0] == ada.url(f"own-runs/{made[0].pk}")
    assert "gpu7" in text and "train/loss" in text and "0.1" in text
    by_time = page.get(ada.url(f"own-runs/{made[0].pk}"), {"by": "time"}).content.decode()
    assert "time since the first point" in by_time
    rows = page.get(ada.url(f"own-runs/{made[0].pk}"), {"export": "csv"}).content.decode().splitlines()
    assert rows[0] == "figure,step,moment (s),value" and len(rows) == 51
    together = page.get(ada.url(f"compare/{made[0].run.experiment_id}/"), follow=True).content.decode()
    assert "differ in lr" in together and "lr 0.01" in together
    chosen = page.get(ada.url("compare/"), {"run": [str(one.pk) for one in made]}, follow=True)
    assert "differ in lr" in chosen.content.decode()
    grid = page.get(ada.url(f"experiments/{made[0].run.experiment_id}/")).content.decode()
    assert "0.01" in grid


def test_runs_of_one_experiment_come_together_and_never_among_those_of_policies(ada: Place) -> None:
    policies = cast.experiment(ada.project, "rates")
    cast.run(policies)
    one, other = (log(ada.project, ada.user, name, experiment="rates") for name in ("a", "b"))
    assert one.run.experiment_id == other.run.experiment_id != policies.pk
