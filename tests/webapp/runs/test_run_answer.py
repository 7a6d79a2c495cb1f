"""The run page's answer: a sentence, four large figures, the waterfall, the mesh, six lines of provenance."""

from __future__ import annotations

import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from tests.webapp.cast import Cast, experiment_with, finished, ready, run_in, signed_in
from tests.webapp.runs.test_parallel_figure import outcome
from webapp.artifacts.models import Artifact
from webapp.presentation import when, with_local_times
from webapp.runs.document import PlanTable
from webapp.runs.headline import headline_of, leading_figures
from webapp.runs.listings import plan_table
from webapp.runs.mesh_words import mesh_in_words, placement_in_words
from webapp.runs.models import Run, RunDocument, RunMetric
from webapp.runs.parallel_names import in_parallel_words
from webapp.runs.plan_topology import nodes_of
from webapp.runs.planner_notes import notes_of
from webapp.runs.provenance import ended_for_time, provenance_of
from webapp.runs.reasons import reason_in_words
from webapp.runs.record_words import in_record_words
from webapp.runs.waterfall import waterfall_of

#: A step of 10 s: 4 ideal, 1 exposed, 2 bubble, 1 computed again, 0.5 the optimizer, so 1.5 below peak.
STEP = {
    "step_time": 10.0, "mfu": 0.4, "hfu": 0.5, "bubble_fraction": 0.2, "exposed_communication_time": 1.0,
    "recompute_time": 1.0, "update_time": 0.5, "communication_time": 3.0,
}  # fmt: skip


def sentence(run: Run, values: dict[str, float], told: dict[str, object]) -> str:
    found = headline_of(run, values, told)
    assert found is not None
    return strip_tags(found).replace("\xa0", " ")


def test_each_family_says_in_a_sentence_what_came_out(cast: Cast) -> None:
    model = ready(cast.project)
    made = experiment_with(cast.project, model)
    run = run_in(made, model, "succeeded", hardware="a100-40g", mode="simulated")
    run.policy = "<b>one"
    name = model.name.removesuffix(".json")
    for family, values, said in (
        ("memory", {"peak_memory": 2.0**30, "step_time": 1.5, "ideal_share": 0.75},
         f"<b>one trains {name} in 1.5 s a step with 1 GiB of a100-40g. "
         "It reaches 75 % of the speed with endless memory."),
        ("compilation", {"latency": 0.01, "speedup": 1.25, "speedup_low": 1.2, "speedup_high": 1.3},
         f"<b>one computes {name} in 10 ms a call on a100-40g. That is 1.25 times the speed of eager."),
        ("compilation", {"latency": 0.01, "speedup": 1.01, "speedup_low": 0.9, "speedup_high": 1.1},
         f"<b>one computes {name} in 10 ms a call on a100-40g. No difference from eager was seen."),
        ("cluster", {"avg_jct": 7200.0, "jobs": 3.0, "utilization": 0.5},
         f"<b>one completes 3 jobs of {name} in 2 h each on average, on a100-40g. "
         "50 % of the devices' time is used."),
        ("cluster", {"avg_jct": 20.0, "jobs": 3.0, "jct_error_mean": -0.031},
         f"<b>one completes 3 jobs of {name} in 20 s each on average, on a100-40g. "
         "The simulator, calibrated before, had said 3.1 % less."),
        ("serving", {"ttft_p50": 0.5, "requests": 9.0, "throughput": 2.0},
         f"<b>one answers half of 9 requests of {name} with a first token within 500 ms, on a100-40g. "
         "It completes 2 requests a second."),
        ("parallel", {"step_time": 2.0, "mfu": 0.4, "devices": 4.0},
         f"<b>one trains {name} in 2 s a step on 4 unit, at 40 % of peak FLOP/s. The mesh is PP 2: "
         "layers are shared inside a node, stages hand on between nodes, gradients go inside a node."),
    ):  # fmt: skip
        run.family = family
        found = headline_of(run, values, outcome())
        assert found is not None and "&lt;b&gt;one" in found
        shown = found.replace("&lt;b&gt;one", "ONE")
        assert strip_tags(shown).replace("&#x27;", "'") == said.replace("<b>one", "ONE")
    run.state = Run.State.INFEASIBLE
    assert "does not fit" in sentence(run, {}, {}) and sentence(run, {}, {}).endswith("into a100-40g.")
    run.kind = Run.Kind.CAPTURE
    assert headline_of(run, {}, {}) is None


TAIL = "It keeps 99 % of the times between tokens within 100 ms, half of the waits for a pass "


