"""The live experiment page, its stream, and the run page."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import RequestFactory
from django.utils import timezone

from tests.webapp.cast import Cast, experiment_with, finished, ready, run, run_in, signed_in
from webapp.accounts import services
from webapp.accounts.access import still_enters
from webapp.presentation import knob_unit
from webapp.runs import figures, lanes, live
from webapp.runs.figures import figures_of, outline
from webapp.runs.lanes import lanes_of
from webapp.runs.models import Run, RunMetric
from webapp.runs.question import question_of


def test_time_left_comes_from_measured_progress(cast: Cast) -> None:
    """A quarter done after 30 s: 90 s left. Too early to say below two per cent."""
    now = timezone.now()
    run = Run(state="running", started_at=now - timedelta(seconds=30), progress=0.25)
    assert live.seconds_left(run, now) == pytest.approx(90)
    run.progress = 0.01
    assert live.seconds_left(run, now) is None


def test_the_place_in_the_queue_counts_who_is_ahead_in_any_project(cast: Cast) -> None:
    """One of equal priority came before, one of higher priority after: place 3."""
    model = ready(cast.project)
    mine = experiment_with(cast.project, model)
    foreign = experiment_with(cast.foreign, ready(cast.foreign), queued=1)
    run = run_in(mine, model, "queued")
    run_in(foreign, model, "queued", priority=5)
    run_in(mine, model, "queued")
    assert live.position(run) == 3


def test_the_grid_folds_what_is_equal_and_shows_what_differs(cast: Cast) -> None:
    experiment = experiment_with(cast.project, ready(cast.project), queued=2, running=1, failed=1)
    grid = live.grid(experiment)
    assert grid.varying == ("seed",)
    assert dict(grid.constant)["policy"] == "baseline"
    assert grid.counts == (("queued", "2 queued"), ("running", "1 running"), ("failed", "1 failed"))
    assert grid.fraction == (1 + 0.5) / 4


def test_rows_show_figures_as_they_come_and_fold_what_waits(cast: Cast) -> None:
    """The surprise: a speed-up whose interval holds 1 is no figure, and what fell out says why."""
    model = ready(cast.project)
    made = experiment_with(cast.project, model, queued=3, running=1)
    run(made, "swap_all", {"step_time": 1.5, "peak_memory": 2.0 * 2**30}, artifact=model)
    reason = "op 7 (mm_3, forward): 5 more bytes do not fit: 9 bytes are missing of 8"
    run(made, "checkpoint", state="infeasible", outcome_status="infeasible", reason=reason, artifact=model)
    unseen = {"speedup": 1.1, "speedup_low": 0.9, "speedup_high": 1.3}
    run(made, "cse", unseen, family="compilation", artifact=model)
    grid = live.grid(made)
    assert grid.headlines == ("step_time", "peak_memory", "latency", "speedup", "compile_time")
    by_policy = {row.run.policy: [re.sub("<[^>]*>", "", one) for one in row.figures] for row in grid.rows}
    assert by_policy["swap_all"] == ["1.5 s", "2 GiB", "", "", ""]
    assert by_policy["cse"] == ["", "", "", "no difference seen", ""]
    assert [row.cause for row in grid.rows if row.cause] == ["memory runs out at mm_3, forward"]
    assert len(grid.waiting) == 3
    assert [(part.name, part.start, part.count) for part in grid.segments] == [
        ("succeeded", 0, 2),
        ("infeasible", 2, 1),
        ("running", 3, 1),
        ("queued", 4, 3),
    ]


def test_silence_is_said(cast: Cast) -> None:
    experiment = experiment_with(cast.project, ready(cast.project), running=1)
    Run.objects.update(progress_at=timezone.now() - timedelta(minutes=7, seconds=5))
    page = signed_in(cast.vera).get(cast.url(f"experiments/{experiment.pk}/"))
    assert b"no progress for 7 min" in page.content


@pytest.mark.django_db(transaction=True)
def test_the_stream_says_what_is_and_ends_when_all_has_ended() -> None:
    from tests.webapp.cast import make_cast

    cast = make_cast()
    experiment = experiment_with(cast.project, ready(cast.project), succeeded=1, failed=1)

    async def allow() -> bool:
        return True

    async def listen() -> list[str]:
        return [event async for event in live.changes(experiment.pk, allow)]

    assert async_to_sync(listen)() == [event_of("changed"), event_of("ended")]


def event_of(name: str) -> str:
    return f"event: {name}\ndata: \n\n"


@pytest.mark.django_db(transaction=True)
def test_only_a_run_that_turns_is_told_to_a_comparison_and_many_of_them_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.webapp.cast import make_cast

    cast = make_cast()
    experiment = experiment_with(cast.project, ready(cast.project), succeeded=9, running=3)
    running = list(Run.objects.filter(state="running"))
    waited, heard = list[float](), list[str]()

    async def allow() -> bool:
        return True

    async def wait(seconds: float) -> None:
        """A run ends at the first and the second look, and all get on; the last ends much later."""
        waited.append(seconds)
        await Run.objects.filter(state="running").aupdate(progress_at=timezone.now())
        if len(waited) in (1, 2, 20):
            await Run.objects.filter(pk=running.pop().pk).aupdate(state="succeeded")
        heard.append("wait")

    monkeypatch.setattr(live.asyncio, "sleep", wait)

    async def listen() -> None:
        async for event in live.changes(experiment.pk, allow):
            heard.append(event.split()[1])

    async_to_sync(listen)()
    looks = " ".join(heard).split("wait")
    assert [look for look, words in enumerate(looks) if "turned" in words] == [0, 3]
    assert all("changed" in words for words in looks) and looks[20].split() == ["changed", "ended"]


@pytest.mark.django_db(transaction=True)
def test_the_stream_of_a_removed_member_closes_within_5_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the run goes on; nothing waits here, what it would have waited is added up."""
    from tests.webapp.cast import make_cast

    cast = make_cast()
    experiment = experiment_with(cast.project, ready(cast.project), running=1)
    vera, waited = cast.red.memberships.get(user=cast.vera), list[float]()

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 8:
            await sync_to_async(services.remove_member)(vera)

    monkeypatch.setattr(live.asyncio, "sleep", wait)
    request = RequestFactory().get("/")
    request.team, request.user = cast.red, cast.vera  # type: ignore[attr-defined]

    async def listen() -> list[bytes]:
        answer = live.stream(experiment.pk, partial(still_enters, request))
        return [event async for event in answer.streaming_content]

    assert async_to_sync(listen)() == [event_of("changed").encode(), event_of("turned").encode()]
    assert 4 <= sum(waited) and sum(waited[8:]) < 5


