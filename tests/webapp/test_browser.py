"""What only a browser shows: uploads with bars, pages that move by themselves, and what a screen reader
meets.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from django.utils import timezone
from playwright.sync_api import Page

from experiments.core.suites import load_suite
from tests.conftest import ROOT
from tests.webapp.advice.answers import QUESTION, answer
from tests.webapp.browser import browser_page, enter, ink, restore_fonts, serious, serving, widen_fonts
from tests.webapp.cast import Cast, experiment, experiment_with, finished, make_cast, ready
from tests.webapp.cast import run as cast_run
from tests.webapp.long_step import long_step
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
from webapp.nightly.services import create_schedule, run_now, tick
from webapp.runs.models import Run, RunDocument, RunMetric
from webapp.runs.offers import try_all

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def red(settings, monkeypatch) -> Cast:  # type: ignore[no-untyped-def]
    """The cast, with static files served from where they stand and the ORM allowed beside
    Playwright's loop.
    """
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    return make_cast()


@pytest.fixture
def address(red: Cast) -> Iterator[str]:
    with serving() as url:
        yield url


def test_files_are_sent_with_a_bar_each_and_their_fate_follows(red: Cast, address: str) -> None:
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url("artifacts/upload"))
        assert page.locator("#id_files").is_disabled()
        enter(page, address, red.max)
        page.goto(address + red.url("artifacts/upload"))
        files = [
            {"name": f"{n}.json", "mimeType": "application/json", "buffer": b"{}" + n.encode()} for n in "ab"
        ]
        page.locator("#id_files").set_input_files(files)
        rows = page.locator("#uploads tr")
        page.get_by_text("waiting to be read").nth(1).wait_for()
        assert rows.count() == 2
        Artifact.objects.filter(name="a.json").update(state="ready", kind="model", format="hf-config")
        Artifact.objects.filter(name="b.json").update(state="rejected", reason="line 1: not a model")
        page.get_by_text("model (hf-config)").wait_for()
        page.get_by_text("line 1: not a model").wait_for()


def test_an_experiment_moves_without_reloading_and_survives_a_reload(red: Cast, address: str) -> None:
    experiment = experiment_with(red.project, ready(red.project), queued=1, running=1)
    running = Run.objects.get(state="running")
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"experiments/{experiment.pk}/"))
        page.evaluate("window.notReloaded = true")
        page.get_by_text("1 waiting").click()
        page.get_by_text("place 1 in the queue").wait_for()
        Run.objects.filter(pk=running.pk).update(progress_step="op 7 of 9", progress_at=timezone.now())
        page.get_by_text("op 7 of 9").wait_for()
        assert page.get_by_text("place 1 in the queue").is_visible()  # what was unfolded stays so
        Run.objects.update(state="succeeded", outcome_status="ok", progress=1, finished_at=timezone.now())
        page.get_by_text("all ended").wait_for()
        assert page.evaluate("window.notReloaded")
        page.reload()
        page.get_by_text("all ended").wait_for()


@pytest.mark.parametrize(
    ("where", "last_word"),
    [("experiments", "text=all ended"), ("compare", "text=n = 2")],
)
def test_runs_that_end_one_right_after_the_other_are_all_told(
    red: Cast, address: str, where: str, last_word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word of the stream comes within a moment of the one before; it is not lost."""
    monkeypatch.setattr("webapp.runs.live.LOOK_EVERY", 0.1)
    experiment = experiment_with(red.project, ready(red.project), running=2)
    first, second = experiment.runs.all()
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"{where}/{experiment.pk}/"))
        with page.expect_response(lambda response: response.request.resource_type == "xhr"):
            end_now(first)
        end_now(second)
        page.locator(last_word).first.wait_for()


def end_now(run: Run) -> None:
    finished(run)
    ended = {"state": "succeeded", "outcome_status": "ok", "progress": 1, "finished_at": timezone.now()}
    Run.objects.filter(pk=run.pk).update(**ended)


def test_a_machine_of_the_list_brings_its_devices_and_adapters(red: Cast, address: str) -> None:
    model = ready(red.project)
    with browser_page() as page:
        enter(page, address, red.max)
        page.goto(address + red.url(f"experiments/new?artifact={model.pk}"))
        page.locator("#question-parallel").check()
        assumed = page.locator("#summary").get_by_text("assumed of each node: one adapter")
        assumed.wait_for()
        page.locator("#id_node").select_option("dgx-a100")
        assumed.wait_for(state="detached")
        assert not page.locator("#id_devices_per_node").is_visible()
        page.locator("#id_node").select_option("")
        assumed.wait_for()
        assert page.locator("#id_cluster_device").is_visible()


