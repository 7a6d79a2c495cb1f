"""The form of a new experiment: grids from commas, errors at their field, nothing typed lost, again with
changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.forms import ValidationError
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.completion import complete
from experiments.core.knobs import Knob, describe
from experiments.core.options import FineTuning
from experiments.core.policy import EFFORTS, MINUTES
from experiments.core.registry import family_policies, policy_class
from experiments.core.spec import load_spec
from experiments.memory.policies.baseline import Baseline
from tests.planted import planted
from tests.webapp.cast import Cast, experiment_with, ready, run_in, signed_in
from webapp.artifacts.models import Artifact
from webapp.compare.parameters import parameters_of
from webapp.hosts.services import register
from webapp.runs import lifecycle
from webapp.runs.again import everything, from_run, hardware_fields, preset
from webapp.runs.derivation import device_name
from webapp.runs.forms import MIXED_NODES, ExperimentForm
from webapp.runs.grid import Grid, combinations, expand
from webapp.runs.grid_fields import GridField, SeedsField, quantity
from webapp.runs.models import Experiment, Run
from webapp.runs.offers import try_all

SLOW = """
from dataclasses import dataclass
from typing import ClassVar
from experiments.core.policy import MINUTES
from experiments.memory.interface import DeviceView, MemoryPlan, MemoryPolicy
from experiments.workloads.step import Step

@dataclass(frozen=True)
class Planted(MemoryPolicy):
    name: ClassVar[str] = "planted"
    effort: ClassVar[str] = MINUTES

    def plan(self, step: Step, device: DeviceView) -> MemoryPlan:
        return MemoryPlan()