@pytest.mark.parametrize(
    ("knobs", "rate", "said"),
    [
        ({"wanted_attainment": 0.9}, 12.34, "It keeps 90 % of requests within their objectives up to 12.3"),
        ({"slo_tbt_p99": 0.1}, 5.0, TAIL + "within 2 s up to 5"),
        ({"wanted_attainment": 0.9, "find_rate": False, "slo_tbt_p99": 0.1}, 5.0, "It keeps 99 % of the"),
        ({"wanted_attainment": 0.9}, 0.0, "It keeps 90 % of requests within their objectives at none of"),
    ],
)
def test_a_serving_run_says_what_it_keeps_up_to_which_rate(
    cast: Cast, knobs: dict[str, object], rate: float, said: str
) -> None:
    model = ready(cast.project)
    run = run_in(experiment_with(cast.project, model), model, "succeeded", family="serving", knobs=knobs)
    values = {"ttft_p50": 0.5, "requests": 9.0, "max_rate": rate}
    assert said in sentence(run, values, {})
    assert leading_figures("serving", values)[0] == "max_rate"


def test_gradients_of_replicas_on_two_nodes_go_between_them() -> None:
    """Worker 0 alone has stage 0 on node 0; stage 1 has two replicas, both on node 1."""
    plan = outcome()["plan"]
    nodes = nodes_of(outcome())
    assert [nodes.of(device) for device in range(4)] == [0, 0, 1, 1]
    wide = {"stages": [{"begin": 0, "end": 1, "workers": [0, 1]}], "zero": 3,
            "workers": [{"devices": [0, 1]}, {"devices": [2, 3]}], "mesh": {"data": 2, "tensor": 2},
            }  # fmt: skip
    assert mesh_in_words(wide) == "DP 2 × TP 2, ZeRO 3"
    assert placement_in_words(wide, nodes) == "layers are shared inside a node, gradients go between nodes"
    unnamed = {name: value for name, value in wide.items() if name != "mesh"}
    assert mesh_in_words(unnamed) == "DP 2 × devices of a stage 2, ZeRO 3"
    assert mesh_in_words({}) == "" and mesh_in_words({**plan, "mesh": {"data": 1}}) == "one device"


def test_the_waterfall_ends_at_the_step_and_names_the_run_that_was_faster(cast: Cast) -> None:
    model = ready(cast.project)
    made = experiment_with(cast.project, model)
    slow, fast = (run_in(made, model, "succeeded", policy=policy) for policy in ("gpipe", "alpa"))
    Run.objects.filter(experiment=made).update(family="parallel", mode="simulated")
    RunMetric.objects.create(run=fast, name="step_time", value=8.0)
    slow.refresh_from_db()
    fall = waterfall_of(slow, STEP, outcome()["plan"])
    assert fall is not None and fall.changeable is not None and fall.faster is not None
    assert [(bar.name, bar.seconds, bar.begin) for bar in fall.bars] == [
        ("ideal", pytest.approx(4.0), "0.00"),
        ("kernels below peak", pytest.approx(1.5), "400.00"),
        ("exposed communication", pytest.approx(1.0), "550.00"),
        ("bubble", pytest.approx(2.0), "650.00"),
        ("recompute", pytest.approx(1.0), "850.00"),
        ("optimizer", pytest.approx(0.5), "950.00"),
    ]
    assert fall.bars[-1].mfu_left == pytest.approx(0.4)
    assert (fall.changeable.name, fall.faster.policy, fall.faster_time) == ("bubble", "alpa", 8.0)
    assert waterfall_of(slow, {"step_time": 1.0}, {}) is None


def test_the_run_page_shows_the_answer_large_the_rest_folded(cast: Cast) -> None:
    run = experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get()
    Run.objects.filter(pk=run.pk).update(family="parallel", policy="gpipe")
    told = outcome()
    told["provenance"] |= {
        "names": {"layers": {"0": "embedding", "2": "blocks.0", "3": "head"}},
        "revision": "0123456789abcdef", "concurrent": ["vdnn (paused)"], "load_before": 0.25,
        "versions": {"torch": "2.13"}, "trace": {"jobs": 7},
    }  # fmt: skip
    RunDocument.objects.create(run=run, outcome=told)
    for name, value in STEP.items():
        RunMetric.objects.create(run=run, name=name, value=value)
    client = signed_in(cast.vera)
    page = client.get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert '<h1 class="finding"><strong>gpipe trains ' in page and "The mesh is <strong>PP 2</strong>" in page
    assert page.count('<dl class="large-figures"><div>') == 1 and "All 8 figures" in page
    assert "Where the step goes" in page and '<td title="0-2">embedding to blocks.0</td>' in page
    assert "concurrent: vdnn (paused), load before 0.25" in page
    assert 'title="0123456789abcdef">0123456789ab</span>' in page and "<dt>trace: jobs</dt>" in page
    stages = client.get(cast.url(f"runs/{run.pk}/plan?table=stages")).content.decode()
    assert '<td title="3">head</td>' in stages