def test_the_run_page_shows_figures_violations_and_provenance(cast: Cast) -> None:
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert 'title="2,147,483,648 bytes">2 GiB' in page
    assert "tensor 66 is used while away" in page
    assert "9.9.9" in page
    assert 'class="badge mode-simulated"' in page
    assert "offload" in signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/plan?table=moves")).content.decode()
    assert signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/plan?table=no")).status_code == 404


def test_a_search_that_ended_at_its_bound_says_so_above_the_figures(cast: Cast) -> None:
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    run.document.outcome["plan"]["notes"] = {"ended_at": "the search ended at its bound of 7 plans"}
    run.document.save()
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert "Not searched to the end:</strong> the search ended at its bound of 7 plans." in page


def test_what_was_assumed_of_a_cluster_is_said_above_the_figures(cast: Cast) -> None:
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    run.document.outcome["provenance"]["warnings"] = ["assumed of each node: one adapter"]
    run.document.save()
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert page.count("assumed of each node: one adapter") == 1
    assert "<strong>Warning:</strong> assumed of each node: one adapter" in page


def test_a_page_says_what_training_keeps_and_whether_its_times_are_lower_bounds(cast: Cast) -> None:
    """Times from a card's peaks are those of ideal kernels; an MFU that nobody reaches is doubted aloud."""
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    parts = {"weights": 2, "gradients": 2, "master weights": 4, "optimizer state": 8}
    run.document.outcome["provenance"] |= {
        "states": {"precision": "bf16-mixed", "bytes_per_parameter": parts},
        **{"timing": "roofline", "timed_on": "h200", "full_peak": True},
    }
    run.document.save()
    RunMetric.objects.create(run=run, name="mfu", value=0.83)
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert "2 weights + 2 gradients + 4 master weights + 8 optimizer state = 16 bytes a parameter" in page
    assert "roofline of h200 at full peak: a lower bound on time" in page
    assert "An MFU of 83% is more than training reaches" in page


