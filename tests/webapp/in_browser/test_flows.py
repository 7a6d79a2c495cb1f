"""What only a browser shows: uploads with bars, pages that move by themselves, and forms of one screen."""

from __future__ import annotations

import pytest
from django.utils import timezone

from tests.webapp.browser import browser_page, enter
from tests.webapp.cast import Cast, experiment_with, finished, ready
from tests.webapp.runs.test_parallel_figure import outcome as parallel_outcome
from webapp.artifacts.models import Artifact
from webapp.runs.models import Run, RunDocument
from webapp.runs.offers import try_all

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_files_are_sent_with_a_bar_each_and_their_fate_follows(cast: Cast, address: str) -> None:
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url("artifacts/upload"))
        assert page.locator("#id_files").is_disabled()
        enter(page, address, cast.max)
        page.goto(address + cast.url("artifacts/upload"))
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


def test_an_experiment_moves_without_reloading_and_survives_a_reload(cast: Cast, address: str) -> None:
    experiment = experiment_with(cast.project, ready(cast.project), queued=1, running=1)
    running = Run.objects.get(state="running")
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"experiments/{experiment.pk}/"))
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
    cast: Cast, address: str, where: str, last_word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word of the stream comes within a moment of the one before; it is not lost."""
    monkeypatch.setattr("webapp.runs.live.LOOK_EVERY", 0.1)
    experiment = experiment_with(cast.project, ready(cast.project), running=2)
    first, second = experiment.runs.all()
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"{where}/{experiment.pk}/"))
        with page.expect_response(lambda response: response.request.resource_type == "xhr"):
            end_now(first)
        end_now(second)
        page.locator(last_word).first.wait_for()


def end_now(run: Run) -> None:
    finished(run)
    ended = {"state": "succeeded", "outcome_status": "ok", "progress": 1, "finished_at": timezone.now()}
    Run.objects.filter(pk=run.pk).update(**ended)


def test_a_machine_of_the_list_brings_its_devices_and_adapters(cast: Cast, address: str) -> None:
    model = ready(cast.project)
    with browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url(f"experiments/new?artifact={model.pk}"))
        page.locator("#question-parallel").check()
        assumed = page.locator("#summary").get_by_text("assumed of each node: one adapter")
        assumed.wait_for()
        page.locator("#id_node").select_option("dgx-a100")
        assumed.wait_for(state="detached")
        assert not page.locator("#id_devices_per_node").is_visible()
        page.locator("#id_node").select_option("")
        assumed.wait_for()
        assert page.locator("#id_cluster_device").is_visible()


def test_a_timeline_opens_on_one_micro_batch_and_home_leads_a_file_to_its_page(
    cast: Cast, address: str
) -> None:
    """Micro-batches 0 and 1 of the replica whose first stage is drawn: the later is shown, then the first,
    then the whole step with every worker.
    """
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    Run.objects.update(family="parallel", policy="gpipe")
    RunDocument.objects.create(run=run, outcome=parallel_outcome())
    with browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url(f"runs/{run.pk}/"))
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
        page.goto(address + cast.url())
        page.get_by_label("On", exact=True).select_option("a100-40g")
        file = {"name": "one.json", "mimeType": "application/json", "buffer": b"{}"}
        page.locator("#id_files").set_input_files(file)
        page.wait_for_url("**/artifacts/*/?devices=a100-40g")


def test_a_run_page_that_waits_turns_into_its_result_with_the_plot_drawn(cast: Cast, address: str) -> None:
    run = experiment_with(cast.project, ready(cast.project), running=1).runs.get()
    with browser_page() as page:
        enter(page, address, cast.vera)
        page.goto(address + cast.url(f"runs/{run.pk}/"))
        page.get_by_role("progressbar").wait_for()
        finished(run)
        Run.objects.update(state="succeeded", outcome_status="ok", progress=1, finished_at=timezone.now())
        page.get_by_text("2 GiB").first.wait_for()
        page.locator(".js-plotly-plot .legendtext", has_text="capacity").wait_for()
        page.get_by_text("offload").wait_for()


def test_an_experiment_is_put_together_on_one_screen_and_nothing_chosen_is_lost(
    cast: Cast, address: str
) -> None:
    """Every choice acts at once and stands in the address; errors stand at their field and go again."""
    model, jobs = ready(cast.project), ready(cast.project, "jobs", "trace")
    count = len(try_all("memory", ["model"]))
    with browser_page() as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url(f"experiments/new?artifact={model.pk}"))
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
