"""The page of all runs, and the API's search: found, complained about, tagged, kept, exported."""

from __future__ import annotations

import os
import re
from typing import Any
from uuid import UUID

import pytest
from django.db.models import QuerySet
from django.test import Client

from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import Place
from tests.webapp.logged.logs import log
from webapp.accounts.models import Membership, Role
from webapp.api import services as api
from webapp.api.models import ApiToken
from webapp.compare import views as compared
from webapp.history import table
from webapp.history.models import RunTag, SavedView
from webapp.history.search import parse
from webapp.history.search.rows import first_runs
from webapp.runs.models import Run


def shown(answer: Any) -> str:
    """The page's text without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.content.decode()))


BACKEND = "django.contrib.auth.backends.ModelBackend"


def filled(ada: Place) -> Place:
    made = cast.experiment(ada.project)
    for policy, step in (("vdnn", 0.5), ("vdnn", 2.0), ("capuchin", 4.0)):
        cast.run(made, policy, {"step_time": step, "peak_memory": 1e9}, family="memory")
    return ada


@pytest.fixture
def ada(db: None) -> Place:
    return filled(cast.place("ada"))


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user, backend=BACKEND)
    return client


def test_a_search_is_answered_counted_and_said_back(ada: Place, client: Client) -> None:
    url = ada.url("all-runs/")
    assert "3 runs" in shown(client.get(url))
    page = shown(client.get(url, {"q": "step_time < 3 s and policy = vdnn"}))
    assert "2 runs" in page and "step_time under 3 s and policy is vdnn" in page
    grouped = shown(client.get(url, {"q": "group by policy: min(step_time), count"}))
    assert "in 2 groups" in grouped and "500 ms" in grouped
    assert "No run is so" in client.get(url, {"q": "policy = none"}).content.decode()


def test_repeats_are_folded_by_what_runs_were_given(ada: Place, client: Client) -> None:
    made = cast.experiment(ada.project, "seeds")
    for batch, seconds in ((8, 1.0), (8, 1.2), (8, 1.4), (16, 2.0)):
        cast.run(made, "dtr", {"step_time": seconds}, knobs={"pool": "big"}, options={"batch": batch})
    text = "experiment = seeds group by option.batch, knob.pool: mean(step_time), std(step_time), count"
    page = shown(client.get(ada.url("all-runs/"), {"q": text}))
    assert "option.batchknob.poolmean(step_time)std(step_time)count" in page
    assert "8big1.2 s200 ms3" in page and "16big2 s–1" in page
    refused = client.get(ada.url("all-runs/"), {"q": "group by step_time: count"})
    assert refused.status_code == 422 and "a knob, an option or a parameter" in shown(refused)


def test_groups_of_very_many_runs_come_after_the_page(
    ada: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_COUNTED", 2)
    search = {"q": "group by policy: min(step_time), count"}
    page = client.get(ada.url("all-runs/"), search)
    assert "over 2 runs" in shown(page) and "are being counted" in shown(page)
    assert 'hx-trigger="load"' in page.content.decode() and "500 ms2" not in shown(page)
    whole = shown(client.get(ada.url("all-runs/"), {**search, "groups": "now"}))
    assert "vdnn500 ms2" in whole and "are being counted" not in whole and "in 2 groups" in whole


@pytest.mark.parametrize("per_page", [1, 3, 100])
def test_runs_are_counted_the_same_on_every_page(
    ada: Place, monkeypatch: pytest.MonkeyPatch, per_page: int
) -> None:
    """Of a page that has all of them, and of each of several."""
    monkeypatch.setattr(table, "PER_PAGE", per_page)
    first = table.find(ada.project, parse("step_time > 0"), [])
    assert (first.count, first.is_more, len(first.rows)) == (3, False, min(3, per_page))
    if first.next:
        after = Run.objects.get(pk=first.next)
        assert table.find(ada.project, parse("step_time > 0"), [], after).count == 3


def test_a_search_that_cannot_be_read_keeps_its_text_and_all_runs(ada: Place, client: Client) -> None:
    answer = client.get(ada.url("all-runs/"), {"q": "step_tme < 4"})
    page = answer.content.decode()
    assert answer.status_code == 422
    ended = shown(client.get(ada.url("all-runs/"), {"q": "policy = vdnn and"}))
    assert "Expected: a name or a value or (." in ended
    assert "Column 1" in page and "perhaps step_time" in page and 'value="step_tme &lt; 4"' in page


@pytest.mark.parametrize("name", ["after", "baseline"])
@pytest.mark.parametrize("value", ["-1", "x", "00000000-0000-0000-0000-000000000007"])
def test_a_run_that_is_not_there_is_no_error(ada: Place, client: Client, name: str, value: str) -> None:
    assert "3 runs" in shown(client.get(ada.url("all-runs/"), {name: value}))


def by_step_time(runs: QuerySet[Run], descending: bool) -> list[UUID]:
    """Ordered by plain Python: the newest first among equals, those without a figure last."""
    told = {run.pk: next((m.value for m in run.metrics.all() if m.name == "step_time"), None) for run in runs}
    newest = [run.pk for run in sorted(runs, key=lambda run: (run.queued_at, run.pk), reverse=True)]
    have = [key for key in newest if told[key] is not None]
    have.sort(key=lambda key: -(told[key] or 0.0) if descending else told[key] or 0.0)
    return [*have, *(key for key in newest if told[key] is None)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "order by step_time",
        "order by step_time desc",
        "order by policy desc",
        "order by hardware",
        "order by host",
    ],
)
def test_pages_one_after_the_other_are_all_runs_in_their_order(
    ada: Place, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Among them equal figures and none."""
    made = cast.experiment(ada.project)
    for place in range(20):
        cast.run(made, f"policy {place % 3}", {"step_time": float(place % 4)} if place % 5 else {})
    Run.objects.filter(policy="policy 1").update(queued_at=Run.objects.latest("queued_at").queued_at)
    query = parse(text)
    whole = [run.pk for run in first_runs(table.runs_of(ada.project), query, 100)]
    if "step_time" in text:
        assert whole == by_step_time(table.runs_of(ada.project), "desc" in text)
    monkeypatch.setattr(table, "PER_PAGE", 4)
    found, after = [], None
    while True:
        page = table.find(ada.project, query, [], after)
        found += [row.run.pk for row in page.rows]
        if page.next is None:
            break
        after = Run.objects.get(pk=page.next)
    assert found == whole and len(whole) == 23


