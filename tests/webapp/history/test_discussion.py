"""Notes and comments on runs: who may write, what is shown, and that nothing of it becomes markup."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import make_cast, signed_in
from tests.webapp.logged.logs import beginning, falling, log_lines
from webapp.history.discussion import mentions_of
from webapp.history.models import RunComment, RunNote
from webapp.history.search import parse
from webapp.history.search.rows import search
from webapp.history.table import runs_of
from webapp.markdown import render

TAGS = re.compile(r"<\s*/?\s*([a-zA-Z][\w-]*)")
#: All that Markdown makes.
BLOCKS = {"p", "pre", "ul", "ol", "li", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "br"}
MADE = BLOCKS | {"a", "strong", "em", "code", "s", "del", "table", "thead", "tbody", "tr", "th", "td"}
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](//evil.example/x)",
    "![x](https://evil.example/pixel.png)",
    '[x](https://a.example "onmouseover=alert(1)")',
    "<https://a.example/<script>>",
    "`<b>`",
    "    <iframe src=x>",
    "@<b>ada",
    "[@ada](javascript:x)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_makes_no_markup_of_its_own(text: str) -> None:
    made = render(text)
    assert set(TAGS.findall(made)) <= MADE
    for address in re.findall(r'href="([^"]*)"', made):
        assert address.startswith(("https://", "http://", "/", "#", "mailto:")) and not address.startswith(
            "//"
        )
    assert "<script" not in made and " onerror=" not in re.sub(r"&lt;.*", "", made)


@given(st.text(alphabet=st.sampled_from("<>&\"'[]()`*_#@!-|\n abjs:/="), max_size=80))
def test_whatever_is_written_only_tags_of_markdown_come_out(text: str) -> None:
    assert set(TAGS.findall(render(text))) <= MADE


def test_links_and_names_are_marked() -> None:
    made = render("See [the run](https://lab.example/x), **@max.m** and a@b.example")
    assert 'rel="nofollow noopener noreferrer"' in made
    assert made.count("@max.m</strong>") == 1 and "a@b.example" in made
    assert "<table>" in render("| a | b |\n|---|---|\n| 1 | 2 |")


@pytest.mark.django_db
def test_a_note_is_everybodys_and_a_comment_its_authors() -> None:
    lab = make_cast()
    run = cast.run(cast.experiment(lab.project))
    ada, max_, vera, sly = (signed_in(user) for user in (lab.ada, lab.max, lab.vera, lab.sly))
    note, comment = lab.url(f"all-runs/{run.pk}/note"), lab.url(f"all-runs/{run.pk}/comment")
    assert ada.post(note, {"text": "loss is **nan** from step 9"}).status_code == 302
    assert max_.post(note, {"text": "loss is nan from step 8"}).status_code == 302
    assert RunNote.objects.get(run=run).by == lab.max
    assert max_.post(comment, {"text": "@ada and @vera and @sly, why?"}).status_code == 302
    assert vera.post(comment, {"text": "x"}).status_code == 403
    assert sly.post(comment, {"text": "x"}).status_code == 404
    said = RunComment.objects.get()
    assert sorted(user.username for user in said.mentioned.all()) == ["ada", "vera"]
    assert [one.text for one in mentions_of(lab.ada, lab.project)] == [said.text]
    assert "You were mentioned" in ada.get(lab.url()).content.decode()
    assert "You were mentioned" not in max_.get(lab.url()).content.decode()
    page = vera.get(lab.url(f"runs/{run.pk}/")).content.decode()
    assert "loss is nan from step 8" in page and "<strong>@ada</strong>" in page and "textarea" not in page
    remove = lab.url(f"all-runs/{run.pk}/comments/{said.pk}/remove")
    assert ada.post(remove).status_code == 404 and max_.post(remove).status_code == 302
    assert not RunComment.objects.exists()
    assert ada.post(note, {"text": " "}).status_code == 302 and not RunNote.objects.exists()
    assert ada.post(comment, {"text": ""}).status_code == 302 and not RunComment.objects.exists()


@pytest.mark.django_db
def test_runs_are_found_by_their_notes() -> None:
    lab = make_cast()
    made = cast.experiment(lab.project)
    one, other = cast.run(made, "vdnn"), cast.run(made, "dtr")
    RunNote.objects.create(run=one, text="loss is nan from step 9", by=lab.ada)

    def found(text: str) -> list[Any]:
        return [run.pk for run in search(runs_of(lab.project), parse(text))]

    assert found("note like *nan*") == [one.pk]
    assert found("note missing") == [other.pk]


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_note_is_written_and_a_comment_said_on_the_page(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    lab = make_cast()
    run = log_lines(lab.project, lab.max, beginning("net"), *falling())
    with serving() as address, browser_page(width=1440) as page:
        enter(page, address, lab.max)
        page.goto(address + lab.url(f"own-runs/{run.pk}"))
        page.get_by_text("Write a note").click()
        page.get_by_label("Note, in Markdown").fill(
            "## Odd\n- loss is **nan**\n- see [it](https://lab.example)"
        )
        page.get_by_role("button", name="Keep").click()
        page.get_by_role("heading", name="Odd").wait_for()
        page.get_by_label("Comment; @name tells a member").fill("@ada, why?")
        page.get_by_role("button", name="Say").click()
        page.locator("strong", has_text="@ada").wait_for()
        assert serious(page) == []
        if folder := os.environ.get("LAB_SHOTS"):
            page.screenshot(path=f"{folder}/discussion.png", full_page=True)
        page.get_by_label("Comment; @name tells a member").fill("half a sen")
        with page.expect_response("**/own-runs/**"):  # the page follows its run
            pass
        page.wait_for_timeout(300)
        assert page.get_by_label("Comment; @name tells a member").input_value() == "half a sen"