def test_four_figures_stand_large_and_only_those_that_a_run_has() -> None:
    assert leading_figures("parallel", STEP) == ("step_time", "mfu")
    values = dict.fromkeys(("utilization", "avg_jct", "makespan", "p99_jct", "jobs"), 1.0)
    assert leading_figures("cluster", values) == ("avg_jct", "p99_jct", "makespan", "utilization")
    assert leading_figures("no family", STEP) == ()


def test_a_plans_tables_speak_of_layers_slots_and_collectives() -> None:
    layers = {"7": "blocks.0.query"}
    exchange = {"per": "sample", "kind": "all_reduce", "bytes": 2.0**25, "ranks": 2}
    (row,) = in_parallel_words(
        "shardings", [{"layer": 7, "axis": "column", "forward": [], "backward": [exchange]}], layers
    )
    assert (row["layer"], row["layer"].number) == ("blocks.0.query", "7")
    assert (row["forward"], row["backward"]) == ("", "all reduce of 32 MiB a sample among 2")
    (row,) = in_parallel_words("workers", [{"devices": [0, 1], "slots": ["F0.0", "F1.0", "B0.0"]}], {})
    assert (row["devices"], row["slots"], row["slots"].number) == (
        "0-1",
        "2 forward, 1 backward",
        "F0.0 F1.0 B0.0",
    )
    notes = notes_of(
        {"notes": {"layout": {"tensor": 2, "node": 0, "overlap": False, "bucket_bytes": 2.0**20}}}
    )
    assert notes is not None and notes.facts == (("layout", "tensor 2, node 0, bucket bytes 1 MiB"),)


def test_records_are_read_in_units_and_leave_with_all_digits() -> None:
    row = in_record_words(
        {"job": "a", "start": 7200.5, "end": None, "gpus": 2, "devices_by_node": [[0, 1], [3, 1]]}
    )
    shown = (row["job"], row["start"], row["start"].number, row["end"], row["devices_by_node"])
    assert shown == ("a", "2 h", "7200.5 s", None, "1 on node 0, 1 on node 3")
    table = plan_table(PlanTable("rows", tuple(row), (row,)))
    assert table.rows == (("a", 7200.5, None, 2, "[[0, 1], [3, 1]]"),)
    assert mesh_in_words({"workers": [0], "stages": [0], "mesh": {"stage0": 64}}) == "64 devices for stage 0"


def test_a_search_that_ended_for_time_says_what_repeats_it() -> None:
    told = {"search_seconds": 60.0, "knobs_reached": {"programs": 12}}
    assert ended_for_time(told) == (
        "the search ended at its limit of 1 min with the best so far; "
        "it is the same again on any host with programs = 12"
    )
    assert ended_for_time({"search_seconds": 60.0}).endswith("another host may find another")
    assert ended_for_time({}) == "" and provenance_of({}).rest == ()


def test_a_memory_run_has_its_capacity_beside_its_peak(cast: Cast) -> None:
    run = finished(experiment_with(cast.project, ready(cast.project), succeeded=1).runs.get())
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/")).content.decode()
    assert '<span class="of">of <span class="num" title="9 bytes">' in page


def test_reasons_have_units_names_of_files_and_local_times(cast: Cast) -> None:
    """What is no size stays: numbers without bytes, short ones, and text that looks like markup."""
    model = ready(cast.project)
    run = run_in(experiment_with(cast.project, model), model, "infeasible")
    lacks = "1073741824 bytes are missing of 25769803776 (1 GiB of 24 GiB), 12 bytes"
    run.reason = f"<op 38>: 146800640 more bytes do not fit: {lacks}"
    told = reason_in_words(run)
    assert strip_tags(told) == "&lt;op 38&gt;: 140 MiB more do not fit: 1 GiB are missing of 24 GiB, 12 bytes"
    assert 'title="146,800,640 bytes"' in told
    digest = "ab" * 32
    run.artifact = Artifact(name="a<b.json", blob_id=digest)
    run.reason = f"{digest} and {digest[:12]}, not {digest[:20]}, since 02 Mar 2026 02:00 UTC"
    told = reason_in_words(run)
    assert told.startswith(f"a&lt;b.json and a&lt;b.json, not {digest[:20]}, since <time datetime=")
    assert with_local_times("night, 31 Feb") == "night, 31 Feb"
    page = with_local_times("<b>, 02 Mar 2026 02:00 UTC")
    assert page.startswith('&lt;b&gt;, <time datetime="2026-03-02T02:00:00+00:00"') and "data-local" in page


def test_a_moment_of_another_year_names_it() -> None:
    """A token that expires in a year does not look as if it did today."""
    now = timezone.now()
    assert f" {now.year} " not in str(when(now)).split(">", 1)[1]
    assert f" {now.year + 1} " in str(when(now.replace(month=2, day=1, year=now.year + 1))).split(">", 1)[1]
