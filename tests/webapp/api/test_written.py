"""Tags, notes, comments and reports over the API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Place
from webapp.accounts.models import Role
from webapp.history.discussion import mentions_of
from webapp.history.models import RunTag
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


def runs(place: Place, count: int) -> list[Run]:
    made = cast.experiment(place.project)
    return [cast.run(made, f"p{number}", {"step_time": 1.0 + number}) for number in range(count)]


def test_tags_go_on_and_off_many_runs_at_once_all_or_none(ada: Place, caller: Caller) -> None:
    found = [str(run.pk) for run in runs(ada, 3)]
    assert caller.post("/tags", {"name": "paper", "runs": found, "take": "on"})["runs"] == 3
    assert caller.post("/tags", {"name": "paper", "runs": found[:1], "take": "on"})["runs"] == 1
    assert RunTag.objects.filter(name="paper", by=ada.user).count() == 3
    caller.post("/tags", {"name": "paper", "runs": found[:2], "take": "off"})
    assert RunTag.objects.filter(name="paper").count() == 1
    foreign = str(runs(cast.place("eve"), 1)[0].pk)
    told = caller.post("/tags", {"name": "x", "runs": [found[0], foreign], "take": "on"})
    assert (caller.last, told["field"]) == (422, "runs[1]")
    assert not RunTag.objects.filter(name="x").exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a b", "runs": [], "take": "on"}, "name"),
        ({"name": "a", "runs": [], "take": "both"}, "take"),
        ({"name": "a", "runs": ["x"], "take": "on"}, "runs[0]"),
        ({"name": "a", "runs": {}, "take": "on"}, "runs"),
        ({"name": "a", "runs": []}, "take"),
        ({"name": "a", "runs": [], "take": "on", "colour": 1}, "colour"),
        ([], "body"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(caller: Caller, body: Any, field: str) -> None:
    assert caller.post("/tags", body)["field"] == field
    assert caller.last == 422


def test_notes_and_comments_are_written_and_read(ada: Place, caller: Caller, stranger: Caller) -> None:
    (run,) = runs(ada, 1)
    at = f"/runs/{run.pk}"
    assert caller.get(f"{at}/note") == {"text": "", "by": None, "at": None}
    assert caller.post(f"{at}/note", {"text": " **nan** "})["text"] == "**nan**"
    assert caller.get(f"{at}/note")["by"] == str(ada.user)
    caller.post(f"{at}/note", {"text": ""})
    assert caller.get(f"{at}/note")["text"] == ""
    caller.post(f"{at}/note", {"text": "x" * 20_001})
    assert caller.last == 422
    said = caller.post(f"{at}/comments", {"text": f"@{ada.user} look"})
    assert caller.last == 201
    assert caller.get(f"{at}/comments") == [said]
    assert list(mentions_of(ada.user, ada.project)) == [], "nobody tells themselves"
    assert caller.post(f"{at}/comments", {"text": "  "})["field"] == "text"
    for path in ("note", "comments"):
        stranger.get(f"{at}/{path}")
        assert stranger.last == 404
        stranger.post(f"{at}/{path}", {"text": "x"})
        assert stranger.last == 404


def test_a_report_is_made_written_and_read_with_what_it_finds(
    ada: Place, caller: Caller, stranger: Caller
) -> None:
    runs(ada, 2)
    text = "Best:\n\n```runs\ngroup by policy: min(step_time)\n```\n"
    made = caller.post("/reports", {"title": "Fast", "text": text})
    assert (caller.last, made["text"], made["by"]) == (201, text, str(ada.user))
    assert "| p0 | 1 |" in made["document"] and "```" not in made["document"]
    at = f"/reports/{made['id']}"
    written = caller.post(at, {"title": "Faster", "text": "New.", "revision": made["revision"]})
    assert (written["title"], written["text"]) == ("Faster", "New.")
    apart = caller.post(at, {"title": "Old", "text": "Late.", "revision": made["revision"]})
    assert (caller.last, apart["revision"], apart["text"]) == (409, written["revision"], "New.")
    assert caller.get(at)["title"] == "Faster"
    again = caller.post("/reports", {"title": "Second", "text": ""})
    listed = caller.get("/reports?limit=1")
    assert [row["id"] for row in listed["reports"]] == [again["id"]]
    assert [r["id"] for r in caller.get(f"/reports?after={listed['next']}")["reports"]] == [made["id"]]
    assert stranger.get("/reports")["reports"] == []
    stranger.get(at)
    assert stranger.last == 404
    assert caller.post("/reports", {"title": " ", "text": ""})["field"] == "title"
    assert caller.post(at, {"title": "A", "text": "", "revision": True})["field"] == "revision"


def test_a_viewers_token_reads_and_writes_nothing_of_it(ada: Place) -> None:
    (run,) = runs(ada, 1)
    viewer = Caller(ada, Role.VIEWER)
    assert viewer.get(f"/runs/{run.pk}/note")["text"] == ""
    for path, body in (
        ("/tags", {"name": "a", "runs": [str(run.pk)], "take": "on"}),
        (f"/runs/{run.pk}/note", {"text": "x"}),
        (f"/runs/{run.pk}/comments", {"text": "x"}),
        ("/reports", {"title": "x", "text": ""}),
    ):
        viewer.post(path, body)
        assert viewer.last == 403, path
