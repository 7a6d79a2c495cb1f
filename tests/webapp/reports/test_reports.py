"""Reports: what their blocks find, what is kept of it, and that nobody's text is lost."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, ink, serious, serving
from tests.webapp.cast import Cast, make_cast, signed_in
from webapp.accounts.audit import entries
from webapp.history.archive import ARCHIVED
from webapp.history.services import tag
from webapp.history.table import MOST_GROUPS
from webapp.markdown import Fence
from webapp.reports.blocks import BlockError, block_of
from webapp.reports.content import Content, content_of
from webapp.reports.models import Report
from webapp.reports.page import MOST_BLOCKS
from webapp.reports.services import BEGINNING, latest_of, make
from webapp.runs.models import Run

TABLE = '```runs title="Who is fast" columns=step_time,peak_memory\norder by step_time\n```'
#: Runs of the report that a browser shows.
LOOKED_AT = 400
PLOT = "```plot x=peak_memory y=step_time\nmode = simulated\n```"
GROUPS = "```runs\ngroup by policy: mean(step_time), std(step_time), count\n```"


@pytest.fixture
def lab(db: None) -> Cast:
    found = make_cast()
    made, model = cast.experiment(found.project), cast.ready(found.project)
    for policy, seconds in (("baseline", 4.0), ("vdnn", 2.0), ("vdnn", 2.2), ("dtr", 3.0)):
        figures = {"step_time": seconds, "peak_memory": 8.0e9 / seconds}
        cast.run(made, policy, figures, artifact=model, seed=int(seconds * 10))
    return found


def fence(text: str) -> Fence:
    first, *lines = text.splitlines()
    return Fence(first.removeprefix("```"), "\n".join(lines[:-1]), 1, len(lines) + 1)


def report(lab: Cast, text: str, title: str = "What fits") -> Report:
    made = make(lab.project, lab.max, title)
    made.revisions.create(text=text, by=lab.max)
    return made


def test_a_table_has_the_search_s_rows_in_its_order_and_says_once_what_is_the_same(lab: Cast) -> None:
    found = content_of(lab.project, block_of(fence(TABLE)))
    labels = [column.label for column in found.table.columns]
    assert labels == ["policy", "seed", "step time", "peak memory"]
    assert [(row[0], row[2]) for row in found.table.rows] == [
        ("vdnn", 2.0),
        ("vdnn", 2.2),
        ("dtr", 3.0),
        ("baseline", 4.0),
    ]
    assert dict(found.table.constants)["mode"] == "simulated"
    assert Run.objects.get(pk=found.runs[2]).policy == "dtr"


def test_groups_are_a_table_and_a_plot_of_them_has_a_lane_for_each(lab: Cast) -> None:
    found = content_of(lab.project, block_of(fence(GROUPS)))
    labels = [column.label for column in found.table.columns]
    assert labels == ["policy", "mean of step time", "std of step time", "runs"]
    rows = {row[0]: row[1:] for row in found.table.rows}
    assert rows["vdnn"] == (pytest.approx(2.1), pytest.approx(0.1414, rel=1e-3), 2)
    assert rows["dtr"] == (3.0, None, 1)
    plot = content_of(lab.project, block_of(fence(GROUPS.replace("runs", "plot y=count")))).plot
    assert plot is not None and dict(zip(plot["lanes"], plot["series"][0]["x"], strict=True))["vdnn"] == 2


def test_a_plot_has_a_point_for_each_run_with_both_figures(lab: Cast) -> None:
    cast.run(cast.experiment(lab.project), "swap_all", {"step_time": 1.0})
    plot = content_of(lab.project, block_of(fence(PLOT))).plot
    assert plot is not None and (plot["x_unit"], plot["y_unit"]) == ("bytes", "s")
    points = {line["name"]: sorted(line["y"]) for line in plot["series"]}
    assert points == {"baseline": [4.0], "vdnn": [2.0, 2.2], "dtr": [3.0]}


def test_what_is_kept_stays_and_goes_through_json_unchanged(lab: Cast) -> None:
    for text in (TABLE, PLOT, GROUPS):
        found = content_of(lab.project, block_of(fence(text)))
        assert Content.from_json(found.to_json()) == found
    made = report(lab, f"Before.\n\n{TABLE}\n")
    member, page = signed_in(lab.max), lab.url(f"reports/{made.pk}/")
    key = block_of(fence(TABLE)).key
    assert member.post(f"{page}freeze", {"key": key}).status_code == 302
    cast.run(cast.experiment(lab.project), "fastest", {"step_time": 0.5}, artifact=cast.ready(lab.project))
    kept = member.get(page).content.decode()
    assert "fastest" not in kept and "kept by max" in kept
    assert "fastest" not in member.get(page, {"export": "csv", "table": key}).content.decode()
    member.post(f"{page}freeze", {"key": key, "take": "off"})
    assert "fastest" in member.get(page).content.decode()
    member.post(f"{page}freeze", {"key": "0" * 64})
    assert not made.frozen.exists()


def test_a_table_that_has_a_part_says_of_how_many_and_shows_more_when_asked(lab: Cast) -> None:
    """Five groups of which two are shown; of five runs three."""
    cast.run(cast.experiment(lab.project), "swap_all", {"step_time": 5.0}, artifact=cast.ready(lab.project))
    few = (
        "```runs limit=2 title=Groups\ngroup by policy: count\n```",
        TABLE.replace("runs", "runs limit=3", 1),
    )
    made, reader = report(lab, "\n\n".join(few)), signed_in(lab.vera)
    page = lab.url(f"reports/{made.pk}/")
    shown = reader.get(page).content.decode()
    assert "The first 2 of 4." in shown and "The first 3 of 5." in shown
    key = block_of(fence(few[0])).key
    asked = reader.get(page, {"all": key}).content.decode()
    assert "of 4." not in asked and "The first 3 of 5." in asked and "swap_all" in asked
    csv = reader.get(page, {"export": "csv", "table": key})
    assert csv["Content-Disposition"] == 'attachment; filename="groups-the-first-2-of-4.csv"'
    whole = reader.get(page, {"export": "csv", "table": key, "all": key})
    assert whole["Content-Disposition"] == 'attachment; filename="groups.csv"'
    assert (csv.content.count(b"\r\n"), whole.content.count(b"\r\n")) == (3, 5)
    latex = reader.get(page, {"export": "latex", "table": key}).content.decode()
    assert r"\caption{Groups. The first 2 of 4}" in latex
    document = reader.get(page, {"export": "markdown"}).content.decode()
    assert "The first 2 of 4\n" in document and "The first 3 of 5\n" in document


def test_more_groups_than_a_table_may_have_are_told_as_more(lab: Cast) -> None:
    experiment = cast.experiment(lab.project)
    for place in range(MOST_GROUPS):
        cast.run(experiment, f"policy{place:03}", {"step_time": 1.0})
    found = content_of(lab.project, block_of(fence("```runs\ngroup by policy: count\n```")))
    assert found.table.part == "The first 20 of over 200"
    shown = signed_in(lab.vera).get(lab.url("all-runs/"), {"q": "group by policy: count"}).content.decode()
    assert "in over 200 groups" in shown


def test_archived_runs_stay_in_reports(lab: Cast) -> None:
    runs = Run.objects.filter(policy="vdnn")
    before = content_of(lab.project, block_of(fence(TABLE))), content_of(lab.project, block_of(fence(GROUPS)))
    tag(runs, ARCHIVED, lab.max)
    again = content_of(lab.project, block_of(fence(TABLE))), content_of(lab.project, block_of(fence(GROUPS)))
    assert before[1] == again[1] and before[0].runs == again[0].runs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```runs\nstep_time <\n```", "at column 12"),
        ("```runs limit=0\n```", "a number from 1 to 200"),
        ("```runs colour=red\n```", "no option"),
        ('```runs title="open\n```', "a quote is not closed"),
        ("```plot x=step_time\n```", "x=peak_memory y=step_time"),
        ("```plot y=sum(step_time)\ngroup by policy: mean(step_time)\n```", "y=mean(step_time)"),
        ("```runs columns=step_time\ngroup by policy: count\n```", "its own columns"),
    ],
)
def test_a_block_that_cannot_be_read_says_why_in_its_place(lab: Cast, text: str, said: str) -> None:
    with pytest.raises(BlockError, match=re.escape(said)):
        block_of(fence(text))
    made = report(lab, f"One\n\n{text}\n\nTwo\n\n{TABLE}")
    shown = signed_in(lab.vera).get(lab.url(f"reports/{made.pk}/"))
    assert shown.status_code == 200
    assert "Line 3:" in shown.content.decode() and "Who is fast" in shown.content.decode()


@given(st.text(alphabet=st.sampled_from("`runsplot =\"'()<>,:\n\\abx0"), max_size=60))
def test_whatever_is_written_behind_a_fence_is_read_or_complained_about(text: str) -> None:
    for language in ("runs", "plot"):
        try:
            block_of(Fence(f"{language} {text}", text, 1, 3))
        except BlockError:
            continue


def test_two_who_write_at_once_lose_nothing(lab: Cast) -> None:
    made = report(lab, "first")
    ada, max_, page = signed_in(lab.ada), signed_in(lab.max), lab.url(f"reports/{made.pk}/edit")
    opened = latest_of(made).pk
    assert ada.post(page, {"title": "A", "text": "of ada", "opened": opened}).status_code == 302
    refused = max_.post(page, {"title": "B", "text": "of max", "opened": opened})
    body = refused.content.decode()
    assert refused.status_code == 422 and "of max" in body and "of ada" in body
    again = re.search(r'name="opened" value="(\d+)"', body)
    assert again and max_.post(page, {"title": "B", "text": "of max", "opened": again[1]}).status_code == 302
    texts = list(made.revisions.values_list("text", flat=True))
    assert texts[:3] == ["of max", "of ada", "first"]
    old = max_.get(lab.url(f"reports/{made.pk}/"), {"revision": opened}).content.decode()
    assert "first" in old and "The report now" in old
    assert max_.get(lab.url(f"reports/{made.pk}/"), {"revision": "7" * 30}).status_code == 404


def test_viewers_read_and_strangers_see_nothing(lab: Cast) -> None:
    made = report(lab, TABLE)
    vera, sly, page = signed_in(lab.vera), signed_in(lab.sly), lab.url(f"reports/{made.pk}/")
    assert vera.get(page).status_code == 200
    for action in ("edit", "freeze", "trash"):
        assert vera.post(page + action, {}).status_code == 403
        assert sly.post(page + action, {}).status_code == 404
    assert sly.get(page).status_code == 404
    assert vera.post(lab.url("reports/"), {"title": "x"}).status_code == 403


def test_a_report_goes_to_the_trash_and_back_and_the_log_has_it(lab: Cast) -> None:
    member, index = signed_in(lab.max), lab.url("reports/")
    assert member.post(index, {"title": " \u2800 "}).status_code == 422
    made = Report.objects.get(pk=int(member.post(index, {"title": "Cards"})["Location"].split("/")[-2]))
    assert latest_of(made).text == BEGINNING
    member.post(lab.url(f"reports/{made.pk}/trash"))
    shown = member.get(index).content.decode()
    assert "1 in the trash" in shown and "No report yet" in shown
    member.post(lab.url(f"reports/{made.pk}/trash"), {"take": "back"})
    assert "in the trash" not in member.get(index).content.decode().split("</nav>")[-1].split("<tbody>")[-1]
    assert any("Cards" in entry.object_repr for entry in entries(lab.red))


def test_a_whole_report_is_markdown_that_stands_alone(lab: Cast) -> None:
    made = report(
        lab, f"Before\u2028 *all*\x0c.\n\n{TABLE}\n\nBetween.\n\n~~~~runs\ngroup by policy: count\n~~~~\nEnd."
    )
    page = lab.url(f"reports/{made.pk}/")
    answer = signed_in(lab.vera).get(page, {"export": "markdown"})
    text = answer.content.decode()
    assert answer["Content-Disposition"] == 'attachment; filename="what-fits.md"'
    assert text.startswith("# What fits\n\nBefore\u2028 *all*\x0c.\n\n**Who is fast**\n")
    type(made).objects.filter(pk=made.pk).update(title="What *fits* in <b>")
    assert (
        signed_in(lab.vera)
        .get(page, {"export": "markdown"})
        .content.startswith(rb"# What \*fits\* in &lt;b&gt;" + b"\n")
    )
    assert "```" not in text and "~~~" not in text and "Between." in text and text.endswith("End.\n")
    assert "| vdnn |" in text and text.count("| ---") >= 2
    assert signed_in(lab.vera).get(page, {"export": "csv"}).status_code == 404
    cited = signed_in(lab.vera).get(page, {"export": "bibtex"}).content.decode()
    assert cited.count("@inproceedings{") == 1 and "kirisame" in cited, "of dtr; the others here have none"
    latex = signed_in(lab.vera).get(page, {"export": "latex", "table": block_of(fence(TABLE)).key})
    assert r"\toprule" in latex.content.decode()


def test_the_thirty_first_block_is_refused_in_its_place(lab: Cast) -> None:
    made = report(lab, f"{GROUPS}\n\n" * (MOST_BLOCKS + 1))
    shown = signed_in(lab.vera).get(lab.url(f"reports/{made.pk}/")).content.decode()
    assert shown.count("at most 30 tables and plots") == 1 and shown.count("As it is now.") == MOST_BLOCKS


def test_what_a_report_asks_of_the_database_does_not_grow_with_its_rows(lab: Cast) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    made, reader = report(lab, f"{TABLE}\n\n{PLOT}\n"), signed_in(lab.vera)

    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            assert reader.get(lab.url(f"reports/{made.pk}/")).status_code == 200
        return len(asked)

    queries()
    before, experiment, model = queries(), cast.experiment(lab.project), cast.ready(lab.project)
    for seed in range(12):
        cast.run(experiment, "more", {"step_time": 1.0 + seed, "peak_memory": 1.0e9}, artifact=model)
    assert queries() == before


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(1440, 390))
def test_a_report_is_written_and_read_in_a_browser(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    lab = make_cast()
    made, model = cast.experiment(lab.project), cast.ready(lab.project)
    for place in range(LOOKED_AT):
        policy = ("baseline", "vdnn", "dtr", "capuchin")[place % 4]
        figures = {"step_time": 2.0 + place % 17 / 4, "peak_memory": 2.0e10 - 3.0e7 * place}
        cast.run(made, policy, figures, artifact=model, seed=place)
    with serving() as address, browser_page(width=width) as page:

        def look(name: str) -> None:
            assert serious(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            if folder := os.environ.get("LAB_SHOTS"):
                page.emulate_media(color_scheme="dark" if width < 1000 else "light")
                page.wait_for_timeout(300)
                page.screenshot(path=f"{folder}/report-{name}-{width}.png", full_page=True)

        enter(page, address, lab.max)
        page.goto(address + lab.url("reports/"))
        look("none")
        page.get_by_label("New report").fill("What fits a 24 GB card")
        page.get_by_role("button", name="Write it").click()
        page.get_by_role("button", name="Keep").wait_for()
        look("edit")
        page.get_by_role("button", name="Keep").click()
        page.locator(".report .main-svg").first.wait_for()
        assert ink(page, page.locator(".report .js-plotly-plot")) > 0.01
        page.get_by_role("button", name="Keep as it is: The fastest of each policy").click()
        page.get_by_text("kept by max").wait_for()
        page.locator(".report .main-svg").first.wait_for()
        look("page")
        page.get_by_role("link", name="Reports").click()
        look("list")
