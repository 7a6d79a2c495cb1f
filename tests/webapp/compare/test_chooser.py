"""Choosing runs to compare: what is found, what stays ticked from page to page, and where it leads."""

from __future__ import annotations

import pytest
from django.http import QueryDict
from django.test import Client

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare import chooser as choosing
from webapp.compare.chooser import chooser
from webapp.runs.models import Experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user)
    return client


@pytest.fixture
def made(ada: Place) -> Experiment:
    """Four runs in two experiments on two models, oldest first; one in the trash, one of other people."""
    first, second = cast.experiment(ada.project, "nightly"), cast.experiment(ada.project, "by hand")
    gpt2, bert = cast.ready(ada.project), cast.ready(ada.project, name="bert")
    for experiment, policy, artifact in ((first, "a", gpt2), (first, "b", bert), (second, "c", gpt2)):
        cast.run(experiment, policy, artifact=artifact)
    cast.run(second, "d", artifact=bert, family="parallel")
    trashed = cast.experiment(ada.project, "gone")
    cast.run(trashed, "gone", artifact=gpt2)
    trashed.trashed_at = trashed.created_at
    trashed.save()
    cast.run(cast.experiment(cast.place("sly").project, "theirs"), "foreign")
    return first


@pytest.mark.parametrize(
    ("query", "found"),
    [("", "dcba"), ("find-q=bert", "db"), ("find-q=NIGHT", "ba"), ("find-family=parallel", "d"),
     ("find-q=c&find-family=parallel", ""), ("find-family=nope", "dcba")],
)  # fmt: skip
def test_runs_are_searched_and_narrowed_newest_first(
    client: Client, ada: Place, made: Experiment, query: str, found: str
) -> None:
    page = client.get(ada.url(f"compare/?{query}"))
    assert page.status_code == 200
    assert "".join(run.policy for run in page.context["chooser"].rows) == found


def test_what_is_ticked_stays_ticked_on_the_next_page(
    client: Client, ada: Place, made: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "PER_PAGE", 2)
    newest = client.get(ada.url("compare/")).context["chooser"]
    assert [run.policy for run in newest.rows] == ["d", "c"]
    ticked = newest.rows[1]
    address = ada.url(f"compare/?find-q=&run={ticked.pk}&find-after={newest.following}")
    older = client.get(address).context["chooser"]
    assert [run.policy for run in older.chosen] == ["c"]
    assert [run.policy for run in older.rows] == ["b", "a"]
    assert older.following is None


def test_compare_leads_to_a_short_address_and_back(client: Client, ada: Place, made: Experiment) -> None:
    ids = [str(run.pk) for run in made.runs.order_by("policy")]
    pressed = ada.url(f"compare/?find-q=x&find-family=memory&run={ids[0]}&run={ids[1]}&compare=1")
    answer = client.get(pressed)
    assert answer.status_code == 302
    assert answer["Location"] == ada.url(f"compare/?run={ids[0]}&run={ids[1]}")
    page = client.get(answer["Location"]).content.decode()
    assert f"?run={ids[0]}&amp;run={ids[1]}&amp;find-q=" in page
    assert "No run is ticked" in client.get(ada.url("compare/?find-q=&compare=1")).content.decode()


def test_a_page_costs_as_many_queries_however_many_runs_there_are(
    ada: Place, made: Experiment, django_assert_num_queries: object
) -> None:
    query = QueryDict(f"run={made.runs.first().pk}")
    for _ in range(2):
        with django_assert_num_queries(4):  # type: ignore[operator]
            found = chooser(ada.project, query)
            str(found.form)
        cast.experiment_with(ada.project, made.runs.first().artifact, succeeded=20)