def test_figures_are_compared_with_the_baseline(ada: Place, client: Client) -> None:
    baseline = Run.objects.get(policy="capuchin")
    page = shown(client.get(ada.url("all-runs/"), {"baseline": str(baseline.pk)}))
    assert "Compared with capuchin" in page and "−87.5 %" in page.replace("-", "−") and "baseline" in page
    foreign = cast.run(cast.experiment(cast.place("eve").project), "secret", {"step_time": 1.0})
    assert "secret" not in shown(client.get(ada.url("all-runs/"), {"baseline": str(foreign.pk)}))


def test_tags_are_put_on_found_and_taken_off(ada: Place, client: Client) -> None:
    runs = [str(run.pk) for run in Run.objects.filter(policy="vdnn")]
    foreign = cast.run(cast.experiment(cast.place("eve").project), "vdnn", {}, family="memory")
    url = ada.url("all-runs/tag")
    client.post(url, {"name": "paper", "run": [*runs, str(foreign.pk)]})
    assert RunTag.objects.count() == 2
    assert "2 runs" in shown(client.get(ada.url("all-runs/"), {"q": "tag = paper"}))
    client.post(url, {"name": "paper", "run": runs[:1], "take": "off"})
    assert RunTag.objects.count() == 1
    client.post(url, {"name": "no good", "run": runs})
    assert RunTag.objects.count() == 1


def test_views_are_ones_own_until_they_are_shared(ada: Place, client: Client) -> None:
    told = {"name": "fast", "query": "step_time < 1 s", "columns": "peak_memory"}
    client.post(ada.url("all-runs/views"), told)
    other = cast.User.objects.create_user("bob")
    Membership.objects.create(team=ada.project.team, user=other, role=Role.VIEWER)
    bob = Client()
    bob.force_login(other, backend=BACKEND)
    url = ada.url("all-runs/")
    assert "fast" in client.get(url).content.decode() and ">fast" not in bob.get(url).content.decode()
    client.post(ada.url("all-runs/views"), {**told, "shared": "on"})
    assert ">fast" in bob.get(url).content.decode()
    kept = SavedView.objects.get()
    remove, query = f"all-runs/views/{kept.pk}/remove", "?q=step_time+%3C+1+s&column=peak_memory"
    assert remove in client.get(url).content.decode() and remove not in bob.get(url).content.decode()
    assert re.search(r'aria-current="true">fast', bob.get(url + query).content.decode())
    assert bob.post(ada.url(f"all-runs/views/{kept.pk}/remove")).status_code == 403
    client.post(ada.url(f"all-runs/views/{kept.pk}/remove"))
    assert not SavedView.objects.exists()