"""


def test_of_all_policies_the_baseline_is_asked_first_and_the_searches_last(tmp_path: Path) -> None:
    """A policy that says of itself that it takes minutes comes after all that decide at once: nobody has its
    name.
    """
    with planted("memory", tmp_path, SLOW):
        asked_for = everything("memory", QueryDict()).getlist("policies")
        efforts = [policy_class(*key.split("/")).effort for key in asked_for]
        assert asked_for[0] == "memory/baseline"
        assert efforts == sorted(efforts, key=EFFORTS.index) and efforts[-1] == MINUTES
        assert asked_for.index("memory/planted") > asked_for.index("memory/zero_offload")
        assert len(asked_for) == len(family_policies("memory"))


WIDTH = Knob("width", "int", False, 2, "how wide", 1, 8, None, "")


def asked(artifact: Artifact, **more: Any) -> dict[str, Any]:
    fields = {
        "artifacts": [artifact.pk],
        "policies": ["memory/baseline", "memory/swap_all"],
        "devices": ["a100-40g"],
    }
    return {**fields, "modes": ["simulated"], "seeds": "0", **more}


def test_an_open_knob_says_that_it_may_stay_empty_and_takes_values_too() -> None:
    from experiments.parallel.policies.gpipe import GPipe

    stages, again = (GridField(knob) for knob in describe(GPipe) if knob.name in ("stages", "recompute"))
    assert stages.widget.attrs["placeholder"] == again.widget.attrs["placeholder"] == "open"
    assert "empty: from the model and the cluster" in stages.help_text
    assert (stages.clean(""), stages.clean("none, 4"), again.clean("no")) == ([], [None, 4], [False])


def test_commas_make_a_grid() -> None:
    assert GridField(WIDTH).clean("1, 2,8") == [1, 2, 8]
    assert GridField(WIDTH).clean("") == []


def test_a_list_of_words_is_one_value_and_semicolons_make_its_grid() -> None:
    (frozen,) = (option for option in describe(FineTuning) if option.name == "frozen")
    assert frozen.words
    assert GridField(frozen).clean("wte.*, h.0.*") == ["wte.*, h.0.*"]
    assert GridField(frozen).clean("wte.*, h.0.*; wpe.*") == ["wte.*, h.0.*", "wpe.*"]


@pytest.mark.parametrize(
    ("text", "says"), [("9", "9 is too large"), ("x", "'x' has the wrong type"), ("1.5", "wrong type")]
)
def test_a_bad_value_is_named_with_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        GridField(WIDTH).clean(f"1, {text}")


def test_seeds_are_lists_and_ranges() -> None:
    assert SeedsField().clean("3, 0-2, 1") == [0, 1, 2, 3]
    with pytest.raises(ValidationError, match="smaller to a larger"):
        SeedsField().clean("0-99999999")


@pytest.mark.parametrize(
    ("text", "value"), [("12 GiB", 12 * 2**30), ("16GB/s", 16e9), ("5 us", 5e-6), ("3e9", 3e9)]
)
def test_quantities_have_units(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), max_size=3)))
def test_a_grid_has_the_product_of_its_axes(axes: dict[str, list[int]]) -> None:
    expected = 1
    for values in axes.values():
        expected *= max(len(values), 1)
    assert len(list(combinations(axes))) == expected


def test_runs_are_artifacts_x_policies_x_devices_x_options_x_seeds_and_nonsense_is_left_out(
    cast: Cast,
) -> None:
    """2 policies x 2 devices x 3 batches x 2 seeds = 24 on the model; a memory policy does not read a job
    trace.
    """
    model, jobs = ready(cast.project), ready(cast.project, "jobs", "trace")
    grid = Grid(
        [model, jobs],
        ["memory/baseline", "memory/swap_all"],
        devices=["a100-40g", "t4-16g"],
        options={"batch": [1, 2, 4]},
        seeds=[0, 1],
    )
    found = expand(grid)
    assert len(found.trials) == 24
    assert found.left_out == (
        "baseline cannot be simulated on trace: is a cluster job trace (expected a model or a training step)",
        "swap_all cannot be simulated on trace: is a cluster job trace (expected a model or a training step)",
    )


def test_measured_runs_are_local_and_say_what_host_they_need(cast: Cast) -> None:
    grid = Grid(
        [ready(cast.project)],
        ["memory/baseline"],
        devices=["t4-16g"],
        modes=["measured", "simulated"],
        needs="cuda",
    )
    measured, simulated = expand(grid).trials
    assert (measured.spec["hardware"], measured.needs) == ("local", "cuda")
    assert (simulated.spec["hardware"], simulated.needs) == ("t4-16g", "")


def test_a_measured_run_may_be_planned_for_less_than_its_host_has(cast: Cast) -> None:
    """The override goes into the spec, the run waits for a host with the device, and comes back into the
    form.
    """
    typed = {**asked(ready(cast.project)), "policies": ["memory/baseline"], "modes": ["measured"]}
    typed |= {"devices": [], "needs": "cuda", "override:memory_bytes": "12 GiB"}
    signed_in(cast.max).post(cast.url("experiments/new"), typed)
    run = Run.objects.get()
    assert run.spec["hardware"] == {"device": "local", "overrides": {"memory_bytes": 12 * 2**30}}
    assert complete(load_spec({**run.spec, "workload": {"source": "zoo:gpt2"}}))
    assert run.hardware == "local with memory_bytes=1.28849e+10"
    cpu, gpu = (register(kind, {"device_kinds": [kind]}) for kind in ("cpu", "cuda"))
    assert lifecycle.claim(cpu, ["cpu"], "limits") is None
    assert lifecycle.claim(gpu, ["cuda", "cpu"], "limits") is not None
    run.refresh_from_db()
    again = from_run(run)
    assert (again["override:memory_bytes"], again["needs"]) == (repr(float(12 * 2**30)), "cuda")
    assert "devices" not in again
    assert parameters_of(run)["hardware"] == "cuda"
    assert signed_in(cast.max).get(cast.url(f"experiments/new?run={run.pk}")).status_code == 200


def test_launching_writes_the_runs_and_what_was_asked(cast: Cast) -> None:
    model = ready(cast.project)
    typed = asked(model, **{"option:batch": "2, 4", "override:memory_bytes": "12 GiB"})
    answer = signed_in(cast.max).post(cast.url("experiments/new"), typed)
    made = Experiment.objects.get()
    assert answer["Location"] == cast.url(f"experiments/{made.pk}/")
    assert made.runs.count() == 4
    first = made.runs.filter(policy="baseline").order_by("queued_at").first()
    assert first is not None
    assert first.spec["hardware"] == {"device": "a100-40g", "overrides": {"memory_bytes": 12 * 2**30}}
    assert made.request["option:batch"] == "2, 4"


def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost(cast: Cast) -> None:
    typed = asked(ready(cast.project), devices=[], name="my precious", **{"option:batch": "1, zero"})
    page = signed_in(cast.max).post(cast.url("experiments/new"), typed)
    text = page.content.decode()
    assert page.status_code == 422
    assert "Choose at least one device" in text
    assert "&#x27;zero&#x27; has the wrong type" in text
    assert 'value="my precious"' in text
    assert 'value="1, zero"' in text
    assert not Run.objects.filter(kind="policy").exists()


def test_an_option_that_a_captured_step_does_not_have_is_refused_at_its_field(cast: Cast) -> None:
    """It was captured with a batch of 8: another is the model's to ask for."""
    step = ready(cast.project, "step", "captured", zoo="", summary={"facts": {"batch": 8, "image": None}})
    member, form = signed_in(cast.max), cast.url("experiments/new")
    page = member.post(form, asked(step, **{"option:batch": "4"}))
    assert page.status_code == 422
    assert "batch 4 of captured, a step that was captured with batch 8" in page.content.decode()
    assert ExperimentForm(cast.project, asked(step, **{"option:batch": "4"})).errors.keys() == {
        "option:batch"
    }
    assert "option:image" in ExperimentForm(cast.project, asked(step, **{"option:image": "64"})).errors
    assert member.post(form, asked(step, **{"option:batch": "8"})).status_code == 302


