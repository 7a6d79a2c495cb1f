"""Runs in groups over the API, and in the client's hands."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from experiments.client import Lab
from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Place

pytestmark = pytest.mark.django_db
SEARCH = "group+by+policy,+option.batch:+median(step_time),+std(step_time),+count"


@pytest.fixture
def ada() -> Place:
    there = cast.place("ada")
    made = cast.experiment(there.project)
    for seed, seconds in enumerate((1.0, 1.2, 5.0)):
        cast.run(made, "dtr", {"step_time": seconds}, seed=seed, options={"batch": 8})
    cast.run(made, "vdnn", {"step_time": 2.0}, options={"batch": 16})
    return there


@pytest.fixture
def caller(ada: Place) -> Caller:
    return Caller(ada)


def test_groups_have_their_keys_and_aggregates_the_largest_first(caller: Caller) -> None:
    answer = caller.get(f"/groups?query={SEARCH}")
    assert caller.last == 200
    assert answer["fields"] == ["policy", "option.batch"] and answer["more"] is False
    assert answer["units"] == {"median(step_time)": "s", "std(step_time)": "s", "count": ""}
    first, second = answer["groups"]
    assert first["keys"] == {"policy": "dtr", "option.batch": 8}
    assert first["values"]["median(step_time)"] == 1.2 and first["values"]["count"] == 3
    alone = {"median(step_time)": 2.0, "std(step_time)": None, "count": 1}
    assert second == {"keys": {"policy": "vdnn", "option.batch": 16}, "values": alone}


def test_what_is_left_out_is_said(caller: Caller) -> None:
    answer = caller.get(f"/groups?query={SEARCH}&limit=1")
    assert [row["keys"]["policy"] for row in answer["groups"]] == ["dtr"] and answer["more"] is True


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("policy = dtr", "no groups"),
        ("group by policy: count order by step_time", "an order"),
        ("group by polcy: count", "column 10"),
        ("group by policy: mode(step_time)", "column 18"),
    ],
)
def test_another_search_is_refused_with_what_is_wrong(caller: Caller, query: str, said: str) -> None:
    answer = caller.get(f"/groups?query={query.replace(' ', '+')}")
    assert (caller.last, answer["field"]) == (422, "query") and said in answer["detail"]


def test_a_team_has_the_groups_of_its_own_runs(ada: Place) -> None:
    stranger = Caller(cast.place("sly"))
    assert stranger.get(f"/groups?query={SEARCH}")["groups"] == []
    stranger.get(f"/groups?query={SEARCH}&project={ada.project.slug}-secret")
    assert stranger.last in (403, 404, 422)


class Told:
    """A server that answers groups, and keeps what it was asked."""

    project = "lab"

    def get(self, path: str, **asked: Any) -> dict[str, Any]:
        self.asked = (path, asked)
        return {"groups": [{"keys": {"policy": "dtr"}, "values": {"count": 3}}], "more": False}


def test_the_client_has_groups_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Told()
    monkeypatch.setattr(Lab, "server", server)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert Lab().groups("group by policy: count") == [{"policy": "dtr", "count": 3}]
    assert server.asked == ("/api/v1/groups", {"query": "group by policy: count", "project": "lab"})
