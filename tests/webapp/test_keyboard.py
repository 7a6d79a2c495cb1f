"""With nothing but keys: what is typed, chosen and opened stays where the hands are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Page

from tests.webapp.browser import browser_page, enter, serving
from tests.webapp.cast import Cast, experiment, make_cast, run

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
#: What has the focus, by its id or its words.
FOCUSED = "document.activeElement.id || document.activeElement.textContent.trim()"


@pytest.fixture
def cast(settings, monkeypatch) -> Cast:  # type: ignore[no-untyped-def]
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    made_cast = make_cast()
    made = experiment(made_cast.project)
    for number, policy in enumerate(("baseline", "vdnn-all", "dtr")):
        run(
            made, policy, {"step_time": 1.0 + number, "peak_memory": 9e9 - number, "throughput": 5.0 * number}
        )
    return made_cast


@pytest.fixture
def page(cast: Cast) -> Iterator[Page]:
    with serving() as address, browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url("all-runs/"))
        yield page


def test_quotes_stand_in_figures_as_they_are(page: Page, cast: Cast) -> None:
    """Plotly has markup and knows no name of a quote, so that legends said ``&quot;``."""
    page.goto(page.url.replace("all-runs/", f"compare/{cast.project.experiments.get().pk}/?figure=scatter"))
    assert page.evaluate("""escapeText('"a" <b> & c')""") == '"a" &lt;b&gt; &amp; c'


def press(page: Page, *keys: str) -> str:
    for key in keys:
        page.keyboard.press(key)
    return str(page.evaluate(FOCUSED))


def tab_to(page: Page, words: str, whole: bool = False) -> None:
    """Press Tab until what has the focus says so, or nothing but that."""
    for _ in range(60):
        said = press(page, "Tab")
        if said == words or (words in said and not whole):
            return
    raise AssertionError(f"{words} is not reached")


def test_runs_are_searched_chosen_and_tagged(page: Page) -> None:
    """Escape closes what could come next and leaves what was typed; the rows between can be skipped."""
    tab_to(page, "search")
    page.keyboard.type("policy = v")
    page.get_by_role("option", name="vdnn-all").wait_for()
    press(page, "Escape")
    assert page.get_by_role("option").count() == 0 or page.locator("#completion").is_hidden()
    assert page.locator("#search").input_value() == "policy = v"
    tab_to(page, "Skip to what is done")
    page.get_by_role("checkbox", name="Choose dtr").focus()
    press(page, "Space")
    for _ in range(20):
        if "Skip to what is done" in press(page, "Shift+Tab"):
            break
    assert press(page, "Enter") == "with-chosen"
    assert [press(page, "Tab"), press(page, "Tab")] == ["Compare the chosen", "tag-name"]
    page.keyboard.type("paper")
    page.keyboard.press("Enter")
    page.get_by_text("1 run is tagged paper.").wait_for()


def test_a_choice_made_with_keys_holds_once_it_is_made(page: Page, cast: Cast) -> None:
    """Every step of a key was a choice, so that only the next one could be made, and the focus was lost."""
    page.goto(page.url.replace("all-runs/", f"compare/{cast.project.experiments.get().pk}/?figure=scatter"))
    page.locator("#axis-x").focus()
    first = page.locator("#axis-x").input_value()
    page.evaluate("window.notReloaded = true")
    press(page, "Home", "ArrowDown", "ArrowDown")
    last = page.locator("#axis-x").input_value()
    assert page.evaluate("window.notReloaded") and last != first
    page.keyboard.press("Enter")
    page.wait_for_url(f"**x={last}**")
    page.wait_for_function(f"{FOCUSED} === 'axis-x'")
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.wait_for_url(lambda url: f"x={last}" not in url)
    page.wait_for_function(f"{FOCUSED} === 'axis-x'")


def test_the_catalog_is_narrowed_with_keys(page: Page) -> None:
    """A verdict is chosen once Enter is pressed; what is typed narrows the rows without a new page."""
    page.goto(page.url.replace("all-runs/", "systems/"))
    page.locator("#id_verdict").focus()
    page.evaluate("window.notReloaded = true")
    press(page, "End", "ArrowUp")
    chosen = page.locator("#id_verdict").input_value()
    assert chosen and page.evaluate("window.notReloaded")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**verdict={quote_plus(chosen)}**")
    page.wait_for_function(f"{FOCUSED} === 'id_verdict'")
    page.evaluate("window.notReloaded = true")
    page.locator("#id_q").focus()
    page.keyboard.type("no system has this name")
    page.get_by_text("0 systems", exact=True).wait_for()
    assert page.evaluate("window.notReloaded")


def test_a_panel_that_the_focus_leaves_closes(page: Page, cast: Cast) -> None:
    """It stayed open over what had the focus next."""
    page.goto(page.url.replace("all-runs/", f"compare/{cast.project.experiments.get().pk}/"))
    columns = page.locator(".table-tools details.drop")
    columns.locator("summary").focus()
    press(page, "Enter", "Tab")
    assert columns.get_attribute("open") is not None
    assert press(page, "Escape") == "Columns" and columns.get_attribute("open") is None
    press(page, "Enter")
    tab_to(page, "Show these")
    press(page, "Tab")
    page.wait_for_function("!document.querySelector('.table-tools details.drop').open")


def follow(page: Page) -> None:
    """Press Enter on what leads to another page."""
    with page.expect_navigation():
        page.keyboard.press("Enter")


def test_columns_change_a_search_is_kept_and_a_run_is_opened(page: Page) -> None:
    tab_to(page, "Columns")
    press(page, "Enter", "Tab", "Space")
    tab_to(page, "Show these")
    follow(page)
    shown = page.locator("th button").all_text_contents()
    tab_to(page, "Keep this search")
    press(page, "Enter")
    tab_to(page, "view-name")
    page.keyboard.type("Mine")
    assert press(page, "Tab", "Tab") == "Keep"
    follow(page)
    tab_to(page, "Mine")
    follow(page)
    assert page.locator("th button").all_text_contents() == shown
    tab_to(page, "vdnn-all", whole=True)
    follow(page)
    page.get_by_role("heading", name="vdnn-all").wait_for()
    page.go_back()
    page.get_by_role("heading", name="All runs").wait_for()
