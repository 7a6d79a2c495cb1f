"""The one large figure of each family: where marks stand, what adds up, what is said of it."""

from __future__ import annotations

import pytest

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.answer import answer_of
from webapp.compare.answers.case import Case
from webapp.compare.answers.serving import find_sustained
from webapp.compare.choice import Choice
from webapp.compare.comparison import compare
from webapp.compare.figures import chosen, servers
from webapp.compare.figures.chosen import draw_chosen
from webapp.compare.figures.curves import distribution, duration_ticks
from webapp.compare.figures.front import front
from webapp.compare.figures.parts import parts
from webapp.compare.figures.ratios import ratios
from webapp.compare.figures.scale import broken_scale, round_numbers
from webapp.compare.figures.schedulers import by_fairness, by_load, by_size, by_utilization
from webapp.compare.filters import comparable
from webapp.hosts.evidence import simulator_errors
from webapp.runs.models import Experiment, Run, RunDocument

pytestmark = pytest.mark.django_db
GIB = 2**30


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


def case(experiment: Experiment) -> Case:
    runs = list(comparable(experiment.project).filter(experiment=experiment))
    found = answer_of(compare(runs, Choice()), experiment.project, simulator_errors())
    assert found is not None
    return found.case


@pytest.fixture
def memory(ada: Place) -> Experiment:
    """On 40 GiB: 20 and 40 GiB fit; 60 by the least device, 44 by what was missing, one says nothing."""
    made = cast.experiment(ada.project)
    model = cast.ready(ada.project)
    same = {"artifact": model, "hardware": "a100-40g"}
    for name, gib, seconds in (("swap_all", 20, 2.0), ("capuchin", 40, 1.0)):
        values = {"peak_memory": gib * GIB, "step_time": seconds, "ideal_step_time": 0.5}
        cast.run(made, name, values, **same)
    lost = {"state": "infeasible", "outcome_status": "infeasible", **same}
    told = {
        "checkpoint": {"missing_bytes": GIB, "least_device": {"memory": 60.0 * GIB, "step_time": 0.8}},
        "dtr": {"missing_bytes": 4.0 * GIB},
        "zero_offload": {},
    }
    for name, provenance in told.items():
        run = cast.run(made, name, reason="op 1 (mm, forward): no", **lost)
        RunDocument.objects.create(run=run, outcome={"provenance": provenance})
    return made


def test_what_does_not_fit_stands_beyond_the_capacity_at_the_memory_it_needs(memory: Experiment) -> None:
    """The surprise: a cross whose time is unknown lies on the lower edge, and no need is no cross."""
    found = front(case(memory))
    assert found is not None
    marks = [s for s in found["series"] if "of_group" in s]
    assert [text for s in marks for text in s["hover"]] == [
        "checkpoint, recompute<br>does not fit: needs 60 GiB, 800 ms",
        "dtr, recompute<br>does not fit: needs 44 GiB, time unknown",
    ]
    points = [(x, y, text) for s in marks for x, y, text in zip(s["x"], s["y"], s["hover"], strict=True)]
    line, bottom = found["limit"]["x"], found["y_range"][0] / 0.94  # a little free space below
    assert all(x > line for x, _, _ in points)
    assert {text.split(",")[0]: y for _, y, text in points} == {
        "checkpoint": 0.8,
        "dtr": pytest.approx(bottom),
    }
    legend = [s["name"] for s in found["series"] if s.get("group")]
    assert legend == [
        *("offload 1 of 2", "recompute 0 of 2", "offload and recompute 1 of 1"),
        "does not fit, in the color of its mechanism",
    ]
    assert found["limit"]["text"] == "a100-40g: 40 GiB"
    assert found["limit"]["beyond"] == "2 beyond it: memory they need"
    looks = {
        s["group"]: (s["color"], s["symbol"])
        for s in found["series"]
        if s.get("group") != "crosses" and s.get("group")
    }
    assert looks["offload"] == ("plot-1", "circle")
    assert looks["recompute"] == ("plot-2", "square")
    assert looks["offload and recompute"] == ("plot-3", "diamond")