def test_parts_are_stacked_under_their_total_beside_the_capacity(cast: Cast) -> None:
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    (figure,) = figures_of(run.document.outcome["series"])
    assert [(line["name"], line.get("stack"), line.get("dash")) for line in figure["series"]] == [
        ("capacity", None, "dash"),
        ("total", None, None),
        ("gradient", "device_bytes", None),
    ]


def test_of_a_long_curve_each_stretch_keeps_its_lowest_and_its_highest() -> None:
    heights = [0, 5, 1, 1, 9, -2, 3, 3]
    assert outline(heights, 4) == [0, 1, 4, 5]
    assert outline(heights, 8) == list(range(8))
    assert outline([0.0] * 9, 4) == [0, 5]


def test_a_long_stack_stays_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part is highest where the total is not: it is drawn at the total's instants all the same."""
    monkeypatch.setattr(figures, "MOST_POINTS", 2)
    total = {"unit": "bytes", "x": [0, 1, 2, 3], "y": [9, 1, 2, 3]}
    part = {"unit": "bytes", "x": [0, 1, 2, 3], "y": [0, 0, 2, 0]}
    (figure,) = figures_of({"device_bytes": total, "device_bytes.input": part})
    assert [curve["x"] for curve in figure["series"]] == [[0, 1], [0, 1]]
    assert figure["sampled"] == 4


def test_long_curves_are_sampled_and_it_is_said() -> None:
    (figure,) = figures_of({"queue": {"unit": "jobs", "x": list(range(100_001)), "y": [0] * 100_001}})
    assert figure["sampled"] == 100_001
    assert len(figure["series"][0]["x"]) <= 50_000


def test_the_spec_repeats_the_run_outside(cast: Cast) -> None:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    answer = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/spec.json"))
    assert json.loads(answer.content)["workload"]["source"] == "zoo:gpt2"


def test_knobs_have_their_units(cast: Cast) -> None:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    run.family, run.policy = "cluster", "gandiva"
    run.spec = {**run.spec, "knobs": {"slice_length": 90.0, "packing": True, "resize_cost": None}}
    run.save()
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    facts = re.findall(r"<dt>(slice_length|packing|resize_cost)</dt><dd>(.*?)</dd>", page)
    assert {name: said.strip() for name, said in facts} == {
        "slice_length": "90 s",
        "packing": "yes",
        "resize_cost": "–",
    }


def test_a_policy_that_is_gone_has_knobs_without_units() -> None:
    assert knob_unit("cluster", "no_more", "slice_length") == ""
    assert knob_unit("cluster", "gandiva", "no_more") == ""


def test_a_crash_is_explained(cast: Cast) -> None:
    model = ready(cast.project)
    run = run_in(
        experiment_with(cast.project, model), model, "failed",
        reason="killed", signal="SIGSEGV", exit_code=-11, log_tail="<script>last words", crashes=3,
    )  # fmt: skip
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert "SIGSEGV" in page
    assert "&lt;script&gt;last words" in page


