"""What a new experiment says before it is launched: its question, its policies, their time, what it needs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from experiments import hardware
from experiments.core.policy import FAMILIES
from experiments.core.registry import family_policies
from tests.webapp.cast import Cast, experiment, ready, run, signed_in
from webapp.hosts.services import register
from webapp.runs.chips import policy_step
from webapp.runs.choices import asked_by, settle
from webapp.runs.durations import Past, estimate, past_durations
from webapp.runs.forms import ExperimentForm
from webapp.runs.grid import Grid, expand
from webapp.runs.hardware_picture import MOST_NODES, picture_of, words_of
from webapp.runs.models import Run
from webapp.runs.offers import offers_for, try_all
from webapp.runs.proposal import propose

#: A model of 1,000 parameters whose step needs 16 bytes for each and nothing else.
SMALL = {"parameters": [{"module": "Linear", "times": 1, "parameters": 1000}]}
USUAL = {"batch": 2, "sequence": 4, "dtype": "bfloat16", "optimizer": "adamw"}


def form_of(cast: Cast, **typed: Any) -> ExperimentForm:
    return ExperimentForm(cast.project, {"modes": ["simulated"], "seeds": "0", **typed})


def test_the_family_follows_the_workload_and_the_others_say_what_they_need() -> None:
    offers = {offer.family: offer.needs for offer in offers_for(["jobs"])}
    assert next(iter(offers)) == "cluster" and set(offers) == set(FAMILIES)
    assert offers["cluster"] == ""
    assert offers["serving"] == "a model or a request trace or a model between a device and a cloud"
    assert [offer.family for offer in offers_for(["model"]) if offer.is_open] == [
        "memory",
        "parallel",
        "compilation",
        "serving",
    ]


def test_try_all_is_what_can_be_carried_out_on_the_workload() -> None:
    """Of compilation policies few read a list of operators; those that are only measured come with that."""
    assert try_all("memory", ["jobs"]) == []
    assert set(try_all("compilation", ["operators"])) < set(try_all("compilation", ["model", "operators"]))
    assert "compilation/eager" not in try_all("compilation", ["model"])
    assert "compilation/eager" in try_all("compilation", ["model"], ["measured"])
    assert len(try_all("memory")) == len(family_policies("memory"))


def test_a_scheduler_that_needs_what_a_trace_lacks_is_not_among_all_and_says_so(cast: Cast) -> None:
    jobs = ready(cast.project, "jobs", "trace")
    jobs.summary = {"told": {"columns": ["user"], "several_gpus": 3, "speeds": False}}
    jobs.save()
    found = settle(cast.project, asked_by(cast.project, QueryDict(f"artifacts={jobs.pk}")))
    asked = found.asked.getlist("policies")
    assert asked == try_all("cluster", ["jobs"], told=[jobs.summary["told"]])
    assert "cluster/fifo" in asked
    assert {"cluster/edf", "cluster/hare", "cluster/allox", "cluster/pollux"}.isdisjoint(asked)
    live = try_all("cluster", ["jobs"], ["measured"], told=[jobs.summary["told"]])
    assert "cluster/pollux" in live, "the host says how fast jobs run"
    assert "cluster/edf" not in live
    page = signed_in(cast.max).get(cast.url(f"experiments/new?artifacts={jobs.pk}")).content.decode()
    assert "needs deadline of each job, which the trace does not tell" in page
    assert "knows jobs of one GPU alone" in page
    everything = {"columns": ["deadline", "user", "tenant"], "several_gpus": 0, "speeds": True}
    assert "cluster/edf" in try_all("cluster", ["jobs"], told=[everything])


def test_a_model_that_no_policy_of_a_family_can_divide_is_not_asked_that_and_says_why(cast: Cast) -> None:
    model = ready(cast.project, name="resnet50")
    model.summary = {"told": {"generates": False}}
    model.save()
    found = settle(cast.project, asked_by(cast.project, QueryDict(f"artifacts={model.pk}&family=serving")))
    offers = {offer.family: offer for offer in found.offers}
    assert found.family != "serving" and not offers["serving"].is_open and offers["memory"].is_open
    assert offers["serving"].needs.startswith("a dense decoder of text")
    assert "serving/palm_partitioning" not in try_all("serving", ["model"], told=[model.summary["told"]])
    decoder = {"generates": True}
    assert "serving/palm_partitioning" in try_all("serving", ["model"], told=[decoder])
    assert next(one for one in offers_for(["model"], [decoder]) if one.family == "serving").is_open


def test_an_address_without_a_state_starts_with_the_newest_workload_that_is_meant(cast: Cast) -> None:
    model, jobs = ready(cast.project), ready(cast.project, "jobs", "trace")
    bare = settle(cast.project, asked_by(cast.project, QueryDict()))
    assert (bare.artifacts, bare.family) == ((jobs,), "cluster")
    assert bare.asked.getlist("policies") == try_all("cluster", ["jobs"])
    named = settle(cast.project, asked_by(cast.project, QueryDict("policy=memory/vdnn-all&devices=t4-16g")))
    assert (named.artifacts, named.asked.getlist("policies")) == ((model,), ["memory/vdnn-all"])
    assert named.asked["devices"] == "t4-16g"


def test_a_state_comes_back_from_its_address_as_it_was_left(cast: Cast) -> None:
    """What was unchecked stays so; another question has all of its policies, and what is typed stays."""
    model = ready(cast.project)
    state = QueryDict(f"artifacts={model.pk}&family=memory&option:batch=2, 4")
    left = settle(cast.project, asked_by(cast.project, state))
    assert (left.asked.getlist("policies"), left.asked.getlist("devices")) == ([], [])
    assert QueryDict(left.address) == state
    turned = settle(cast.project, asked_by(cast.project, QueryDict(f"{left.address}&question=parallel")))
    assert turned.family == "parallel"
    assert turned.asked.getlist("policies") == try_all("parallel", ["model"])
    assert turned.asked["option:batch"] == "2, 4"
    assert "question" not in QueryDict(turned.address)


def test_an_experiment_without_a_form_is_asked_again_by_its_runs(cast: Cast) -> None:
    """A suite's has the workloads and policies of its runs, and the rest of the first."""
    made, model = experiment(cast.project), ready(cast.project)
    for policy in ("baseline", "uvm"):
        run(made, policy, artifact=model, options={"batch": 4}, hardware="t4-16g")
    asked = asked_by(cast.project, QueryDict(f"from={made.pk}"))
    assert asked.getlist("policies") == ["memory/baseline", "memory/uvm"]
    assert (asked["artifacts"], asked["option:batch"], asked["devices"]) == (str(model.pk), "4", "t4-16g")


