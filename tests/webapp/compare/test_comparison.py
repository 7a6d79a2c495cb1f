"""The comparison page: what folds, what differs, what is better, and what leaves as a file."""

import csv
import io
import json
import re

import pytest
from django.test import Client

from tests.webapp import cast
from tests.webapp.cast import Place
from webapp.compare.choice import Choice
from webapp.compare.comparison import compare
from webapp.compare.figures.coordinates import coordinates
from webapp.compare.filters import comparable
from webapp.compare.plots import bars, scatter
from webapp.compare.statistics import estimate, with_ends
from webapp.hosts import evidence
from webapp.runs.models import Experiment, Run, RunDocument

pytestmark = pytest.mark.django_db
GIB = 2**30


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


@pytest.fixture
def client(client: Client, ada: Place) -> Client:
    client.force_login(ada.user)
    return client


@pytest.fixture
def memory(ada: Place) -> Experiment:
    """A baseline, vDNN with three seeds, one that does not fit and one that crashed."""
    made = cast.experiment(ada.project)
    gpt2 = cast.ready(ada.project)
    cast.run(made, "baseline", {"peak_memory": 60 * GIB, "step_time": 1.0, "mfu": 0.4}, artifact=gpt2)
    for seed, seconds in enumerate((1.4, 1.5, 1.6)):
        figures = {"peak_memory": 30 * GIB, "step_time": seconds, "mfu": 0.3}
        cast.run(made, "vdnn-all", figures, seed=seed, knobs={"lookahead": 1}, artifact=gpt2)
    reason = "op 7 needs 3 GiB more"
    cast.run(made, "checkpoint", outcome_status="infeasible", reason=reason, artifact=gpt2)
    cast.run(made, "swap-all", state="failed", outcome_status="", reason="SIGSEGV in op 3", artifact=gpt2)
    return made


def runs_of(experiment: Experiment) -> list[Run]:
    return list(comparable(experiment.project).filter(experiment=experiment))


def test_seeds_fold_into_one_line_with_mean_and_interval(memory: Experiment) -> None:
    found = compare(runs_of(memory), Choice())
    assert [entry.name for entry in found.entries] == ["baseline", "vdnn-all", "checkpoint", "swap-all"]
    vdnn = found.entries[1].estimates["step_time"]
    assert (vdnn.n, vdnn.mean) == (3, 1.5)
    assert vdnn.half_width == pytest.approx(0.248414, abs=1e-6)


def test_unfolded_every_seed_has_its_line(memory: Experiment) -> None:
    found = compare(runs_of(memory), Choice(unfold=True))
    assert [entry.parameters["seed"] for entry in found.entries] == [0, 0, 1, 2, 0, 0]


def test_what_is_equal_everywhere_is_said_once(memory: Experiment) -> None:
    found = compare(runs_of(memory), Choice())
    assert ("hardware", "a100-40g") in found.constants
    assert [column.key for column in found.parameters] == []


def test_a_knob_of_one_policy_is_not_the_same_in_all_and_no_difference_either(memory: Experiment) -> None:
    found = compare(runs_of(memory), Choice())
    assert "lookahead" not in dict(found.constants)
    assert "knob.lookahead" in {column.key for column in found.columns}
    shown = compare(runs_of(memory), Choice(columns=("knob.lookahead",)))
    assert [line.parameters[0].shown_text for line in shown.lines][:2] == ["–", "1"]


def test_model_states_stand_with_what_is_equal_and_as_a_column_where_they_differ(ada: Place) -> None:
    made = cast.experiment(ada.project)
    mixed, pure = "2 weights = 16 bytes a parameter (bf16-mixed)", "2 weights = 8 bytes (bf16-pure)"
    for policy in ("baseline", "vdnn-all"):
        cast.run(made, policy, model_states=mixed)
    cast.run(made, "checkpoint", outcome_status="infeasible")
    found = compare(runs_of(made), Choice())
    assert ("model states", mixed) in found.constants
    assert [column.key for column in found.parameters] == []
    cast.run(made, "swap-all", model_states=pure)
    found = compare(runs_of(made), Choice())
    assert [column.key for column in found.parameters] == ["model_states"]