def test_the_main_pages_have_no_serious_fault_for_assistive_technology(red: Cast, address: str) -> None:
    model = ready(red.project, summary={"cards": [{"label": "ops", "value": 9, "unit": ""}], "plots": []})
    experiment = experiment_with(red.project, model, queued=1, failed=1, succeeded=2)
    run, pipeline = experiment.runs.filter(state="succeeded").order_by("seed")
    finished(run)
    RunDocument.objects.create(run=pipeline, outcome=parallel_outcome())
    Run.objects.filter(pk=pipeline.pk).update(family="parallel", policy="gpipe")
    schedule = create_schedule(red.project, red.ada, "memory-gpt2", 2, 0)
    run_now(schedule)
    trash(ready(red.project, name="thrown away"))
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
        answered_page(red, model),
    ]
    found = {}
    with browser_page() as page:
        page.goto(f"{address}/accounts/login/")
        found["login"] = serious(page)
        enter(page, address, red.ada)
        for url in (*map(red.url, pages), "/t/red/"):
            page.emulate_media(color_scheme="light")
            page.goto(address + url, wait_until="load")
            found[url] = serious(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_fresh_project_has_no_dead_end(red: Cast, address: str) -> None:
    """Each page that the menus lead to, empty as it is, has no serious fault and something to do on it."""
    found = {}
    with browser_page() as page:
        enter(page, address, red.ada)
        page.goto(address + red.url())
        links = page.locator("header a").evaluate_all("(links) => links.map((link) => link.href)")
        for url in dict.fromkeys(links):
            page.emulate_media(color_scheme="light")
            page.goto(url, wait_until="load")
            ways = page.locator("main").locator("a:visible, button:visible").count()
            found[url] = [*serious(page), *([] if ways else ["a dead end"])]
    assert {url: faults for url, faults in found.items() if faults} == {}
    assert len(found) > 12


def answered_page(red: Cast, model: Artifact) -> str:
    """The page of an answer of the advisor about ``model``."""
    advice = ask(red.project, red.ada, model, QUESTION)
    Advice.objects.filter(pk=advice.pk).update(answer=answer())
    Run.objects.filter(pk=advice.run_id).delete()
    return f"advise/?{urlencode(address_of(advice))}"


WIDTH = "document.documentElement.scrollWidth"


def test_no_page_is_wider_than_a_phone(red: Cast, address: str) -> None:
    """Every page that the resolver knows of, with long names in what it shows; tables scroll in their own
    frames.

    No layout depends on a font's width: each page is drawn with letters 15 % wider than ours, then with ours.
    """
    model = ready(red.project, name="a-name-without-any-place-to-break-it-" * 4, zoo="gpt2")
    experiment = experiment_with(red.project, model, queued=2, failed=1, succeeded=4)
    run, *others = experiment.runs.filter(state="succeeded")
    finished(run)
    figures = (memory_outcome(), parallel_outcome(), compilation_outcome())
    for other, outcome in zip(others, figures, strict=True):
        RunDocument.objects.create(run=other, outcome=outcome)
    Run.objects.filter(state="failed").update(reason="no/space/to/break/" * 30)
    Host.objects.create(name="host-" * 12, devices=[{"name": "device-" * 9, "kind": "cpu"}])
    schedule = create_schedule(red.project, red.ada, "memory-gpt2", 2, 0)
    run_now(schedule)
    trash(ready(red.project, name="thrown-away-" * 9, zoo="gpt2"))
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
        enter(page, address, red.ada)
        addresses = [
            route.address(things)
            for route in routes()
            if "team" in route.parts
            and not route.pattern.endswith("/events")
            and set(route.parts) <= set(things)
        ]  # no pages, and an event stream does not end
        answered = red.url(answered_page(red, model))
        for url in [*addresses, answered, *(red.url(f"runs/{other.pk}/") for other in others)]:
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


def test_every_sign_of_the_pages_is_in_the_fonts_that_they_bring(red: Cast, address: str) -> None:
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


def test_the_figure_of_a_long_step_is_drawn_whole_and_in_detail_when_zoomed(red: Cast, address: str) -> None:
    """Of 10,000 ops and 100,000 instants a screen has room for a few thousand; the one peak is among them."""
    run = experiment_with(red.project, ready(red.project), succeeded=1).runs.get()
    RunDocument.objects.create(run=run, outcome=long_step())
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"runs/{run.pk}/"))
        figure = page.locator("#memory-figure")
        figure.locator(".scatterlayer .trace").first.wait_for()
        assert drawn_lines(page) == {
            "activation",
            "all",
            "capacity",
            "compute",
            "device to host",
            "stall: transfer",
        }
        assert ink(page, figure) > 0.3
        assert highest_of(page, "all") == 1.0  # KiB
        plot = page.locator("figure.plot", has_text="queue")
        plot.get_by_text("zoom in for more").wait_for()
        assert ink(page, plot.locator(".plot-container")) > 0.1
        note = page.locator(".memory .how-many")
        some, of = (int(word.replace(",", "")) for word in re.findall(r"[\d,]{4,}", note.inner_text()))
        assert some < of / 4 and of > 100_000
        page.evaluate("Plotly.relayout('memory-figure', {'xaxis.range': [2.15, 2.2]})")
        note.get_by_text("All").wait_for()
        assert drawn_between(page, "all", 2.15, 2.2) == 900  # of 1,800 in these 180 s, half are sent
        assert highest_of(page, "all") == 1.0