def test_an_axis_of_times_of_which_none_is_known_has_no_numbers(memory: Experiment) -> None:
    drawn = front(case(memory))
    assert drawn is not None and "y_ticks" not in drawn
    memory.runs.filter(policy__in=("swap_all", "capuchin", "checkpoint")).delete()
    drawn = front(case(memory))
    assert drawn is not None
    assert (drawn["y_ticks"]["values"], drawn["y_label"]) == ([], "step time: of none known")


def test_the_scale_changes_at_the_capacity_and_keeps_the_order() -> None:
    scale = broken_scale([20.0 * GIB, 38.0 * GIB], [44.0 * GIB, 400.0 * GIB], 40.0 * GIB)
    sizes = [20, 38, 40, 44, 400]
    places = [scale.place(gib * GIB) for gib in sizes]
    assert places == sorted(places)
    assert 0 <= places[0] and places[2] == scale.line and places[-1] < 1
    assert round_numbers(0, 40 * GIB, 5) == [0, 10 * GIB, 20 * GIB, 30 * GIB, 40 * GIB]


def test_the_parts_of_a_parallel_step_add_up_to_it(ada: Place) -> None:
    """Of 2 s a quarter is bubble and 0.3 s exposed; at peak the model takes 0.8 s and recomputing 0.1 s.

    The surprise: the optimizer, which none of them tells apart, is no part.
    """
    made = cast.experiment(ada.project)
    same = {"mfu": 0.4, "hfu": 0.45, "bubble_fraction": 0.25, "exposed_communication_time": 0.3}
    for name, seconds in (("gpipe", 2.0), ("fsdp", 4.0)):
        values = {"step_time": seconds, "samples_per_second": 8 / seconds, **same}
        cast.run(made, name, values, family="parallel")
    found = parts(case(made))
    assert found is not None
    assert found["lanes"] == ["gpipe", "fsdp"]
    of_gpipe = {series["name"]: series["x"][0] for series in found["series"]}
    assert of_gpipe == pytest.approx(
        {
            "ideal": 0.8,
            "kernels below peak": 0.3,
            "exposed communication": 0.3,
            "bubble": 0.5,
            "recompute": 0.1,
        }
    )
    assert [sum(s["x"][i] for s in found["series"]) for i in range(2)] == pytest.approx([2.0, 4.0])