def test_an_option_that_only_some_runs_set_is_a_difference(ada: Place) -> None:
    made = cast.experiment(ada.project)
    cast.run(made, options={"batch": 8})
    cast.run(made)
    found = compare(runs_of(made), Choice())
    assert [column.key for column in found.parameters] == ["option.batch"]


def test_per_cent_against_the_pinned_baseline_follow_the_metrics_direction(memory: Experiment) -> None:
    base = memory.runs.get(policy="baseline")
    line = compare(runs_of(memory), Choice(), str(base.pk)).lines[1]
    changes = {cell.metric: (cell.change, cell.better) for cell in line.cells}
    assert changes["peak_memory"] == (-0.5, True)
    assert changes["step_time"] == (0.5, False)
    assert changes["mfu"] == (pytest.approx(-0.25), False)


def test_runs_without_the_figure_come_last_in_either_direction(memory: Experiment) -> None:
    for descending, first in ((False, "vdnn-all"), (True, "baseline")):
        choice = Choice(sort="metric.peak_memory", descending=descending)
        names = [entry.name for entry in compare(runs_of(memory), choice).entries]
        assert names[0] == first
        assert names[2:] == ["checkpoint", "swap-all"]


def test_two_workloads_have_fronts_of_their_own(ada: Place) -> None:
    """A small model is no better policy than a large one: swap on the large stays on the front of its
    workload.
    """
    made = cast.experiment(ada.project, "two models")
    for batch, scale in ((8, 1.0), (64, 10.0)):
        cast.run(made, "baseline", {"step_time": scale, "peak_memory": 9 * scale}, options={"batch": batch})
        cast.run(made, "swap", {"step_time": 2 * scale, "peak_memory": scale}, options={"batch": batch})
    found = scatter(compare(runs_of(made), Choice()), Choice(), ada.project, evidence.simulator_errors())
    assert found is not None
    fronts = {front.question: [entry.name for entry in front.entries] for front in found.fronts}
    assert fronts == {"batch 8": ["baseline", "swap"], "batch 64": ["baseline", "swap"]}


def test_measured_and_simulated_have_fronts_of_their_own(ada: Place) -> None:
    made = cast.experiment(ada.project)
    cast.run(made, "baseline", {"peak_memory": 9.0, "step_time": 1.0})
    cast.run(made, "vdnn-all", {"peak_memory": 8.0, "step_time": 0.5})
    cast.run(made, "baseline", {"peak_memory": 20.0, "step_time": 2.0}, mode="measured", hardware="local")
    found = scatter(compare(runs_of(made), Choice()), Choice(), ada.project, evidence.simulator_errors())
    assert found is not None
    fronts = {front.mode: [entry.name for entry in front.entries] for front in found.fronts}
    assert fronts == {"simulated": ["vdnn-all"], "measured": ["baseline"]}


def test_parallel_coordinates_draw_only_lines_that_have_every_figure(memory: Experiment) -> None:
    """The surprise: an axis has the units of its figure, from the lowest to the highest."""
    found = coordinates(compare(runs_of(memory), Choice(unfold=True)), memory.project)
    assert found is not None
    first, second = found["lines"][:2]
    assert len(found["lines"]) == 4
    axes = [(axis["label"], axis["better"]) for axis in found["axes"]]
    assert axes == [("peak memory", "↓"), ("step time", "↓"), ("model FLOPs utilization", "↑")]
    ticks = found["axes"][0]["ticks"]
    assert (ticks[0], ticks[-1]) == ([0.0, "30 GiB"], [1.0, "60 GiB"])
    assert [1 / 3, "40 GiB"] in [[pytest.approx(place), text] for place, text in ticks]
    assert (first["name"], first["places"]) == ("baseline, simulated", [1.0, 0.0, 1.0])
    assert (second["places"][0], second["texts"][0]) == (0.0, "30 GiB")
    assert second["places"][1] == pytest.approx(0.4 / 0.6)
    assert coordinates(compare(runs_of(memory), Choice()), memory.project) is None


def test_the_page_says_why_a_run_has_no_figures(client: Client, ada: Place, memory: Experiment) -> None:
    """Below the table, grouped by reason; the table of a part has them as lines."""
    page = client.get(ada.url(f"compare/{memory.pk}/")).content.decode()
    fallen = page.split('id="fallen"')[1]
    assert "op 7 needs 3 GiB more" in fallen
    assert "SIGSEGV in op 3" in fallen
    assert "1 does not fit, 1 gave no answer" in fallen
    assert 'class="badge state-infeasible"' not in page
    assert "[invalid name]" not in page and ">How it ended</label>" in page
    part = client.get(ada.url(f"compare/{memory.pk}/?status=infeasible")).content.decode()
    assert part.count('class="badge state-infeasible"') == 1
    assert 'id="answer"' not in part