def test_stints_and_requests_are_drawn_over_time() -> None:
    """A job of two stints; a request that was never admitted has no bars."""
    jobs = {"columns": ["job", "start", "end", "gpus"], "rows": [["a", 0, 5, 2], ["a", 9, 12, 2]]}
    (stints,) = lanes_of(jobs)
    assert [(s["name"], s["x"], s["to"]) for s in stints["series"]] == [("2 GPUs", [0, 9], [5, 12])]
    columns = ["request", "arrival", "admitted", "first_token", "last_token"]
    (requests,) = lanes_of(
        {"columns": columns, "rows": [[7, 0.0, None, None, None], [8, 1.0, 2.0, 3.0, 5.0]]}
    )
    assert requests is not None
    assert [(s["name"], s["y"]) for s in requests["series"]] == [
        ("waiting", ["8"]),
        ("prompt", ["8"]),
        ("output", ["8"]),
    ]
    assert lanes_of({"moves": []}) == ()


def test_of_too_many_requests_some_are_drawn_from_the_first_to_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten requests of three bars each and space for twelve bars: every third request, whole."""
    monkeypatch.setattr(lanes, "MOST_BARS", 12)
    rows = [[name, name, name + 1, name + 2, name + 3] for name in range(10)]
    columns = ["request", "arrival", "admitted", "first_token", "last_token"]
    (drawn,) = lanes_of({"columns": columns, "rows": rows})
    assert drawn["lanes"] == ["0", "3", "6", "9"]
    assert [len(series["x"]) for series in drawn["series"]] == [4, 4, 4]
    assert (drawn["shown"], drawn["sampled"]) == (12, 30)


def test_of_very_many_runs_those_that_move_are_shown(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_ROWS", 2)
    grid = live.grid(experiment_with(cast.project, ready(cast.project), succeeded=2, failed=1, running=1))
    assert ([row.run.state for row in grid.rows], grid.total) == (["running", "failed"], 4)


def test_a_knob_that_only_some_policies_have_differs_even_when_it_is_none(cast: Cast) -> None:
    """The surprise: an open knob (None) is not the same as not having the knob."""
    experiment = experiment_with(cast.project, ready(cast.project), succeeded=2)
    run = experiment.runs.order_by("queued_at", "id").last()
    assert run is not None
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "knobs": {"budget": None}})
    grid = live.grid(experiment)
    assert grid.varying == ("seed", "budget")
    assert [row.run.cells[1] for row in grid.rows] == ["", None]


def test_the_page_says_how_a_knob_that_was_left_open_is_settled(cast: Cast) -> None:
    """The surprise: an open knob that nothing was said of stays a dash, not a value of somebody else's."""
    made = experiment_with(cast.project, ready(cast.project), succeeded=1)
    run = finished(made.runs.get())
    knobs = {"stages": None, "rate": None, "chunks": 2}
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "knobs": knobs})
    document = run.document
    document.outcome["provenance"] |= {
        "settled": {"stages": 8},
        "tried": [{"stages": 4, "refused": "needs 9 of 8 bytes"}, {"stages": 8, "step_time": 1.25}],
    }
    document.save()
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert '<dt>stages</dt><dd>8 <span class="soft small">left open</span></dd>' in page
    assert "<dt>rate</dt><dd>–</dd><dt>chunks</dt><dd>2</dd>" in page
    assert "2 settings tried" in page
    assert "<li>stages 4: needs 9 of 8 bytes</li><li>stages 8: a step of 1.25 s</li>" in page
    assert "settled.stages" not in page


def test_a_run_that_waits_for_its_workload_says_what_for(cast: Cast) -> None:
    model = ready(cast.project)
    experiment = experiment_with(cast.project, model, queued=1)
    capture = Run.objects.create(
        project=cast.project, artifact=model, kind="capture", state="running", progress=0.4
    )
    experiment.runs.update(after=capture)
    page = signed_in(cast.vera).get(cast.url(f"experiments/{experiment.pk}/")).content.decode()
    assert "waits until its workload is ready: capture a step, 40 %" in page
    assert "place 1" not in page