def drawn_lines(page: Page) -> set[str]:
    """Names of the traces of the memory figure that have a line to be seen."""
    script = """figure => [...figure.querySelectorAll(".scatterlayer .trace")]
        .filter((trace) => [...trace.querySelectorAll("path.js-line")]
            .reduce((sum, path) => sum + path.getTotalLength(), 0) > 10)
        .map((trace) => trace.__data__[0].trace.name)"""
    return set(page.locator("#memory-figure").evaluate(script))


def points_of(page: Page, name: str) -> list[list[float]]:
    script = "(figure, name) => (({ x, y }) => [x, y])(figure.data.find((trace) => trace.name === name))"
    return page.locator("#memory-figure").evaluate(script, name)  # type: ignore[no-any-return]


def highest_of(page: Page, name: str) -> float:
    return max(points_of(page, name)[1])


def drawn_between(page: Page, name: str, start: float, end: float) -> int:
    return sum(start <= x < end for x in points_of(page, name)[0])


def test_the_figure_of_a_comparison_draws_what_does_not_fit_and_axes_are_brushed(
    red: Cast, address: str
) -> None:
    """Three policies fit in 40 GiB and one needs 60: its cross is beyond the line. Two take less than 2 s."""
    made, model = experiment(red.project), ready(red.project)
    for name, gib, seconds in (("swap_all", 30, 1.1), ("capuchin", 20, 1.2), ("swapadvisor", 10, 9.0)):
        figures = {"peak_memory": gib * 2.0**30, "step_time": seconds, "mfu": 1 / seconds}
        cast_run(made, name, figures, artifact=model)
    lost = cast_run(made, "baseline", state="infeasible", outcome_status="infeasible", artifact=model)
    needs = {"least_device": {"memory": 60.0 * 2**30, "step_time": 1.0}}
    RunDocument.objects.create(run=lost, outcome={"provenance": needs})
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"compare/{made.pk}/"))
        page.locator("#figure .annotation-text", has_text="1 beyond it").wait_for()
        assert ink(page, page.locator("#figure-plot .canvas")) > 0.02
        at_line, at_cross = (
            page.locator("#figure-plot .shapelayer path"),
            page.locator("#figure-plot .point"),
        )
        line = at_line.first.bounding_box()
        boxes = [mark.bounding_box() for mark in at_cross.all()]
        assert line and all(boxes)
        assert sum(box["x"] > line["x"] + line["width"] for box in boxes if box) == 1
        page.get_by_role("link", name="parallel coordinates").click()
        handle = page.locator(".coordinates .handle").nth(1).bounding_box()
        assert handle
        across, down = handle["x"] + handle["width"] / 2, handle["y"]
        page.mouse.move(across, down + handle["height"] * 0.6)
        page.mouse.down()
        page.mouse.move(across, down + handle["height"])
        page.mouse.up()
        page.get_by_text("2 of 3 runs pass: swap_all, capuchin.").wait_for()


def test_a_chart_of_nights_draws_the_levels_and_marks_the_failed_night(red: Cast, address: str) -> None:
    schedule = create_schedule(red.project, red.ada, "memory-gpt2", 2, 0)
    for day, value in enumerate((1.0, 1.0, None, 2.0, 2.0)):
        night = tick(schedule, datetime(2026, 3, 2 + day, 2, 0, tzinfo=UTC))
        assert night.experiment is not None
        for run in night.experiment.runs.all():
            RunMetric.objects.create(run=run, name="step_time", value=value or 0.0)
        night.experiment.runs.update(state="succeeded" if value else "failed")
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"nightly/{schedule.pk}/"))
        page.locator(".js-plotly-plot .annotation-text", has_text="failed").wait_for()
        runs = len(load_suite("memory-gpt2").runs)
        assert page.locator(".js-plotly-plot .scatterlayer .trace").count() == 2 * runs
        assert page.locator(".js-plotly-plot .legendtext").count() == runs
        page.get_by_text("2 nights", exact=True).first.wait_for()


def is_page(page: Page, url: str) -> bool:
    answer = page.request.get(url)
    return answer.ok and answer.headers["content-type"].startswith("text/html") and "<html" in answer.text()


