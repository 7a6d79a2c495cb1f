"""What a comparison says in words: figures that a reader can work out, in all five families."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.answer import Answer, answer_of
from webapp.compare.choice import Choice
from webapp.compare.comparison import compare
from webapp.compare.fallen import fallen_of
from webapp.compare.filters import comparable
from webapp.hosts.evidence import simulator_errors
from webapp.runs.models import Experiment, RunDocument

pytestmark = pytest.mark.django_db
GIB = 2**30
#: Two jobs of 10 GPUs, an hour each, submitted within an hour.
DEMAND = {
    "jobs": 2,
    "gpu_seconds": 72000.0,
    "submissions": 3600.0,
    "peak": 20,
    "levels": [10, 20],
    "seconds": [3600.0, 1800.0],
}


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


def told(run: Any, **provenance: float) -> None:
    RunDocument.objects.create(run=run, outcome={"provenance": provenance})


def memory_runs(ada: Place, needs: float) -> Experiment:
    """On 40 GiB: a baseline of ``needs`` bytes, and in 30, 20 and 10 GiB what takes 1.1, 1.2 and 9 s; three
    that do not fit.
    """
    found = cast.experiment(ada.project)
    gpt2 = cast.ready(ada.project)
    fits = needs <= 40 * GIB
    figures = {"peak_memory": needs, "step_time": 1.0, "ideal_step_time": 1.0} if fits else {}
    same = {"artifact": gpt2, "hardware": "a100-40g"}
    lost = {"state": "infeasible", "outcome_status": "infeasible", **same}
    base = cast.run(found, "baseline", figures, **(same if fits else lost | {"reason": at_op(3, "gelu")}))
    told(base, live_peak=needs, missing_bytes=1.0 * GIB)
    for name, gib, seconds in (("swap_all", 30, 1.1), ("capuchin", 20, 1.2), ("swapadvisor", 10, 9.0)):
        values = {"peak_memory": gib * GIB, "step_time": seconds, "ideal_step_time": 1.0}
        cast.run(found, name, values, **same)
    told(cast.run(found, "checkpoint", reason=at_op(3, "gelu"), **lost), missing_bytes=2.0 * GIB)
    told(cast.run(found, "first_touch", reason="first_touch: needs a node with remote", **lost))
    return found


def at_op(op: int, name: str) -> str:
    return f"op {op} ({name}, forward): 5 more bytes do not fit: 7 bytes are missing of 9; and more"


def answer(experiment: Experiment) -> Answer | None:
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    return answer_of(compare(runs, Choice()), experiment.project, simulator_errors())


def text(markup: str) -> str:
    return re.sub(r"<[^>]*>", "", markup).replace("\u00a0", " ")


def headline(experiment: Experiment) -> str:
    found = answer(experiment)
    assert found is not None
    return text(found.headline)


def sentences(experiment: Experiment) -> str:
    found = answer(experiment)
    assert found is not None
    return " ".join(map(text, found.sentences))


def test_memory_names_the_fastest_that_fits_the_runner_up_and_why_the_others_fell_out(ada: Place) -> None:
    """61 GiB do not fit in 40. The surprise: the smallest product is 20 x 1.2, neither the least nor the
    fastest.
    """
    made = memory_runs(ada, 61.0 * GIB)
    assert headline(made) == (
        "gpt2 trains on a100-40g with swap_all: 30 GiB and 1.1 s a step, 1.1 times the time with endless "
        "memory. capuchin takes 9.09 % longer and needs 10 GiB less."
    )
    why = sentences(made)
    assert "As it is the step needs 61 GiB and ✗ does not fit. 3 of 6 policies fit, 3 of them on" in why
    assert "swapadvisor needs least: 10 GiB and 9 s. capuchin has the smallest product" in why
    assert "The other 3 fell out: memory runs out at gelu, forward (2); needs a node" in why


def test_where_the_step_fits_as_it_is_nothing_is_faster(ada: Place) -> None:
    assert headline(memory_runs(ada, 39.0 * GIB)).startswith(
        "gpt2 fits a100-40g as it is: 39 GiB and 1 s a step, as fast as with endless memory. swap_all"
    )


def test_where_nothing_fits_the_nearest_is_named_with_what_it_lacks(ada: Place) -> None:
    """1 GiB is missing as it is, 2 with checkpoint; of first_touch nothing is known."""
    made = memory_runs(ada, 61.0 * GIB)
    made.runs.filter(policy__in=("swap_all", "capuchin", "swapadvisor")).delete()
    assert headline(made) == "None of 3 policies fits gpt2 on a100-40g. baseline lacks least, 1 GiB."


def test_what_ended_without_an_answer_is_not_counted_as_too_large(ada: Place) -> None:
    made = memory_runs(ada, 61.0 * GIB)
    made.runs.filter(policy__in=("swap_all", "capuchin")).update(state="cancelled")
    made.runs.filter(policy="swapadvisor").delete()
    for run in made.runs.filter(state="cancelled"):
        run.metrics.all().delete()
    assert headline(made).startswith("None of the 3 policies with an answer (of 5) fits gpt2 on a100-40g.")
    made.runs.update(state="failed", outcome_status="")
    assert headline(made) == "None of 5 policies gave an answer."


def test_nobody_wins_while_a_run_is_on_its_way_that_could_change_it(ada: Place) -> None:
    made = memory_runs(ada, 61.0 * GIB)
    slow = cast.run(made, "dtr", artifact=made.runs.first().artifact, hardware="a100-40g", state="running")
    assert headline(made) == "6 of 7 so far: 3 with an answer, 3 do not fit."
    assert sentences(made).startswith(
        "As it is the step needs 61 GiB and ✗ does not fit. All of it is simulated"
    )
    slow.state = "failed"
    slow.save()
    assert headline(made).startswith("gpt2 trains on a100-40g with swap_all")


def test_two_devices_are_two_questions_and_get_no_answer(ada: Place) -> None:
    made = memory_runs(ada, 39.0 * GIB)
    cast.run(made, "swap_all", {"peak_memory": 1.0}, hardware="t4-16g")
    assert answer(made) is None


def test_what_is_missing_is_a_bar_and_the_ways_out_are_named(ada: Place) -> None:
    """1 and 2 GiB are missing of 40; of a policy that needs another machine nothing is known."""
    made = memory_runs(ada, 61.0 * GIB)
    found = answer(made)
    assert found is not None
    fallen = fallen_of(found, made)
    assert fallen is not None
    assert [(bar.entry.name, bar.missing, bar.width) for bar in fallen.bars] == [
        ("baseline", 1.0 * GIB, "50.00"),
        ("checkpoint", 2.0 * GIB, "100.00"),
    ]
    assert [len(cause.entries) for cause in fallen.causes] == [2, 1]
    assert [text(way) for way in fallen.ways_out][:2] == [
        "swap_all fits here",
        "devices of 41 GiB (for baseline) to 42 GiB (for checkpoint)",
    ]


def test_a_parallel_plan_with_late_gradients_does_not_win_alone(ada: Place) -> None:
    made = cast.experiment(ada.project)
    same = {"family": "parallel", "hardware": {"cluster": {"nodes": 8, "node": "dgx-h100"}}}
    figures = {"peak_memory_per_device": 70.0 * GIB, "mfu": 0.5}
    rows = (("pipemare", 1.0, 2.5), ("fsdp", 1.2, 0.0), ("gpipe", 1.5, 0.0))
    for name, seconds, late in rows:
        values = {**figures, "step_time": seconds, "samples_per_second": 6 / seconds, "staleness_mean": late}
        cast.run(made, name, values, **same)
    lost = {"state": "infeasible", "outcome_status": "infeasible", **same}
    cast.run(made, "data_parallel", reason="needs 9 of 8; every device has all model states", **lost)
    said = headline(made)
    assert "trains fastest on" in said
    assert "with pipemare: 1 s a step, 50 % of peak FLOP/s, 70 GiB on the fullest device" in said
    assert "gradients 2.5 updates late on average. Of those without delay fsdp leads with 1.2 s." in said
    assert "fell out: every device has all model states (1)" in sentences(made)


def test_a_speed_up_whose_interval_holds_1_is_no_difference_seen(ada: Place) -> None:
    """The surprise: 1.5 with an interval from 0.9 loses to 1.2 with one from 1.1."""
    made = cast.experiment(ada.project)
    rows = (
        ("cse", 1.5, 0.9, 2.1),
        ("torch_compile", 1.2, 1.1, 1.3),
        ("onnxruntime", 1.15, 1.05, 1.25),
        ("dce", 0.8, 0.7, 0.9),
    )
    for name, ratio, low, high in rows:
        values = {
            "speedup": ratio,
            "speedup_low": low,
            "speedup_high": high,
            "compile_time": 2.0,
            "break_even": 40.0,
        }
        cast.run(made, name, values, family="compilation", mode="measured", hardware="local")
    assert headline(made) == (
        "torch_compile runs zoo:gpt2 1.2 times as fast as eager (1.10 to 1.30). Compiling takes 2 s, "
        "paid back after 40 calls. onnxruntime follows with 1.15 times (1.05 to 1.25); their intervals "
        "overlap."
    )
    assert sentences(made) == "No difference seen between eager and cse. Slower than eager: dce."


def test_a_scheduler_that_must_know_how_long_jobs_run_is_not_everybodys(ada: Place) -> None:
    """Demand stands next to the cluster that was asked, 16 GPUs; knowledge is a column of the table."""
    made = cast.experiment(ada.project)
    trace = cast.ready(ada.project, kind="jobs", name="jobs.csv", summary={"demand": DEMAND})
    hardware = {"cluster": {"nodes": 4, "devices_per_node": 4, "device": "t4-16g"}}
    for name, hours, left in (("srtf", 1.0, 0.0), ("las", 2.0, 0.0), ("fifo", 4.0, 0.0), ("sjf", 0.5, 3.0)):
        values = {"avg_jct": 3600 * hours, "unfinished_jobs": left, "makespan": 36000 + 3600 * hours}
        cast.run(made, name, values, family="cluster", artifact=trace, hardware=hardware)
    said = headline(made)
    assert said.startswith(
        "srtf finishes the average job in 1 h, 4 times sooner than fifo. las takes 2 times as long."
    )
    assert said.endswith("srtf must know how long jobs run. Of those that need not, las leads with 2 h.")
    why = sentences(made)
    assert "2 jobs over 1 h ask for 20 GPU-hours: 1.25 times what 16 GPUs can give in that time" in why
    assert "Some jobs never finish with sjf." in why
    runs = list(comparable(made.project).filter(experiment=made))
    comparison = compare(runs, Choice())
    assert [column.label for column in comparison.parameters] == ["must know"]
    known = {line.entry.name: line.parameters[0].shown_text for line in comparison.lines}
    told = "how long jobs run"
    assert known == {"srtf": told, "las": "nothing", "fifo": "nothing", "sjf": told}


@pytest.mark.parametrize(
    ("ends", "said"),
    [((100.0, 150.0), "after 1.67 min to 2.5 min, 50 % apart."), ((1e6, 1e6 + 1), "with every one of them.")],
)
def test_ends_of_the_last_job_are_told_as_far_as_they_differ(
    ada: Place, ends: tuple[float, float], said: str
) -> None:
    made = cast.experiment(ada.project)
    for name, end in zip(("srtf", "las"), ends, strict=True):
        cast.run(made, name, {"avg_jct": end / 2, "makespan": end}, family="cluster")
    assert said in sentences(made)


def test_serving_is_told_by_the_rate_that_is_kept(ada: Place) -> None:
    """At 4 a second nobody keeps it; at one rate the mean latency ranks."""
    made = cast.experiment(ada.project)
    shares = {"orca": (1.0, 0.95, 0.4), "static_batching": (0.2, 0.1, 0.0)}
    for name, kept in shares.items():
        for rate, share in zip((1.0, 2.0, 4.0), kept, strict=True):
            values = {"slo_attainment": share, "latency_mean": 1 / share if share else 99.0}
            cast.run(made, name, values, family="serving", options={"rate": rate})
    assert headline(made) == (
        "orca keeps 90 % of its requests within their objective up to 2 requests a second. "
        "static_batching at none of the rates."
    )
    made.runs.exclude(spec__workload__options__rate=1.0).delete()
    assert (
        headline(made) == "orca answers a request in 1 s on average. static_batching takes 5 times as long."
    )


def test_serving_is_told_by_the_narrowest_objective_that_is_kept(ada: Place) -> None:
    """Once one is missed, narrower ones count for nothing; the scale of a run that names none is 1."""
    made = cast.experiment(ada.project)
    shares = {"alpaserve": (0.95, 0.92, 1.0), "clockwork": (0.99, 0.5, 0.95), "nexus": (0.1, 0.2, 0.3)}
    for name, kept in shares.items():
        for options, share in zip(({"slo_scale": 0.5}, {}, {"slo_scale": 4.0}), kept, strict=True):
            values = {"slo_attainment": share, "latency_mean": 1.0}
            cast.run(made, name, values, family="serving", options=options)
    assert headline(made) == (
        "alpaserve keeps 90 % of its requests within 0.5 times its objective. "
        "clockwork within 4, nexus at none of the scales."
    )
    made.runs.exclude(policy="nexus").delete()
    assert headline(made) == "No policy keeps 90 % of its requests within 4 times its objective."


def test_serving_is_told_by_the_highest_rate_where_it_was_searched(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for name, rate in (("orca", 17.5), ("sarathi_chunked", 25.4), ("static_batching", 0.0)):
        values = {"max_rate": rate, "slo_attainment": 0.5, "latency_mean": 1.0}
        cast.run(made, name, values, family="serving", options={"rate": 16.0})
    assert headline(made) == (
        "sarathi_chunked serves up to 25.4 requests a second within its objective. "
        "orca up to 17.5, static_batching up to 0."
    )


def test_the_page_says_it_and_follows_what_is_still_planning(client: Client, ada: Place) -> None:
    client.force_login(ada.user)
    made = memory_runs(ada, 61.0 * GIB)
    slow = cast.run(made, "dtr", artifact=made.runs.first().artifact, hardware="a100-40g", state="running")
    page = client.get(ada.url(f"compare/{made.pk}/")).content.decode()
    assert "6 of 7 so far" in page
    assert "sse-connect" in page
    slow.state = "failed"
    slow.save()
    page = client.get(ada.url(f"compare/{made.pk}/")).content.decode()
    assert "so far" not in page
    assert "sse-connect" not in page
    assert "3 do not fit, 1 gave no answer" in page


def test_many_policies_once_each_hide_their_knobs_until_asked(ada: Place) -> None:
    """The surprise: two policies that happen to call a knob ``ahead`` do not differ by it."""
    experiment = cast.experiment(ada.project)
    gpt2 = cast.ready(ada.project)
    for ahead, name in enumerate("abcdefgh"):
        cast.run(experiment, name, {"step_time": 1.0}, artifact=gpt2, knobs={"ahead": ahead})
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    assert [column.key for column in compare(runs, Choice()).parameters] == []
    asked = compare(runs, Choice(columns=("knob.ahead", "metric.step_time")))
    assert [column.key for column in asked.parameters] == ["knob.ahead"]


def test_schedulers_at_several_rates_are_told_by_who_leads_where(ada: Place) -> None:
    """fifo leads while there are few jobs. Of one that leads everywhere both ends are told."""
    made = cast.experiment(ada.project)
    hours = {("fifo", 0.001): 1.0, ("fifo", 0.01): 40.0, ("las", 0.001): 2.0, ("las", 0.01): 4.0}
    trace = cast.ready(ada.project, kind="jobs", name="jobs.csv", summary={"demand": DEMAND})
    for (name, rate), jct in hours.items():
        values = {"avg_jct": 3600 * jct}
        cast.run(made, name, values, family="cluster", artifact=trace, options={"rate": rate})
    assert headline(made) == (
        "fifo finishes the average job soonest, in 1 h at 0.001 jobs a second; las does, in 4 h at 0.01 jobs "
        "a second."
    )
    assert "GPU-hours" not in sentences(made)  # the trace's own demand is another
    assert "within their intervals" not in sentences(made)
    for name, jct in (("fifo", 1.9), ("las", 1.0)):
        cast.run(
            made,
            name,
            {"avg_jct": 3600 * jct},
            family="cluster",
            artifact=trace,
            options={"rate": 0.001},
            seed=1,
        )
    assert "At 1 of 2 rates the first two are within their intervals." in sentences(made)
    made.runs.filter(policy="fifo").delete()
    same = cast.experiment(ada.project)
    for name, jct in (("srtf", 1.0), ("las", 2.0)):
        for rate in (0.001, 0.01):
            values = {"avg_jct": 3600 * jct * (1 + 100 * rate)}
            cast.run(same, name, values, family="cluster", artifact=trace, options={"rate": rate})
    assert headline(same) == (
        "srtf finishes the average job soonest at every rate: in 1.1 h at 0.001 jobs a second and "
        "2 h at 0.01 jobs a second."
    )


def compare_repeats(ada: Place, **times: list[float]) -> str:
    """Runs of as many seeds as there are times for each policy: what is said of them."""
    found, gpt2 = cast.experiment(ada.project), cast.ready(ada.project)
    for policy, seconds in times.items():
        for seed, one in enumerate(seconds):
            values = {"step_time": one, "peak_memory": 1.0 * GIB}
            cast.run(found, policy, values, artifact=gpt2, hardware="a100-40g", seed=seed)
    made = answer(found)
    assert made is not None
    return text(" ".join(made.sentences))


def test_a_mean_that_is_lower_by_chance_is_said_to_be_no_difference(ada: Place) -> None:
    """Of the pairs of capuchin's and dtr's times half are the other way; swap_all's are all longer."""
    said = compare_repeats(
        ada, capuchin=[1.0, 4.0, 5.0, 7.9], dtr=[2.0, 3.0, 6.0, 7.0], swap_all=[9.0, 9.5, 9.6, 9.7]
    )
    assert "Repeats do not tell dtr from capuchin by step time" in said and "tell swap_all" not in said


def test_three_repeats_tell_nothing_either_way(ada: Place) -> None:
    assert "Repeats" not in compare_repeats(ada, capuchin=[1.0, 4.0, 5.0], dtr=[2.0, 3.0, 6.0])
