"""A file of many runs is sent in parts, in the order of the search: those of the file in one piece."""

from __future__ import annotations

import csv
import io
import warnings

import pytest
from django.http.response import HttpResponseBase

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.export import download
from webapp.compare.export_table import PART
from webapp.history.models import RunTag
from webapp.history.search import parse
from webapp.history.table import export_of, runs_of
from webapp.runs.models import Run, RunMetric

pytestmark = pytest.mark.django_db
RUNS = PART + 100


@pytest.fixture
def ada() -> Place:
    """Runs of which every third one has no figure, and every fifth one tags."""
    ada = cast.place("ada")
    made = cast.experiment(ada.project)
    common = {"project": ada.project, "experiment": made, "state": "succeeded", "family": "memory"}
    runs = Run.objects.bulk_create([Run(**common, policy="vdnn_all", seed=seed) for seed in range(RUNS)])
    figures = [
        RunMetric(run=run, name=name, value=value)
        for run in runs
        if run.seed % 3
        for name, value in (("step_time", float(RUNS - run.seed)), ("peak_memory", 1e300))
    ]
    RunMetric.objects.bulk_create(figures)
    tagged = [RunTag(run=run, name=name) for run in runs if run.seed % 5 == 0 for name in ("warm", "Odd")]
    RunTag.objects.bulk_create(tagged)
    return ada


def rows_of(answer: HttpResponseBase) -> list[list[str]]:
    with warnings.catch_warnings(action="ignore"):  # asynchronous, and read by what is not
        return list(csv.reader(io.StringIO(b"".join(answer).decode())))  # type: ignore[call-overload]


@pytest.mark.parametrize("text", ["", "order by step_time", "order by step_time desc", "order by seed"])
def test_the_parts_are_the_whole(ada: Place, text: str) -> None:
    asked = runs_of(ada.project), parse(text), ["step_time", "peak_memory"]
    sent, whole = download(export_of(*asked), "csv"), download(export_of(*asked).whole, "csv")
    assert (sent.streaming, whole.streaming) == (True, False)
    heading, *rows = rows_of(sent)
    assert [heading, *rows] == rows_of(whole)
    assert len(rows) == RUNS and len({row[0] for row in rows}) == RUNS
    for row in rows:
        told = dict(zip(heading, row, strict=True))
        seed = int(told["seed"])
        assert told["step_time (s)"] == (str(float(RUNS - seed)) if seed % 3 else "")
        assert told["peak_memory (bytes)"] == ("1e+300" if seed % 3 else "")
        assert told["tags"] == ("" if seed % 5 else "Odd warm")
    if "step_time" in text:
        times = [float(row[heading.index("step_time (s)")] or "inf") for row in rows]
        known = [one for one in times if one != float("inf")]
        assert times == [*sorted(known, reverse="desc" in text), *[float("inf")] * (RUNS - len(known))]


def test_the_first_of_them_say_so(ada: Place) -> None:
    found = export_of(runs_of(ada.project), parse(""), [], most=PART + 50)
    answer = download(found, "csv")
    assert answer["Content-Disposition"] == 'attachment; filename="all-runs-the-first-1050-of-1100.csv"'
    assert len(rows_of(answer)) == 1 + PART + 50
    assert found.whole.part == found.part == "The first 1,050 of 1,100"


def test_a_run_that_is_purged_meanwhile_is_left_out(ada: Place) -> None:
    answer = download(export_of(runs_of(ada.project), parse("order by seed"), []), "csv")
    Run.objects.filter(seed=RUNS - 3).delete()
    assert len(rows_of(answer)) == RUNS