def test_who_only_reads_chooses_columns_and_opens_views_with_any_names(ada: Place, client: Client) -> None:
    """As a link, ``column=acc+1&2`` was of two columns that nobody has."""
    columns = "acc+1&2 loss#train"
    client.post(ada.url("all-runs/views"), {"name": "odd", "columns": columns, "shared": "on"})
    vera = cast.User.objects.create_user("vera")
    Membership.objects.create(team=ada.project.team, user=vera, role=Role.VIEWER)
    page = cast.signed_in(vera).get(ada.url("all-runs/")).content.decode()
    assert "?q=&amp;column=acc%2B1%262&amp;column=loss%23train" in page
    assert 'name="column" value="step_time"' in page and "Keep this search" not in page
    assert "export=markdown" in page and "curl -H" in page


def test_what_is_found_leaves_as_a_file(ada: Place, client: Client) -> None:
    rows = client.get(ada.url("all-runs/?q=policy+%3D+vdnn&column=step_time&export=csv")).content.decode()
    lines = rows.splitlines()
    assert lines[0].endswith("seed,tags,step_time (s)") and len(lines) == 3


def test_groups_leave_as_a_file_of_their_own(ada: Place, client: Client) -> None:
    """The menu of the page gives the runs, that of the groups what stands in them."""
    asked = {"q": "group by policy: count, max(step_time)"}
    page = client.get(ada.url("all-runs/"), asked).content.decode()
    assert "export=csv&amp;table=groups" in page
    rows = client.get(ada.url("all-runs/"), {**asked, "export": "csv", "table": "groups"}).content.decode()
    assert rows.splitlines() == ["policy,count,max(step_time) (s)", "vdnn,2,2.0", "capuchin,1,4.0"]
    assert len(client.get(ada.url("all-runs/"), {**asked, "export": "csv"}).content.splitlines()) == 4


def test_completion_answers_and_the_apis_list_takes_the_same_search(ada: Place, client: Client) -> None:
    words = client.get(ada.url("all-runs/completion"), {"q": "policy = v"}).json()["words"]
    assert words == ["vdnn"]
    _, secret = api.make_token(ada.project.team, ada.user, "t", Role.VIEWER)
    headers = {"authorization": f"Bearer {secret}"}
    found = Client().get("/api/v1/runs", {"query": "step_time >= 2 s"}, headers=headers)
    assert sorted(row["policy"] for row in found.json()["runs"]) == ["capuchin", "vdnn"]
    wrong = Client().get("/api/v1/runs", {"query": "step_time >="}, headers=headers)
    assert wrong.status_code == 422 and "column 13" in wrong.content.decode()
    assert ApiToken.objects.count() == 1


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(390, 1440))
def test_typing_completes_sorting_sorts_and_the_chosen_are_compared(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    there = filled(cast.place("ada"))
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, there.user)
        page.goto(address + there.url("all-runs/"))
        search = page.get_by_role("combobox", name="Search runs")
        search.press_sequentially("policy = v")
        page.get_by_role("option", name="vdnn").wait_for()
        search.press("ArrowDown")
        search.press("Tab")
        assert search.input_value() == "policy = vdnn "
        search.press("Enter")
        page.get_by_text("2 runs").wait_for()
        assert serious(page) == []
        page.emulate_media(color_scheme="light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if folder := os.environ.get("LAB_SHOTS"):
            page.screenshot(path=f"{folder}/all-runs-{width}.png", full_page=True)
        page.locator('[data-order="step_time"]').click()
        page.wait_for_url("**order+by+step_time**")
        page.get_by_label("Choose every run of this page").check()
        page.get_by_label("Tag", exact=True).fill("paper")
        page.get_by_role("button", name="Put on").click()
        page.get_by_text("2 runs are tagged paper.").wait_for()
        page.get_by_label("Choose every run of this page").check()
        page.get_by_role("button", name="Compare the chosen").click()
        page.wait_for_url("**/compare/?run=**")
        page.goto(address + there.url("all-runs/?q=policy+%3D+vdnn"))
        page.get_by_label("Choose every run of this page").check()
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="To the trash").click()
        page.get_by_text("2 runs are now in the trash").wait_for()
        page.get_by_role("link", name="Take back").click()
        page.get_by_role("button", name="Restore 2 runs").wait_for()
        assert serious(page) == []
        if folder := os.environ.get("LAB_SHOTS"):
            page.screenshot(path=f"{folder}/trash-{width}.png", full_page=True)


