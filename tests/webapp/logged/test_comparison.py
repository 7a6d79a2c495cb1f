"""Own runs over one another: labels that tell them apart, no column twice, courses and dots."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.client.own_run import seconds_between
from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.logged.logs import STARTED, log
from webapp.logged.comparison import LONGEST_LABEL, Comparison, compare

pytestmark = pytest.mark.django_db


def compare_own(ada: Place, *told: tuple[str, dict[str, Any]]) -> Comparison:
    made = [log(ada.project, ada.user, name, params=params, experiment="one") for name, params in told]
    return compare([one.run for one in made], "step")


def test_names_that_tell_runs_apart_are_labels_and_no_column(ada: Place) -> None:
    found = compare_own(ada, ("lr 0.1", {"lr": 0.1, "batch": 32}), ("lr 1", {"lr": 1, "batch": 32}))
    assert (found.differing, found.columns) == (("name", "lr"), ("lr",))
    assert [(line.label, line.params) for line in found.lines] == [("lr 0.1", ("0.1",)), ("lr 1", ("1",))]
    assert found.same == (("batch", "32"), ("seed", "0"))


def test_what_labels_add_to_the_name_is_no_column_either(ada: Place) -> None:
    found = compare_own(
        ada,
        ("net", {"lr": 0.1, "decay": 0}),
        ("net", {"lr": 0.2, "decay": 1}),
        ("wide", {"lr": 0.1, "decay": 0}),
    )
    assert [line.label for line in found.lines] == ["net, lr 0.1", "net, lr 0.2", "wide, lr 0.1"]
    assert [line.params for line in found.lines] == [("0",), ("1",), ("0",)]
    assert found.columns == ("decay",)


def test_a_parameter_that_a_label_has_no_place_for_keeps_its_column(ada: Place) -> None:
    long = "x" * LONGEST_LABEL
    found = compare_own(ada, ("net", {"a": long + "1", "b": 1}), ("net", {"a": long + "2", "b": 2}))
    assert found.columns == ("a", "b")
    assert len({line.label for line in found.lines}) == 2


def test_a_figure_of_one_step_in_every_run_is_a_dot_a_run_and_others_are_courses(ada: Place) -> None:
    points = [[step, STARTED + step, {"loss": 1.0 / (1 + step)}] for step in range(3)]
    made = [
        log(
            ada.project, ada.user, name, [*points, [2, STARTED + 3, {"test/accuracy": score}]], experiment="e"
        )
        for name, score in (("net", 0.5), ("wide", 0.75))
    ]
    loss, accuracy = compare([one.run for one in made], "time").plots
    assert loss["kind"] == "line" and [line["x"] for line in loss["series"]] == [[0.0, 1.0, 2.0]] * 2
    assert (accuracy["kind"], accuracy["lanes"]) == ("scatter", ["net", "wide"])
    assert accuracy["series"] == [{"name": "test/accuracy", "x": [0.5, 0.75], "y": ["net", "wide"]}]


def test_memory_is_looked_at_often_at_first_and_every_ten_seconds_later() -> None:
    assert [seconds_between(lasted) for lasted in (0.0, 0.4, 8.0, 40.0, 4000.0)] == [
        0.02,
        0.1,
        2.0,
        10.0,
        10.0,
    ]


def test_the_page_has_no_column_of_names(ada: Place) -> None:
    made = [log(ada.project, ada.user, name, experiment="names") for name in ("net a", "net b")]
    page = cast.signed_in(ada.user).get(ada.url(f"own-runs/?experiment={made[0].run.experiment_id}"))
    assert "differ in name" in page.content.decode()
    assert page.content.decode().count(">net a<") == 1