def test_a_cluster_policy_asks_for_a_cluster_not_for_a_device(cast: Cast) -> None:
    jobs = ready(cast.project, "jobs", "trace")
    form = ExperimentForm(
        cast.project,
        {
            "artifacts": [jobs.pk],
            "policies": ["cluster/fifo"],
            "modes": ["simulated"],
            "seeds": "0",
            "nodes": "",
        },
    )
    assert not form.is_valid()
    assert set(form.errors) == {"nodes", "devices_per_node", "cluster_device"}


def test_another_projects_workload_cannot_be_named(cast: Cast) -> None:
    form = ExperimentForm(cast.project, asked(ready(cast.foreign)))
    assert "artifacts" in form.errors


@pytest.mark.parametrize(("state", "says"), [("waiting", "has yet to be read"), ("rejected", "was rejected")])
def test_a_workload_that_is_not_ready_is_named_with_its_state(cast: Cast, state: str, says: str) -> None:
    form = ExperimentForm(cast.project, asked(ready(cast.project, name="new.json", state=state)))
    assert form.errors["artifacts"][0].startswith(f"new.json {says}")
    foreign = ExperimentForm(cast.project, asked(ready(cast.foreign, name="theirs", state=state)))
    assert "theirs" not in str(foreign.errors)


def test_the_preview_counts_before_anything_runs(cast: Cast) -> None:
    typed = asked(ready(cast.project), seeds="0-4")
    page = signed_in(cast.max).get(cast.url("experiments/preview"), typed).content
    assert b'<dd class="num">10</dd>' in page and b"Launch 10 runs" in page
    assert not Run.objects.filter(kind="policy").exists()


@pytest.mark.parametrize(
    "hardware",
    [
        "a100-40g",
        {"device": "a100-40g", "host": "ddr4-server"},
        {
            "cluster": {
                "nodes": 2,
                "devices_per_node": 8,
                "device": "a100-40g",
                "rails": 4,
                "stragglers": {"3": 1.5},
            }
        },
        {"cluster": {"nodes": 2, "device": "t4-16g", "network": {"bandwidth": 1e9, "latency": 1e-5}}},
        [{"nodes": 1, "device": "v100-16g"}, {"nodes": 1, "device": "t4-16g"}],
        {"cluster": {"nodes": 16, "node": "dgx-a100"}},
        {"cluster": {"nodes": 16, "node": "dgx-a100", "network": "ib-400g"}},
        {"cluster": {"nodes": 16, "node": "dgx-a100", "devices_per_node": 4}},
        {"cluster": {"nodes": 16, "node": "dgx-a100", "rails": 4}},
        {
            "cluster": {
                "nodes": 2,
                "devices_per_node": 4,
                "device": "t4-16g",
                "overrides": {"memory_bytes": 1000000000},
            }
        },
    ],
)
def test_no_hardware_is_lost_between_a_run_and_its_form(cast: Cast, hardware: Any) -> None:
    policy = "parallel/gpipe" if isinstance(hardware, list) or "cluster" in hardware else "memory/dtr"
    fields = {
        "artifacts": [ready(cast.project).pk],
        "policies": [policy],
        "modes": ["simulated"],
        "seeds": "0",
    }
    form = ExperimentForm(cast.project, {**fields, **hardware_fields(hardware)})
    assert form.is_valid(), form.errors
    assert [trial.spec["hardware"] for trial in form.cleaned_data["expansion"].trials] == [hardware]


