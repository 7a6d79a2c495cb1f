"""Of every page: what a screen reader meets, how wide it is on a phone, and that its fonts have its signs."""

from __future__ import annotations

import unicodedata
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page

from tests.conftest import ROOT
from tests.webapp.advice.answers import QUESTION, answer
from tests.webapp.browser import browser_page, enter, restore_fonts, serious, widen_fonts
from tests.webapp.cast import Cast, experiment_with, finished, ready
from tests.webapp.routes import routes
from tests.webapp.runs.test_compilation_figure import outcome as compilation_outcome
from tests.webapp.runs.test_memory_figure import outcome as memory_outcome
from tests.webapp.runs.test_parallel_figure import outcome as parallel_outcome
from webapp.advice.forms import address_of
from webapp.advice.models import Advice
from webapp.advice.services import ask
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import trash
from webapp.hosts.models import Host
from webapp.nightly.services import create_schedule, run_now
from webapp.runs.models import Run, RunDocument

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_the_main_pages_have_no_serious_fault_for_assistive_technology(cast: Cast, address: str) -> None:
    model = ready(cast.project, summary={"cards": [{"label": "ops", "value": 9, "unit": ""}], "plots": []})
    experiment = experiment_with(cast.project, model, queued=1, failed=1, succeeded=2)
    run, pipeline = experiment.runs.filter(state="succeeded").order_by("seed")
    finished(run)
    RunDocument.objects.create(run=pipeline, outcome=parallel_outcome())
    Run.objects.filter(pk=pipeline.pk).update(family="parallel", policy="gpipe")
    schedule = create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0)
    run_now(schedule)
    trash(ready(cast.project, name="thrown away"))
    pages = [
        "",
        "artifacts/",
        "artifacts/upload",
        f"artifacts/{model.pk}/",
        "experiments/",
        "experiments/new",
    ]
    pages += [
        f"experiments/{experiment.pk}/",
        f"compare/{experiment.pk}/",
        f"runs/{run.pk}/",
        f"runs/{pipeline.pk}/",
        "hosts/validation",
    ]
    pages += [
        "tables/memory-gpt2/",
        "nightly/",
        f"nightly/{schedule.pk}/",
        answered_page(cast, model),
    ]
    found = {}
    with browser_page() as page:
        page.goto(f"{address}/accounts/login/")
        found["login"] = serious(page)
        enter(page, address, cast.ada)
        for url in (*map(cast.url, pages), "/t/red/"):
            page.emulate_media(color_scheme="light")
            page.goto(address + url, wait_until="load")
            found[url] = serious(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_fresh_project_has_no_dead_end(cast: Cast, address: str) -> None:
    """Each page that the menus lead to, empty as it is, has no serious fault and something to do on it."""
    found = {}
    with browser_page() as page:
        enter(page, address, cast.ada)
        page.goto(address + cast.url())
        links = page.locator("header a").evaluate_all("(links) => links.map((link) => link.href)")
        for url in dict.fromkeys(links):
            page.emulate_media(color_scheme="light")
            page.goto(url, wait_until="load")
            ways = page.locator("main").locator("a:visible, button:visible").count()
            found[url] = [*serious(page), *([] if ways else ["a dead end"])]
    assert {url: faults for url, faults in found.items() if faults} == {}
    assert len(found) > 12


def answered_page(cast: Cast, model: Artifact) -> str:
    """The page of an answer of the advisor about ``model``."""
    advice = ask(cast.project, cast.ada, model, QUESTION)
    Advice.objects.filter(pk=advice.pk).update(answer=answer())
    Run.objects.filter(pk=advice.run_id).delete()
    return f"advise/?{urlencode(address_of(advice))}"


WIDTH = "document.documentElement.scrollWidth"


def test_no_page_is_wider_than_a_phone(cast: Cast, address: str) -> None:
    """Every page that the resolver knows of, with long names in what it shows; tables scroll in their own
    frames.

    No layout depends on a font's width: each page is drawn with letters 15 % wider than ours, then with ours.
    """
    model = ready(cast.project, name="a-name-without-any-place-to-break-it-" * 4, zoo="gpt2")
    experiment = experiment_with(cast.project, model, queued=2, failed=1, succeeded=4)
    run, *others = experiment.runs.filter(state="succeeded")
    finished(run)
    figures = (memory_outcome(), parallel_outcome(), compilation_outcome())
    for other, outcome in zip(others, figures, strict=True):
        RunDocument.objects.create(run=other, outcome=outcome)
    Run.objects.filter(state="failed").update(reason="no/space/to/break/" * 30)
    Host.objects.create(name="host-" * 12, devices=[{"name": "device-" * 9, "kind": "cpu"}])
    schedule = create_schedule(cast.project, cast.ada, "memory-gpt2", 2, 0)
    run_now(schedule)
    trash(ready(cast.project, name="thrown-away-" * 9, zoo="gpt2"))
    things = {"artifact": model.pk, "experiment": experiment.pk, "run": run.pk, "schedule": schedule.pk}
    things |= {
        "team": "red",
        "project": "vision",
        "suite": "memory-gpt2",
        "family": "memory",
        "policy": "vdnn-all",
    }
    wide, seen = [], 0
    with browser_page(width=390) as page:
        widen_fonts(page, 115)
        enter(page, address, cast.ada)
        addresses = [
            route.address(things)
            for route in routes()
            if "team" in route.parts
            and not route.pattern.endswith("/events")
            and set(route.parts) <= set(things)
        ]  # no pages, and an event stream does not end
        answered = cast.url(answered_page(cast, model))
        for url in [*addresses, answered, *(cast.url(f"runs/{other.pk}/") for other in others)]:
            if not is_page(page, address + url):
                continue
            page.goto(address + url, wait_until="load")
            page.evaluate("document.fonts.ready")
            seen += 1
            widths = [page.evaluate(WIDTH)]
            restore_fonts(page)
            widths.append(page.evaluate(WIDTH))
            if max(widths) > 390:
                wide.append((url, *widths))
    assert wide == []
    assert seen >= 21


def is_page(page: Page, url: str) -> bool:
    answer = page.request.get(url)
    return answer.ok and answer.headers["content-type"].startswith("text/html") and "<html" in answer.text()


def test_every_sign_of_the_pages_is_in_the_fonts_that_they_bring(cast: Cast, address: str) -> None:
    """Whatever fonts a machine has, none of them is used; a sign that ours lack would come from there."""
    with browser_page() as page:
        page.goto(f"{address}/accounts/login/")
        assert fonts_of(page, "header, h1, label, button") == {"Inter Variable"}
        for mono, names in ((False, {"Inter Variable"}), (True, {"JetBrains Mono", "Inter Variable"})):
            write(page, "".join(sorted(signs_of_the_pages())), mono)
            assert fonts_of(page, "#signs") == names


#: Where what people read is written; what is in full width only guards exported cells.
WRITTEN = [
    *(ROOT / "webapp").rglob("*.html"),
    *(ROOT / "webapp").rglob("*.py"),
    *(ROOT / "webapp/static").rglob("*.*s"),
]


def signs_of_the_pages() -> set[str]:
    """All signs of templates, scripts, style sheets and what Python says, from the blank to the last."""
    written = {sign for path in WRITTEN for sign in path.read_text(encoding="utf-8")}
    return {sign for sign in written if sign.isprintable() and unicodedata.east_asian_width(sign) != "F"}


def write(page: Page, text: str, mono: bool) -> None:
    script = """([text, mono]) => {
        document.getElementById("signs")?.remove();
        const line = document.createElement("p");
        line.id = "signs"; line.textContent = text; line.className = mono ? "mono" : "";
        document.body.append(line);
        const { fontSize, fontFamily } = getComputedStyle(line);
        return document.fonts.load(`${fontSize} ${fontFamily}`, text);
    }"""
    page.evaluate(script, [text, mono])


def fonts_of(page: Page, selector: str) -> set[str]:
    """The families that the browser drew the elements with; of the machine's own, with a note."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("DOM.enable")
    devtools.send("CSS.enable")
    root = devtools.send("DOM.getDocument")["root"]["nodeId"]
    nodes = devtools.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})["nodeIds"]
    assert nodes
    used = [devtools.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"] for node in nodes]
    return {
        font["familyName"] if font["isCustomFont"] else f"the machine's {font['familyName']}"
        for fonts in used
        for font in fonts
    }