def test_policies_are_chips_by_mechanism_and_slow_ones_say_so(cast: Cast) -> None:
    """The time that a policy took goes before what it says of itself; one that did not fit is not among those
    that fit.
    """
    model = ready(cast.project)
    choices = settle(cast.project, asked_by(cast.project, QueryDict(f"artifact={model.pk}")))
    past = {("memory", "capuchin", "simulated"): Past(72.0, 3)}
    form = ExperimentForm(cast.project, choices.asked)
    step = policy_step(form, choices, past, failed={"uvm"})
    titles = {chip.policy.name: group.title for group in step.groups for chip in group.chips}
    assert (titles["baseline"], titles["vdnn-all"], titles["dtr"]) == (
        "compared with",
        "offload",
        "recompute",
    )
    slow = {chip.policy.name: chip.slow for chip in step.chips}
    assert (slow["capuchin"], slow["swapadvisor"], slow["vdnn-all"]) == ("1.2 min", "seconds", "")
    every, fitting, quick, none = (set(choice.keys) for choice in step.choices)
    assert every - fitting == {"memory/uvm"} and none == set()
    assert {"memory/capuchin", "memory/swapadvisor"} <= every - quick
    assert [choice.is_chosen for choice in step.choices] == [True, False, False, False]
    vdnn = next(row for row in step.papers if row.paper.key == "rhu2016vdnn")
    assert vdnn.keys == "memory/baseline memory/vdnn-all memory/vdnn-conv memory/vdnn-dyn"


def test_time_is_the_median_of_past_runs_shared_out_over_the_slots(cast: Cast) -> None:
    """10, 20 and 90 s on this model, 500 s on another: 20 s each; a policy without a past is not in it."""
    model, other = ready(cast.project), ready(cast.project, name="other")
    now, made = timezone.now(), experiment(cast.project)
    for artifact, seconds in ((model, 10), (model, 20), (model, 90), (other, 500)):
        when = {"started_at": now - timedelta(seconds=seconds), "finished_at": now}
        run(made, "baseline", artifact=artifact, **when)
    past = past_durations(cast.project, [model])
    assert past["memory", "baseline", "simulated"] == Past(20.0, 3)
    grid = Grid([model], ["memory/baseline", "memory/uvm"], devices=["t4-16g"], seeds=[0, 1, 2, 3])
    found = estimate(expand(grid).trials, past, slots=2)
    assert (found.seconds, found.known, found.asked, found.past) == (40.0, 4, 8, 3)
    assert past_durations(cast.foreign, [model]) == {}