def gpipe_on(cast: Cast, **typed: str) -> dict[str, Any]:
    chosen = {"artifacts": [ready(cast.project).pk], "policies": ["parallel/gpipe"]}
    return {**chosen, "modes": ["simulated"], "seeds": "0", **typed}


def test_a_machine_is_chosen_by_name_and_its_devices_are_not_asked(cast: Cast) -> None:
    """What stands in the fields of devices, as when a page without scripts sends them, is the machine's."""
    typed = {"nodes": "16", "node": "dgx-a100", "devices_per_node": "4", "cluster_device": "t4-16g"}
    signed_in(cast.max).post(cast.url("experiments/new"), gpipe_on(cast, **typed))
    run = Run.objects.get(kind="policy")
    assert run.spec["hardware"] == {"cluster": {"nodes": 16, "node": "dgx-a100"}}
    assert run.hardware == "16x dgx-a100"
    told = parameters_of(run)
    assert (told["hardware"], told["hardware.nodes"]) == ("dgx-a100", 16)
    assert device_name(run.spec["hardware"]) == "a100-80g"
    again = signed_in(cast.max).get(cast.url(f"experiments/new?run={run.pk}")).content.decode()
    assert '<option value="dgx-a100" selected>' in again


def test_the_preview_says_what_is_assumed_of_a_cluster(cast: Cast) -> None:
    typed = {"nodes": "2", "devices_per_node": "8", "cluster_device": "a100-80g"}
    preview = cast.url("experiments/preview")
    page = signed_in(cast.max).get(preview, gpipe_on(cast, **typed)).content.decode()
    assert "assumed of each node: one adapter, ib-200g" in page
    page = signed_in(cast.max).get(preview, gpipe_on(cast, nodes="2", node="dgx-a100")).content.decode()
    assert "Launch 1 run<" in page and "assumed" not in page


def test_hardware_that_nobody_described_is_an_empty_field(cast: Cast) -> None:
    assert ExperimentForm(cast.project)["described"].value() == ""


def test_hardware_that_does_not_exist_is_refused_at_its_field(cast: Cast) -> None:
    fields = {
        "artifacts": [ready(cast.project).pk],
        "policies": ["parallel/gpipe"],
        "modes": ["simulated"],
        "seeds": "0",
    }
    form = ExperimentForm(
        cast.project, {**fields, "described": '{"cluster": {"nodes": 2, "device": "b9000"}}'}
    )
    assert "b9000" in str(form.errors["described"])


def test_the_example_of_mixed_nodes_is_a_cluster_that_jobs_run_on(cast: Cast) -> None:
    trace = ready(cast.project, "jobs", "generated:philly")
    asked = {"artifacts": [trace.pk], "policies": ["cluster/fifo"], "modes": ["simulated"], "seeds": "0"}
    form = ExperimentForm(cast.project, {**asked, "described": MIXED_NODES})
    assert MIXED_NODES in form["described"].help_text
    [trial] = form.cleaned_data["expansion"].trials if form.is_valid() else [None]
    assert trial is not None, form.errors
    assert [node["device"] for node in trial.spec["hardware"]] == ["v100-16g", "t4-16g"]


#: What a step of the zoo's GPT-2 has where its options say nothing.
GPT2 = {"sequence": 1024, "dtype": "float32", "precision": "fp32", "optimizer": "adamw"}


def test_what_is_left_open_is_resolved_when_it_is_submitted(cast: Cast) -> None:
    """A model of a file by what its reading told, at 16 bits where that is asked for."""
    usual = {"batch": 8, "sequence": 512, "image": None, "dtype": "bfloat16", "optimizer": "adamw"}
    file = ready(cast.project, zoo="", summary={"usual_step": usual})
    fields = {"artifacts": [file.pk], "policies": ["memory/baseline"], "devices": ["a100-40g"]}
    form = ExperimentForm(cast.project, {**fields, "modes": ["simulated"], "seeds": "0"})
    assert form.is_valid(), form.errors
    (trial,) = form.cleaned_data["expansion"].trials
    told = {name: value for name, value in usual.items() if value} | {"precision": "bf16-mixed"}
    assert trial.spec["workload"]["options"] == told
    contradiction = {"option:dtype": "float32", "option:precision": "bf16-mixed"}
    form = ExperimentForm(cast.project, {**fields, "modes": ["simulated"], "seeds": "0"} | contradiction)
    assert "precision" in str(form.errors["option:precision"])


