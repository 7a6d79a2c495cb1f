"""The palette finds what has a name, of one's own project alone, and is gone through by keys."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.variants import variants
from tests.webapp import cast
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import Cast, make_cast, signed_in
from webapp.history.search import parse
from webapp.palette.places import places
from webapp.reports.services import make


@pytest.fixture
def lab(db: None) -> Cast:
    found = make_cast()
    cast.ready(found.project, name="llama-7b.json")
    cast.ready(found.foreign, name="llama-of-others.json")
    experiment = cast.experiment(found.project)
    experiment.name = "Llama on cards"
    experiment.save()
    make(found.project, found.max, "Llamas for the paper")
    return found


def test_everything_with_the_name_is_found_and_nothing_of_others(lab: Cast) -> None:
    told = {(one.kind, one.label) for one in places(lab.project, "LLAMA", may_write=True)}
    assert {
        ("artifact", "llama-7b.json"),
        ("experiment", "Llama on cards"),
        ("report", "Llamas for the paper"),
        ("search", "Search all runs for LLAMA"),
    } <= told
    assert not any("others" in label for _, label in told)


def test_policies_pages_and_actions_are_found(lab: Cast) -> None:
    first = next(one for one in places(lab.project, "vdnn", may_write=False) if "policy" in one.kind)
    assert first.label.startswith("vdnn") and first.kind == "memory policy"
    assert "/systems/memory/vdnn" in first.href
    labels = {one.label for one in places(lab.project, "new", may_write=True)}
    assert {"New experiment", "New report"} <= labels
    assert "New experiment" not in {one.label for one in places(lab.project, "new", may_write=False)}
    assert "Leaderboards" in {one.label for one in places(lab.project, "leader", may_write=False)}


@pytest.mark.parametrize("text", ['a "b', "x\\", "group by", "'", "%_", "(and"])
def test_whatever_is_typed_can_be_searched_for(lab: Cast, text: str) -> None:
    import urllib.parse

    last = places(lab.project, text, may_write=True)[-1]
    asked = urllib.parse.parse_qs(last.href.partition("?")[2])["q"][0]
    parse(asked)
    assert signed_in(lab.vera).get(last.href).status_code == 200


def test_a_stranger_is_told_nothing(lab: Cast) -> None:
    assert signed_in(lab.sly).get(lab.url("palette"), {"q": "llama"}).status_code == 404
    assert signed_in(lab.vera).get(lab.url("palette"), {"q": "x" * 5000}).status_code == 200


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("width", variants(390, 1440))
def test_a_policy_is_gone_to_by_keys_alone(
    settings: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    lab = make_cast()
    cast.ready(lab.project, name="llama-7b.json")
    with serving() as address, browser_page(width=width) as page:
        enter(page, address, lab.max)
        page.goto(address + lab.url(""))
        page.keyboard.press("Control+k")
        page.locator("#places [role=option]", has_text="llama-7b.json").wait_for()
        assert serious(page) == []
        page.keyboard.press("Escape")
        assert not page.locator("#palette").is_visible()
        page.get_by_role("button", name="Go to … (Ctrl K)").click()
        page.keyboard.type("vdnn")
        page.locator("#places [role=option]", has_text="vdnn-all").wait_for()
        if folder := os.environ.get("LAB_SHOTS"):
            page.emulate_media(color_scheme="dark" if width < 1000 else "light")
            page.wait_for_timeout(300)
            page.screenshot(path=f"{folder}/palette-{width}.png")
        labels = page.locator("#places [role=option]").all_inner_texts()
        for _ in range(next(place for place, label in enumerate(labels) if label.startswith("vdnn-all"))):
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_url("**/systems/memory/vdnn-all/")
        page.keyboard.press("Control+k")
        page.keyboard.type("llama-7b")
        page.keyboard.press("Enter")
        page.wait_for_url("**/artifacts/*/")