def test_a_speed_up_that_nobody_saw_is_drawn_at_1_with_its_interval(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for name, ratio, low, high in (("cse", 1.1, 0.9, 1.3), ("torch_compile", 2.0, 1.8, 2.2)):
        values = {"speedup": ratio, "speedup_low": low, "speedup_high": high}
        cast.run(made, name, values, family="compilation", mode="measured", hardware="local")
    found = ratios(case(made))
    assert found is not None
    faster, unseen = found["series"]
    assert (faster["name"], faster["x"], faster["low"], faster["high"]) == ("faster", [2.0], [1.8], [2.2])
    assert (unseen["name"], unseen["x"], unseen["low"]) == ("no difference seen", [1.0], [0.9])


def test_completion_times_lie_over_one_another_with_ticks_in_durations(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for name, hours in (("fifo", 4.0), ("srtf", 1.0)):
        run = cast.run(made, name, {"avg_jct": 3600 * hours}, family="cluster")
        curve = {"x": [0.0, 60.0, 7200 * hours], "y": [0.0, 0.5, 1.0]}
        RunDocument.objects.create(run=run, outcome={"series": {"jct_distribution": curve}})
    found = distribution(case(made))
    assert found is not None
    assert [line["name"] for line in found["series"]] == ["srtf", "fifo"]
    assert found["series"][0]["x"] == [60.0, 7200.0]  # a logarithmic axis has no 0
    assert found["series"][0]["dash"] != found["series"][1]["dash"]
    assert found["x_ticks"]["labels"] == ["1 min", "5 min", "15 min", "1 h", "6 h"]


def test_attainment_is_drawn_against_the_rate(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for rate, share in ((4.0, 0.5), (1.0, 1.0)):
        values = {"slo_attainment": share, "latency_mean": 1.0}
        cast.run(made, "orca", values, family="serving", options={"rate": rate})
    found = servers.attainment(case(made))
    assert found is not None
    line, kept = found["series"]
    assert (line["x"], line["y"], line["name"]) == ([1.0, 4.0], [1.0, 0.5], "orca")
    assert (kept["name"], kept["y"]) == ("90 % of requests", [0.9, 0.9])


def test_goodput_latency_and_tokens_of_servers(ada: Place) -> None:
    """By rate one line for each policy; first against later tokens at the highest, the front among them."""
    made = cast.experiment(ada.project)
    for rate in (2.0, 1.0):
        for name, slow in (("orca", 1.0), ("static_batching", 4.0)):
            values = {"latency_mean": slow, "goodput": rate / slow, "normalized_latency_p50": slow * rate}
            values |= {"ttft_p99": slow * rate, "tpot_p99": slow / 100}
            cast.run(made, name, values, family="serving", options={"rate": rate})
    kept, median, tokens = (draw(case(made)) for draw in (servers.goodput, servers.latency, servers.tokens))
    assert kept is not None and median is not None and tokens is not None
    assert {line["name"]: line["y"] for line in kept["series"]} == {
        "orca": [1.0, 2.0],
        "static_batching": [0.25, 0.5],
        "every one": [1.0, 2.0],
    }
    assert median["series"][1]["y"] == [4.0, 8.0] and median["log"] == "y"
    assert tokens["title"].endswith("at 2 requests a second")
    marks = {line["name"]: (line["x"], line["size"]) for line in tokens["series"]}
    assert marks == {"every iteration": ([2.0], [12]), "whole batches": ([8.0], [8])}


def test_a_policys_latency_is_drawn_against_what_it_answers(ada: Place) -> None:
    """At four a second it answers three."""
    made = cast.experiment(ada.project)
    for rate, answered, seconds in ((4.0, 3.0, 0.5), (1.0, 1.0, 0.1)):
        values = {"latency_mean": 1.0, "normalized_latency_p50": seconds, "throughput": answered}
        cast.run(made, "orca", values, family="serving", options={"rate": rate})
    found = servers.latency_by_answered(case(made))
    assert found is not None
    assert [(line["x"], line["y"]) for line in found["series"]] == [([1.0, 3.0], [0.1, 0.5])]


def test_rates_that_were_asked_at_several_scales_are_lines_of_their_own(ada: Place) -> None:
    """A rate counts as kept where its runs of every scale keep it: at 1 a second, not at 4."""
    made = cast.experiment(ada.project)
    for rate, scale, share in ((1.0, 1.0, 0.95), (4.0, 1.0, 0.5), (1.0, 3.0, 1.0), (4.0, 3.0, 0.99)):
        values = {"slo_attainment": share, "latency_mean": 1.0}
        options = {"rate": rate, "slo_scale": scale}
        cast.run(made, "alpaserve", values, family="serving", options=options)
    found = servers.attainment(case(made))
    assert found is not None
    assert {line["name"]: line["y"] for line in found["series"][:-1]} == {
        "alpaserve, 1 times its objective": [0.95, 0.5],
        "alpaserve, 3 times its objective": [1.0, 0.99],
    }
    assert find_sustained(case(made)) == {"alpaserve": 1.0}


def test_attainment_by_scale_is_of_runs_with_other_objectives(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for options, share in (({"slo_scale": 3.0}, 0.9), ({}, 0.4)):
        values = {"slo_attainment": share, "latency_mean": 1.0}
        cast.run(made, "alpaserve", values, family="serving", options=options)
    found = servers.attainment_by_scale(case(made))
    assert found is not None
    line, kept = found["series"]
    assert (line["x"], line["y"]) == ([1.0, 3.0], [0.4, 0.9])
    assert kept["x"] == [1.0, 3.0] and found["log"] == "x"


def test_attainment_by_scale_of_one_run_each_is_at_the_highest_rate(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for rate in (1.0, 2.0):
        values = {"slo_attainment": 0.5, "latency_mean": 1.0}
        run = cast.run(made, "orca", values, family="serving", options={"rate": rate})
        curve = {"x": [0.0, 0.5, 2.0 * rate], "y": [0.1, 0.5, 1.0]}
        RunDocument.objects.create(run=run, outcome={"series": {"slo_attainment_by_scale": curve}})
    found = servers.attainment_by_scale(case(made))
    assert found is not None and found["title"].endswith("at 2 requests a second")
    assert [line["x"] for line in found["series"]] == [[0.5, 4.0], [0.5, 4.0]]


def test_the_address_chooses_the_figure_and_what_cannot_be_drawn_gives_way(memory: Experiment) -> None:
    runs = list(comparable(memory.project).filter(experiment=memory))
    errors = simulator_errors()
    comparison = compare(runs, Choice())
    answer = answer_of(comparison, memory.project, errors)

    def key(figure: str) -> str:
        found = draw_chosen(comparison, answer, Choice(figure=figure), memory.project, errors)
        assert found is not None
        return found.key

    assert [key(name) for name in ("", "bars", "scatter", "nonsense")] == [
        "front",
        "bars",
        "scatter",
        "front",
    ]
    assert key("coordinates") == "front"  # two lines are too few


@pytest.fixture
def sweep(ada: Place) -> Experiment:
    """Two schedulers at two rates: fifo's jobs wait once there are many, las' hardly."""
    made = cast.experiment(ada.project)
    hours = {("fifo", 0.001): 1.0, ("fifo", 0.01): 40.0, ("las", 0.01): 4.0, ("las", 0.001): 2.0}
    for (name, rate), jct in hours.items():
        values = {
            "avg_jct": 3600 * jct,
            "makespan": 36000 * jct,
            "finish_time_fairness_p99": 8 / jct,
            "utilization": 0.5 + rate,
        }
        run = cast.run(made, name, values, family="cluster", options={"rate": rate})
        sizes = {"1_gpu": 600.0, "over_8_gpus": 1200.0}
        curves = {
            f"jct_distribution.{size}": {"x": [1.0, x * jct], "y": [0.4, 1.0]} for size, x in sizes.items()
        }
        RunDocument.objects.create(run=run, outcome={"series": curves})
    return made


def test_a_load_sweep_is_a_line_for_each_scheduler(sweep: Experiment) -> None:
    found = by_load(case(sweep))
    assert found is not None
    lines = {line["name"]: (line["x"], line["y"]) for line in found["series"]}
    assert lines == {"fifo": ([0.001, 0.01], [3600, 144000]), "las": ([0.001, 0.01], [7200, 14400])}
    assert (found["log"], found["x_ticks"]["labels"]) == ("xy", ["0.001", "0.01"])
    assert found["series"][0]["hover"] == ["fifo at 0.001/s: 1 h", "fifo at 0.01/s: 1.67 d"]


def test_sizes_utilization_and_fairness_are_told_at_the_highest_rate(sweep: Experiment) -> None:
    """The surprise: fifo ends last and is the fairest, so both are on the front."""
    found = [draw(case(sweep)) for draw in (by_size, by_utilization, by_fairness)]
    sizes, used, fair = (one for one in found if one is not None)
    assert all(one["title"].endswith(", at 0.01 jobs a second") for one in (sizes, used, fair))
    assert [line["name"] for line in sizes["series"]] == ["1 GPU", "over 8 GPUs"]
    assert (sizes["series"][0]["x"], sizes["series"][0]["y"]) == (["las", "fifo"], [2400, 24000])
    assert (set(used["lanes"]), used["series"][0]["x"]) == ({"las", "fifo"}, pytest.approx([51, 51]))
    (front_line,) = [line for line in fair["series"] if line["name"] == "Pareto front"]
    assert (front_line["x"], front_line["y"]) == ([144000, 1440000], pytest.approx([2, 0.2]))


def test_the_sweep_is_drawn_first_and_only_where_rates_differ(sweep: Experiment) -> None:
    runs = list(comparable(sweep.project).filter(experiment=sweep))
    errors = simulator_errors()

    def keys(chosen: list[Run]) -> list[str]:
        comparison = compare(chosen, Choice())
        found = draw_chosen(
            comparison, answer_of(comparison, sweep.project, errors), Choice(), sweep.project, errors
        )
        assert found is not None
        return [found.key, *(key for key, _ in found.choices)]

    assert keys(runs)[:2] == ["load", "load"]
    one = [run for run in runs if run.spec["workload"]["options"]["rate"] == 0.01]
    assert "load" not in keys(one)


def test_ticks_of_completion_times_are_hours_and_days() -> None:
    """From 11 h to 4 d: not 13.9 h, which is 50,000 s."""
    assert duration_ticks([11 * 3600, 4 * 86400.0])["labels"] == ["12 h", "1 d", "2 d", "4 d"]
    assert duration_ticks([2.0, 40.0])["labels"] == ["5 s", "10 s", "30 s"]
    assert duration_ticks([0.002, 0.009])["labels"] == ["2 ms", "5 ms"]


def test_boxes_are_by_a_parameter_whose_values_have_several_runs(ada: Place) -> None:
    """Batches in their order, and repeats count each for itself."""
    made = cast.experiment(ada.project)
    for batch, times in ((16, (4.0, 6.0)), (8, (1.0, 2.0, 3.0)), (32, (7.0,))):
        for seed, seconds in enumerate(times):
            cast.run(made, "dtr", {"step_time": seconds}, seed=seed, options={"batch": batch})
    runs = list(comparable(ada.project).filter(experiment=made))
    comparison, choice = compare(runs, Choice()), Choice(figure="boxes")
    drawn = draw_chosen(comparison, None, choice, ada.project, simulator_errors())
    assert drawn is not None and drawn.boxes is not None and drawn.key == "boxes"
    assert [box.label for box in drawn.boxes.boxes] == ["batch 8", "batch 16", "batch 32"]
    assert drawn.boxes.by == "option.batch" and drawn.boxes.keys == [("option.batch", "batch")]
    assert [box.quantiles[2] for box in drawn.boxes.boxes] == [2.0, 5.0, 7.0]
    assert [len(box.points) for box in drawn.boxes.boxes] == [3, 2, 1]


def test_where_no_value_has_several_runs_no_boxes_are_offered(memory: Experiment) -> None:
    """Two policies, each once."""
    runs = list(comparable(memory.project).filter(experiment=memory))
    comparison = compare(runs, Choice())
    drawn = draw_chosen(comparison, None, Choice(figure="boxes"), memory.project, simulator_errors())
    assert drawn is not None and drawn.boxes is None and "boxes" not in dict(drawn.choices)


def test_of_very_many_lines_boxes_come_first(ada: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cast.experiment(ada.project)
    for batch in range(1, 5):
        cast.run(made, "dtr" if batch % 2 else "vdnn", {"step_time": 1.0 * batch}, options={"batch": batch})
    runs = list(comparable(ada.project).filter(experiment=made))
    comparison = compare(runs, Choice())

    def draw() -> str:
        drawn = draw_chosen(comparison, None, Choice(), ada.project, simulator_errors())
        assert drawn is not None
        return drawn.key

    assert draw() == "bars"  # a scatter needs two figures
    monkeypatch.setattr(chosen, "MANY_LINES", 3)
    assert draw() == "boxes"


def test_of_many_parameters_the_figures_stand_before_them(ada: Place) -> None:
    made = cast.experiment(ada.project)
    for value in (1, 2):
        knobs = {f"knob_{place}": value for place in range(7)}
        cast.run(made, "dtr", {"step_time": 1.0 * value}, knobs=knobs)
    runs = list(comparable(ada.project).filter(experiment=made))
    assert compare(runs, Choice()).figures_first
    assert not compare(runs, Choice(columns=("knob.knob_1", "metric.step_time"))).figures_first