def test_again_with_changes_gives_the_same_run_when_nothing_is_changed(cast: Cast) -> None:
    model = ready(cast.project)
    run = run_in(experiment_with(cast.project, model), model, "succeeded", seed=3)
    run.spec["knobs"] = Baseline().knob_values()
    fields = from_run(run)
    form = ExperimentForm(cast.project, fields)
    assert form.is_valid(), form.errors
    (trial,) = form.cleaned_data["expansion"].trials
    assert trial.spec == {**run.spec, "workload": {"format": "auto", "options": {**GPT2, "batch": 4}}}
    page = signed_in(cast.max).get(cast.url(f"experiments/new?run={run.pk}")).content.decode()
    assert 'value="memory/baseline" id="policy-memory/baseline" checked' in page


def test_knobs_that_do_not_go_together_are_refused_before_the_launch(cast: Cast) -> None:
    """Tiresias' limits must rise from queue to queue; each value alone is within its bounds."""
    jobs = ready(cast.project, "jobs", "trace")
    fields = {"artifacts": [jobs.pk], "policies": ["cluster/tiresias"], "modes": ["simulated"], "seeds": "0"}
    cluster = {"nodes": "4", "devices_per_node": "4", "cluster_device": "t4-16g"}
    limits = {"knob:cluster/tiresias:limit_1": "9000", "knob:cluster/tiresias:limit_2": "10"}
    form = ExperimentForm(cast.project, {**fields, **cluster, **limits})
    assert not form.is_valid()
    assert "policies" in form.errors


def test_one_click_from_an_artifact_fills_in_every_policy_of_a_family(cast: Cast) -> None:
    model = ready(cast.project)
    page = signed_in(cast.max).get(cast.url(f"artifacts/{model.pk}/")).content.decode()
    assert '<button class="primary" name="all" value="memory">' in page
    assert f"?artifact={model.pk}&amp;family=parallel" in page
    form = ExperimentForm(
        cast.project, {**preset([model.pk], "memory"), "modes": ["simulated"], "seeds": "0"}
    )
    assert form.is_valid(), form.errors
    assert len(form.cleaned_data["expansion"].trials) == len(family_policies("memory"))
    assert preset([1], "nonsense") == {"artifacts": [1], "policies": []}


def test_one_press_asks_every_memory_policy_and_opens_the_comparison(cast: Cast) -> None:
    """The baseline is asked first and what plans for long last, so that nobody waits behind a search."""
    model = ready(cast.project)
    asked_for = {"artifacts": model.pk, "devices": "rtx-4090-24g", "option:batch": "8", "all": "memory"}
    answer = signed_in(cast.max).post(cast.url("experiments/new"), asked_for)
    made = Experiment.objects.get()
    assert answer.headers["Location"] == cast.url(f"compare/{made.pk}/")
    order = list(made.runs.order_by("queued_at").values_list("policy", flat=True))
    simulated = {p.name for p in family_policies("memory").values() if "simulated" in p.modes}
    assert set(order) == simulated
    assert order[0] == "baseline"
    assert order[-1] == "autotm"
    run = made.runs.get(policy="baseline")
    assert (run.hardware, run.spec["workload"]["options"]) == ("rtx-4090-24g", {**GPT2, "batch": 8})


def test_one_press_on_a_trace_asks_every_scheduler_on_its_cluster(cast: Cast) -> None:
    """What the trace's page does not say of the cluster is the usual."""
    jobs = ready(cast.project, "jobs", "trace")
    asked_for = {"artifacts": jobs.pk, "nodes": "3", "devices_per_node": "8", "all": "cluster"}
    answer = signed_in(cast.max).post(cast.url("experiments/new"), asked_for)
    made = Experiment.objects.get()
    assert answer.headers["Location"] == cast.url(f"compare/{made.pk}/")
    assert {f"cluster/{run.policy}" for run in made.runs.all()} == set(try_all("cluster", ["jobs"]))
    assert {run.hardware for run in made.runs.all()} == {"3x8 a100-40g"}


def test_a_preset_pressed_without_a_workload_says_so_and_keeps_what_was_typed(cast: Cast) -> None:
    ready(cast.project)
    page = signed_in(cast.max).post(cast.url("experiments/new"), {"all": "memory", "option:batch": "77"})
    assert page.status_code == 422
    assert 'value="77"' in page.content.decode()
    assert not Experiment.objects.exists()