def test_every_row_says_its_mode_where_modes_are_mixed(
    client: Client, ada: Place, memory: Experiment
) -> None:
    url = ada.url(f"compare/{memory.pk}/")
    assert client.get(url).content.decode().count("badge mode-simulated") == 1  # what was run
    cast.run(memory, "baseline", {"step_time": 2.0}, mode="measured", hardware="local")
    rows = client.get(url).content.decode().split("<tbody>")[1].split("</tbody>")[0]
    assert (rows.count("badge mode-simulated"), rows.count("badge mode-measured")) == (4, 1)


def test_filters_and_columns_are_in_the_address(client: Client, ada: Place, memory: Experiment) -> None:
    address = ada.url(f"compare/{memory.pk}/?status=ok&column=metric.mfu&export=csv")
    rows = list(csv.reader(io.StringIO(client.get(address).content.decode())))
    assert rows[0] == ["run", "mode", "status", "n", "model FLOPs utilization (fraction)",
                       "± model FLOPs utilization (fraction)", "workload", "family", "hardware",
                       "batch"]  # fmt: skip
    asked = ["gpt2", "memory", "a100-40g", "4"]
    assert rows[1] == ["baseline", "simulated", "ok", "1", "0.4", "", *asked]
    assert rows[2][:5] == ["vdnn-all", "simulated", "ok", "3", "0.3"]


def test_pinning_is_for_everybody_and_only_for_runs_of_the_experiment(
    client: Client, ada: Place, memory: Experiment
) -> None:
    base = memory.runs.get(policy="baseline")
    url = ada.url(f"compare/{memory.pk}/pin")
    assert client.post(url, {"run": base.pk}).status_code == 302
    memory.refresh_from_db()
    assert memory.pinned == base
    other = cast.run(cast.experiment(ada.project, "another"))
    assert client.post(url, {"run": other.pk}).status_code == 404
    client.post(url)
    memory.refresh_from_db()
    assert memory.pinned is None


def test_any_runs_of_the_project_can_be_compared_but_nobody_elses(
    client: Client, ada: Place, memory: Experiment
) -> None:
    bob = cast.place("bob")
    theirs = cast.run(cast.experiment(bob.project), "poison", {"step_time": 666.0})
    mine = memory.runs.get(policy="baseline")
    page = client.get(ada.url(f"compare/?run={mine.pk},{theirs.pk}&run=nonsense")).content.decode()
    assert "1 line" in page
    assert "poison" not in page
    assert client.get(bob.url(f"compare/{theirs.experiment_id}/")).status_code == 404


def test_a_hostile_name_stays_text(client: Client, ada: Place) -> None:
    name = "</script><script>alert(1)</script>"
    made = cast.experiment(ada.project, name)
    for ending in ("a", "b"):
        cast.run(made, "same", {"step_time": 1.0, "peak_memory": 2.0}, options={"model": name + ending})
    page = client.get(ada.url(f"compare/{made.pk}/")).content.decode()
    assert "<script>alert" not in page
    data = re.search(r'<script id="figure-plot-data" type="application/json">(.*?)</script>', page)
    assert data is not None
    assert name in json.loads(data.group(1))["series"][0]["name"]


@pytest.mark.parametrize(
    "query",
    ["page=x", "sort=-", "sort=metric.nope", "column=nope", "x=nope&y=", "baseline=x", "q=%01", "status=x",
     "run=%ff", "unfold=2", "bar=<b>", "policy=%01"],
)  # fmt: skip
def test_no_address_breaks_the_page(client: Client, ada: Place, memory: Experiment, query: str) -> None:
    assert client.get(ada.url(f"compare/{memory.pk}/?{query}")).status_code == 200
    assert client.get(ada.url(f"compare/?{query}")).status_code == 200


def test_an_unknown_export_is_not_found(client: Client, ada: Place, memory: Experiment) -> None:
    assert client.get(ada.url(f"compare/{memory.pk}/?export=xlsx")).status_code == 404