def test_archived_runs_are_out_of_the_list_until_somebody_asks_for_them(ada: Place, client: Client) -> None:
    """Here and in exports and groups; an experiment still has them."""
    url, tag = ada.url("all-runs/"), ada.url("all-runs/tag")
    first = Run.objects.filter(policy="vdnn").first()
    assert first is not None
    told = shown(client.post(tag, {"name": "archived", "run": str(first.pk)}, follow=True))
    assert "1 run is archived" in told
    page = shown(client.get(url))
    assert "2 runs" in page and "1 archived left out" in page
    assert len(client.get(url, {"export": "csv"}).content.splitlines()) == 3
    assert "1 archived" not in shown(client.get(url, {"q": "policy = capuchin"}))
    assert "leave them out" not in page
    asked = client.get(url, {"q": "tag = archived"})
    assert "archived runs are shown" in shown(asked)
    assert "1 run" in shown(asked) and "Back to the list" in shown(asked)
    everything = shown(client.get(url, {"q": "tag = archived or policy = vdnn"}))
    assert "2 runs" in everything
    assert first.experiment is not None and first.experiment.runs.count() == 3
    back = {"name": "archived", "take": "off", "run": str(first.pk)}
    assert "1 run is in the list again" in shown(client.post(tag, back, follow=True))
    assert "3 runs" in shown(client.get(url))


def test_what_a_search_finds_is_archived_whole_without_what_already_is(ada: Place, client: Client) -> None:
    tag = ada.url("all-runs/tag")
    for policy in ("vdnn", "capuchin"):
        client.post(tag, {"name": "archived", "whole": "1", "back": f"q=policy+%3D+{policy}"})
    assert RunTag.objects.filter(name="archived").count() == 3
    assert "No run is so" not in client.get(ada.url("all-runs/"), {"q": "tag = archived"}).content.decode()


def test_all_that_a_search_finds_is_compared_and_what_does_not_fit_is_said(
    ada: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is a click away, in groups, the order of the search left out."""
    monkeypatch.setattr(table, "PER_PAGE", 2)
    monkeypatch.setattr(compared, "MOST_RUNS", 2)
    text = "step_time > 1 s order by step_time"
    one = client.get(ada.url("all-runs/"), {"q": "order by step_time"}).content.decode()
    assert (
        "Compare all found" in shown(client.get(ada.url("all-runs/")))
        and "comparison?search=order%20by" in one
    )
    whole = client.get(ada.url("all-runs/comparison"), {"search": "order by step_time"})
    assert "The first 2 of 3 runs are compared. All of them are in groups" in shown(whole)
    assert "?q=group+by+policy%3A+count" in whole.content.decode()
    page = client.get(ada.url("all-runs/comparison"), {"search": text})
    assert "are compared" not in shown(page) and "capuchin" in shown(page) and "2 lines" in shown(page)
    assert client.get(ada.url("all-runs/comparison"), {"search": text, "export": "csv"}).status_code == 200


def test_a_search_of_own_runs_is_compared_as_such_and_one_that_cannot_be_read_goes_back(
    ada: Place, client: Client
) -> None:
    made = log(ada.project, ada.user, "net")
    answer = client.get(ada.url("all-runs/comparison"), {"search": "family missing"})
    assert answer.status_code == 302 and answer.url == f"{ada.url('own-runs/')}?run={made.run_id}"
    wrong = client.get(ada.url("all-runs/comparison"), {"search": "step_tme < 4"})
    assert wrong.status_code == 302 and wrong.url == f"{ada.url('all-runs/')}?q=step_tme+%3C+4"
    assert "nothing to compare" in shown(client.get(ada.url("all-runs/comparison"), {"search": "policy = x"}))
