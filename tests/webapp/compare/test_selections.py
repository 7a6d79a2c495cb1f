"""Comparisons of many runs: a short address for them, which stays in the project and holds for everybody."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.webapp.cast import Cast, experiment, place, signed_in
from tests.webapp.cast import run as run_of
from webapp.compare.models import Selection
from webapp.compare.services import MOST_NAMED
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


def make_runs(cast_: Cast, count: int) -> list[str]:
    made, policies = experiment(cast_.project), ("baseline", "vdnn-all")
    runs = [run_of(made, policies[n % 2], {"step_time": 1.0 + n}, seed=n) for n in range(count)]
    return [str(run.pk) for run in runs]


def test_many_runs_have_a_short_address_that_every_link_of_the_page_goes_on_with(cast: Cast) -> None:
    ids = make_runs(cast, MOST_NAMED + 1)
    vera = signed_in(cast.vera)
    answer = vera.get(cast.url("compare/"), {"run": ids, "sort": "metric.step_time"})
    short = answer.headers["Location"]
    assert answer.status_code == 302 and len(short) < 100 and "sort=metric.step_time" in short
    page = vera.get(short)
    text = page.content.decode()
    assert len(page.context["comparison"].lines) > 1
    assert not any(f"run={one}" in text or f'value="{one}"' in text for one in ids)
    (key,) = Selection.objects.values_list("key", flat=True)
    assert f"?sort=-metric.step_time&amp;chosen={key}" in text and f"?chosen={key}&amp;find-q=" in text
    assert vera.get(short, {"chosen": key, "export": "csv"}).content.count(b"\n") > 2
    ticked = vera.get(cast.url("compare/"), {"chosen": key, "find-q": ""}).context["chooser"].chosen
    assert {str(run.pk) for run in ticked} == set(ids)


def test_the_same_runs_in_another_order_are_the_same_selection(cast: Cast) -> None:
    ids = make_runs(cast, MOST_NAMED + 1)
    asked = [{"run": ids}, {"run": ",".join(ids[::-1])}, {"run": ids, "find-q": "", "compare": "1"}]
    found = {signed_in(cast.max).get(cast.url("compare/"), one).headers["Location"] for one in asked}
    assert len(found) == 1 and Selection.objects.count() == 1


def test_few_runs_and_files_keep_their_address(cast: Cast) -> None:
    ids = make_runs(cast, MOST_NAMED + 1)
    max_ = signed_in(cast.max)
    assert max_.get(cast.url("compare/"), {"run": ids[1:]}).status_code == 200
    assert max_.get(cast.url("compare/"), {"run": ids, "export": "csv"}).status_code == 200
    assert not Selection.objects.exists()


def test_a_selection_is_its_projects_alone(cast: Cast) -> None:
    """What is not there to compare is chosen anew, as without any runs."""
    ids = [*make_runs(cast, 2), *(str(uuid4()) for _ in range(MOST_NAMED))]
    short = signed_in(cast.max).get(cast.url("compare/"), {"run": ids}).headers["Location"]
    eve = place("eve")
    theirs = signed_in(eve.user).get(eve.url(short.removeprefix(cast.url())))
    assert theirs.status_code == 200 and not theirs.context["chooser"].chosen
    assert signed_in(eve.user).get(short).status_code == 404
    assert signed_in(cast.max).get(short).status_code == 200


def test_as_many_runs_as_are_compared_can_be_ticked(cast: Cast) -> None:
    made = experiment(cast.project)
    Run.objects.bulk_create(
        Run(project=cast.project, experiment=made, policy="baseline", family="memory", kind="policy", spec={})
        for _ in range(2000)
    )
    asked = {
        "run": [str(one) for one in made.runs.values_list("pk", flat=True)],
        "find-q": "",
        "compare": "1",
    }
    answer = signed_in(cast.max).get(cast.url("compare/"), asked)
    assert answer.status_code == 302 and len(answer.headers["Location"]) < 100
    assert len(Selection.objects.get().runs) == 2000