def test_bars_are_named_by_as_little_as_tells_them_apart(ada: Place) -> None:
    """Batch and learning rate differ too, but the model says which line it is; the policy alone where it is
    used once.
    """
    made = cast.experiment(ada.project)
    for model, batch in (("gpt2", 4), ("mlp", 64)):
        artifact = cast.ready(ada.project, name=model)
        for policy in ("baseline", "swap-all"):
            cast.run(made, policy, {"step_time": 1.0}, artifact=artifact, options={"batch": batch})
    cast.run(made, "checkpoint", {"step_time": 2.0}, artifact=artifact, options={"batch": 64})
    found = bars(compare(runs_of(made), Choice()), Choice(), ada.project)
    assert found is not None
    named = {name for series in found["series"] for name in series["x"]}
    assert named == {"baseline, gpt2", "baseline, mlp", "swap-all, gpt2", "swap-all, mlp", "checkpoint"}


@pytest.fixture
def compiled(ada: Place) -> Experiment:
    """Faster for sure, perhaps faster, and one from before speed-ups had intervals."""
    made = cast.experiment(ada.project, "compiled")
    for policy, low, middle, high in (("torch_compile", 1.4, 1.5, 1.6), ("cse", 0.97, 1.03, 1.09)):
        figures = {"latency": 0.01, "speedup": middle, "speedup_low": low, "speedup_high": high}
        same = {"family": "compilation", "mode": "measured"}
        cast.run(made, policy, figures, dashboard_status="pass", **same)
    cast.run(made, "dce", {"latency": 0.01, "speedup": 1.02}, family="compilation", mode="measured")
    return made


def test_a_speed_up_that_was_inside_the_noise_before_there_were_intervals_stays_words(
    compiled: Experiment,
) -> None:
    old = compiled.runs.get(policy="dce")
    RunDocument.objects.update_or_create(
        run=old, defaults={"outcome": {"provenance": {"compilation": {"inside_the_noise": True}}}}
    )
    said = {entry.name: entry.estimates["speedup"] for entry in compare(runs_of(compiled), Choice()).entries}
    assert said["dce"].words == "no difference seen" and "quartiles" in said["dce"].why
    assert said["torch_compile"].words == ""


def test_a_speed_up_whose_interval_holds_1_is_words_on_the_page_and_in_the_file(
    client: Client, ada: Place, compiled: Experiment
) -> None:
    found = compare(runs_of(compiled), Choice(baseline=str(runs_of(compiled)[0].pk)))
    speedups = [entry.estimates["speedup"] for entry in found.entries]
    assert [one.words for one in speedups] == ["", "no difference seen", ""]
    assert [one.value for one in speedups] == [1.5, 1.0, 1.02]
    assert "speedup_low" not in found.metric_names, "the ends are part of the figure"
    changes = [cell.change for line in found.lines for cell in line.cells if cell.metric == "speedup"]
    assert changes == [None, None, pytest.approx(-0.32)], "what nobody saw has no change"
    page = client.get(ada.url(f"compare/{compiled.pk}/")).content.decode()
    assert "no difference seen" in page and "1.03" not in page and "1.40 to 1.60" in page
    text = client.get(ada.url(f"compare/{compiled.pk}/?export=csv")).content.decode()
    rows = {row["run"]: row for row in csv.DictReader(io.StringIO(text))}
    assert rows["cse"]["speed-up over eager (ratio)"] == "no difference seen"
    assert rows["cse"]["speed-up over eager low (ratio)"] == "0.97"
    assert [rows[name]["PyTorch's status"] for name in ("cse", "dce")] == ["pass", ""]


def test_repeats_of_a_speed_up_are_as_wide_as_the_repeats_and_as_each_of_them() -> None:
    """Student's 95 % interval of 1.4, 1.5 and 1.6 is 1.25 to 1.75; that of each reaches further."""
    found = estimate([1.4, 1.5, 1.6])
    wide = with_ends(found, [0.9, 1.0, 1.1], [1.5, 1.6, 1.7])
    assert (wide.low, wide.high) == (1.0, pytest.approx(1.748, abs=1e-3)) and wide.is_unseen
    assert with_ends(found, [0.9, 1.0], [1.5, 1.6]).low is None, "one of them has no interval"