def test_a_timeline_opens_on_one_micro_batch_and_home_leads_a_file_to_its_page(
    red: Cast, address: str
) -> None:
    """Micro-batches 0 and 1 of the replica whose first stage is drawn: the later is shown, then the first,
    then the whole step with every worker.
    """
    run = experiment_with(red.project, ready(red.project), succeeded=1).runs.get()
    Run.objects.update(family="parallel", policy="gpipe")
    RunDocument.objects.create(run=run, outcome=parallel_outcome())
    with browser_page() as page:
        enter(page, address, red.max)
        page.goto(address + red.url(f"runs/{run.pk}/"))
        told = page.locator("#timeline-focus")
        workers = "document.getElementById('timeline-figure').layout.yaxis.ticktext"
        page.get_by_text("micro-batch 1 of 0 to 1").wait_for()
        assert page.evaluate(workers) == ["0-1", "3"]
        assert page.get_by_role("button", name="the next micro-batch").is_disabled()
        page.get_by_role("button", name="the micro-batch before").click()
        assert told.text_content() == "micro-batch 0 of 0 to 1"
        assert page.evaluate(workers) == ["0-1", "2"]
        assert page.locator("#timeline-overview path.shown").count() == 1
        page.get_by_role("button", name="whole step").click()
        assert told.text_content() == "whole step" and len(page.evaluate(workers)) == 3
        page.goto(address + red.url())
        page.get_by_label("On", exact=True).select_option("a100-40g")
        file = {"name": "one.json", "mimeType": "application/json", "buffer": b"{}"}
        page.locator("#id_files").set_input_files(file)
        page.wait_for_url("**/artifacts/*/?devices=a100-40g")


def test_a_run_page_that_waits_turns_into_its_result_with_the_plot_drawn(red: Cast, address: str) -> None:
    run = experiment_with(red.project, ready(red.project), running=1).runs.get()
    with browser_page() as page:
        enter(page, address, red.vera)
        page.goto(address + red.url(f"runs/{run.pk}/"))
        page.get_by_role("progressbar").wait_for()
        finished(run)
        Run.objects.update(state="succeeded", outcome_status="ok", progress=1, finished_at=timezone.now())
        page.get_by_text("2 GiB").first.wait_for()
        page.locator(".js-plotly-plot .legendtext", has_text="capacity").wait_for()
        page.get_by_text("offload").wait_for()


def test_an_experiment_is_put_together_on_one_screen_and_nothing_chosen_is_lost(
    red: Cast, address: str
) -> None:
    """Every choice acts at once and stands in the address; errors stand at their field and go again."""
    model, jobs = ready(red.project), ready(red.project, "jobs", "trace")
    count = len(try_all("memory", ["model"]))
    with browser_page() as page:
        enter(page, address, red.max)
        page.goto(address + red.url(f"experiments/new?artifact={model.pk}"))
        heading, launch = page.locator("#asked"), page.locator("#launch")
        heading.get_by_text(f"{count} memory policies").wait_for()
        page.locator('[id="device-t4-16g"]').check()
        page.get_by_text(f"Launch {2 * count} runs").wait_for()
        page.get_by_label("Search policies").fill("rhu 2016")
        assert page.locator("[data-group] .chip:visible").all_inner_texts() == [
            "vdnn-all",
            "vdnn-conv",
            "vdnn-dyn",
        ]
        page.get_by_label("Search policies").fill("")
        page.get_by_role("button", name="none", exact=True).first.press("Enter")
        page.locator("#summary").get_by_text("Choose at least one").wait_for()
        page.locator('[id="policy-memory/vdnn-all"]').press("Space")
        page.get_by_text("Launch 2 runs").wait_for()
        page.get_by_label("batch", exact=True).fill("1, zero")
        page.locator(".field.wrong .errors").get_by_text("'zero' has the wrong type").wait_for()
        page.get_by_label("batch", exact=True).fill("1, 2")
        page.get_by_text("Launch 4 runs").wait_for()
        assert page.locator(".field.wrong").count() == 0
        page.reload()
        assert launch.inner_text() == "Launch 4 runs"
        page.locator("#id_artifacts").select_option(str(jobs.pk))
        heading.get_by_text("cluster policies").wait_for()
        page.locator("#summary").get_by_text("1 combination left out").wait_for()
        page.go_back()
        heading.get_by_text("vdnn-all").wait_for()
        assert page.get_by_label("batch", exact=True).input_value() == "1, 2"
        page.get_by_text("As a command").click()
        assert page.locator("#command-api").inner_text().count('"vdnn-all"') == 4
        page.keyboard.press("Escape")
        launch.click()
        page.wait_for_url("**/experiments/*-*/")
        assert Run.objects.filter(kind="policy").count() == 4