def test_the_experiments_and_a_plan_leave_as_files(cast: Cast) -> None:
    made = experiment_with(cast.project, ready(cast.project), queued=1, succeeded=1)
    run = finished(made.runs.get(state="succeeded"))
    client = signed_in(cast.vera)
    listed = client.get(cast.url("experiments/?export=csv")).content.decode()
    started = made.created_at.isoformat(timespec="seconds")
    assert listed.splitlines()[1] == f"{made.name},1 queued,1,2,,{started}"
    plan = client.get(cast.url(f"runs/{run.pk}/plan?table=moves&export=latex")).content.decode()
    assert "offload & 66" in plan
    assert client.get(cast.url("experiments/?export=docx")).status_code == 404


@pytest.mark.parametrize(
    ("x_unit", "kind"), [("update", "line"), ("s", "line"), ("stage", "bar"), ("device", "bar")]
)
def test_losses_over_updates_are_lines_and_figures_of_stages_bars(x_unit: str, kind: str) -> None:
    curve = {"unit": "", "x": [0.0, 1.0], "y": [2.0, 1.0], "x_unit": x_unit}
    (figure,) = figures_of({"loss_rank_0": curve, "loss_rank_1": curve})
    assert (figure["kind"], len(figure["series"])) == (kind, 2)


def test_a_loss_stands_beside_one_processs_in_one_figure() -> None:
    curve = {"unit": "nats", "x": [0.0, 1.0], "y": [2.0, 1.0], "x_unit": "mini-batch"}
    late = {"unit": "fraction", "x": [0.0, 1.0], "y": [0.5, 0.5], "x_unit": "updates late"}
    found = figures_of({"loss": curve, "loss_one_process": curve, "staleness": late})
    assert [(figure["title"], figure["kind"]) for figure in found] == [("loss", "line"), ("staleness", "bar")]
    assert [(line["name"], line.get("dash")) for line in found[0]["series"]] == [
        ("this run", None),
        ("one process", "dash"),
    ]


def test_a_run_says_what_was_asked_with_every_option(cast: Cast) -> None:
    """Also what no form field was filled for; of a trace only how it was read."""
    model = ready(cast.project)
    made = experiment_with(cast.project, model)
    options = {"batch": 8, "sequence": 1024, "dtype": "bfloat16", "precision": "bf16-mixed"}
    options |= {"optimizer": "adamw"}
    said = "A training step of 8 samples of 1,024 tokens in bfloat16 (bf16-mixed) with adamw"
    run = run_in(made, model, "succeeded", options={**options, "loss": "fused"})
    assert question_of(run) == f"{said}, loss fused, on a100-40g"
    assert said in signed_in(cast.max).get(cast.url(f"runs/{run.pk}/")).content.decode()
    images = run_in(made, model, "succeeded", options={"batch": 1, "image": 224, "training": False}, seed=2)
    assert question_of(images) == "A forward pass of 1 image of 224 x 224 pixels, on a100-40g, seed 2"
    trace = run_in(made, model, "succeeded", options={"limit": 60}, hardware="4x4 t4")
    assert question_of(trace) == "The workload as it was read, limit 60, on 4x4 t4"
    call = {"options": options, "family": "compilation", "policy": "dce"}
    said = [
        question_of(run_in(made, model, "succeeded", **call, knobs=knobs, seed=number))
        for number, knobs in enumerate(({}, {"training": True}, {"update": True}))
    ]
    size = "of 8 samples of 1,024 tokens in bfloat16"
    assert said[0] == f"A forward pass {size}, on a100-40g"
    assert said[1] == f"A forward and backward pass {size}, on a100-40g, seed 1"
    assert said[2] == f"A training step {size} with sgd, on a100-40g, seed 2"