def test_the_proposal_says_in_words_what_would_run_and_what_speaks_against_it(cast: Cast) -> None:
    """States of 1,000 parameters: 16 kB, on a device that was given 10 kB."""
    model = ready(cast.project, zoo="", name="tiny", summary={**SMALL, "usual_step": USUAL})
    typed = {"artifacts": [model.pk], "policies": ["memory/baseline", "memory/uvm"], "devices": ["t4-16g"]}
    typed |= {"option:batch": "2, 8", "override:memory_bytes": "10 KB"}
    found = propose(form_of(cast, **typed), {})
    assert found.sentence and found.sentence.plain == (
        "baseline and uvm on tiny (a training step of 2 or 8 samples of 4 tokens in bfloat16 (bf16-mixed) "
        "with adamw), on one t4-16g, simulated"
    )
    assert found.need and (found.need.bytes, found.need.capacity) == (16_000, 10_000)
    assert found.need.is_least and not found.need.fits
    assert "does not fit t4-16g" in found.warnings[0]
    assert any("No host is up" in line for line in found.warnings)
    assert any("Not validated" in line for line in found.warnings)
    register("here", {"device_kinds": ["cpu"], "slots": 2})
    assert propose(form_of(cast, **typed), {}).starts_at_once


def test_a_traces_demand_stands_next_to_the_clusters_gpus(cast: Cast) -> None:
    cards = [{"label": "jobs", "value": 876}, {"label": "mean demand", "value": 19.5}]
    jobs = ready(cast.project, "jobs", "philly", summary={"cards": cards})
    typed = {"artifacts": [jobs.pk], "policies": ["cluster/fifo"], "option:batch": "8"}
    typed |= {"nodes": "2", "devices_per_node": "4", "cluster_device": "t4-16g"}
    found = propose(form_of(cast, **typed), {})
    assert found.load and (found.load.wanted, found.load.gpus) == (19.5, 8)
    assert any("they pile up" in line for line in found.warnings)
    assert found.sentence and found.sentence.step == "876 jobs"
    assert found.left_out == ("batch is left out for philly: a trace has no such option",)
    assert "batch" not in found.trials[0].spec["workload"]["options"]


def test_hardware_is_drawn_as_nodes_with_their_devices(cast: Cast) -> None:
    one = picture_of(hardware.resolve("rtx-4090-24g"))
    assert [box.kind for box in one.boxes] == ["frame", "host", "device"]
    many = hardware.resolve({"cluster": {"nodes": 64, "node": "dgx-h100"}})
    drawn = picture_of(many)
    assert words_of(many) == drawn.words == "64 nodes dgx-h100 of 8 h100-80g each"
    assert [box.kind for box in drawn.boxes].count("device") == 8
    nodes = [box.text for box in drawn.boxes if box.kind == "node"]
    assert len(nodes) == MOST_NODES and nodes[-1] == "+57"
    assert max(box.y + box.height for box in drawn.boxes) <= drawn.height


def test_a_viewer_sees_the_form_disabled_with_the_reason_and_launches_nothing(cast: Cast) -> None:
    model = ready(cast.project)
    page = signed_in(cast.vera).get(cast.url(f"experiments/new?artifact={model.pk}")).content.decode()
    assert '<fieldset class="steps" disabled aria-describedby="why-not">' in page
    assert "Your role in this team is viewer" in page
    typed = {"artifacts": [model.pk], "policies": ["memory/baseline"], "devices": ["t4-16g"], "seeds": "0"}
    answer = signed_in(cast.vera).post(cast.url("experiments/new"), {**typed, "modes": ["simulated"]})
    assert answer.status_code == 403 and not Run.objects.exists()


def test_a_choice_is_answered_with_the_parts_that_follow_it(cast: Cast) -> None:
    """The lists of policies and options come again only where they are others than those shown."""
    model = ready(cast.project)
    first = settle(cast.project, asked_by(cast.project, QueryDict(f"artifact={model.pk}")))
    client = signed_in(cast.max)
    same = client.get(cast.url(f"experiments/preview?{first.address}&shown={first.shown}"))
    assert same["New-Address"] == cast.url(f"experiments/new?{first.address}")
    assert 'id="asked"' in same.content.decode() and 'id="policies"' not in same.content.decode()
    other = client.get(cast.url(f"experiments/preview?{first.address}&shown={first.shown}&question=parallel"))
    assert 'id="policies"' in other.content.decode() and "policy-parallel/gpipe" in other.content.decode()
