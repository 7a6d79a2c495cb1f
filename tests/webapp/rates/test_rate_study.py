"""The highest rate by runs that follow one another: each line its own search, whoever stops or goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from experiments.core.errors import BadInput
from experiments.core.rate_search import RateGoal
from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Place, signed_in
from webapp.accounts.models import Membership, Role, User
from webapp.rates import services
from webapp.rates.lines import lines_of, rate_of
from webapp.rates.models import RateStudy
from webapp.rates.panel import panel_of
from webapp.runs.models import Experiment, Run, RunMetric
from webapp.runs.services import cancel_experiment, trash_experiment
from webapp.runs.trashing import put_into_trash

pytestmark = pytest.mark.django_db
NINETY = RateGoal(0.9)
#: Up to which rate each policy keeps nine of ten requests in time.
LIMITS = {"orca": 11.0, "vllm_v1": 37.0, "static_batching": 0.0}


@pytest.fixture
def ada() -> Place:
    return cast.place("ada")


def figures_at(policy: str, rate: float) -> dict[str, float]:
    share = 0.95 if rate <= LIMITS[policy] else 0.5
    return {"slo_attainment": share, "tbt_p99": 0.01 * rate, "scheduling_delay_p50": 0.1}


@pytest.fixture
def curve(ada: Place) -> Experiment:
    """Three policies, each at 2 requests a second, orca at 8 and 32 too."""
    made = cast.experiment(ada.project)
    trace = cast.ready(ada.project, "requests", "generated:poisson")
    for policy, rates in (("orca", (2.0, 8.0, 32.0)), ("vllm_v1", (2.0,)), ("static_batching", (2.0,))):
        for rate in rates:
            options = {"rate": rate, "model": "llama2-7b"}
            metrics = figures_at(policy, rate)
            cast.run(made, policy, metrics, family="serving", options=options, artifact=trace)
    return made


def carry_out(made: Experiment, figures: Callable[[str, float], dict[str, float]] = figures_at) -> int:
    """Let workers answer and the search go on until it ends; how many runs were queued."""
    count = 0
    for _ in range(40):
        waiting = list(made.runs.filter(state=Run.State.QUEUED))
        for run in waiting:
            rate = rate_of(run)
            assert rate is not None
            values = figures(run.policy, rate).items()
            RunMetric.objects.bulk_create([RunMetric(run=run, name=n, value=v) for n, v in values])
            Run.objects.filter(pk=run.pk).update(state=Run.State.SUCCEEDED, finished_at=timezone.now())
        count += len(waiting)
        services.go_on()
        if not made.runs.filter(state=Run.State.QUEUED).exists():
            break
    return count


def found_of(made: Experiment) -> dict[str, tuple[float, float]]:
    lines = lines_of(made, RateStudy.objects.get(experiment=made))
    return {line.name: (line.search.low, line.search.high) for line in lines}


def test_each_policy_is_bracketed_within_five_per_cent_from_what_was_known(
    ada: Place, curve: Experiment
) -> None:
    """Orca's first run is the middle of 8 and 32; static batching keeps no rate, and asks twelve times."""
    study = services.begin(curve, ada.user, NINETY, [])
    queued = {run.policy: rate_of(run) for run in curve.runs.filter(state="queued")}
    assert queued == {"orca": 20.0, "vllm_v1": 4.0, "static_batching": 1.0}
    services.go_on()
    assert curve.runs.filter(state="queued").count() == 3, "each line waits for its run"
    carry_out(curve)
    study.refresh_from_db()
    assert study.ended_at is not None
    found = found_of(curve)
    for policy, limit in LIMITS.items():
        low, high = found[policy]
        assert low <= limit < high and (high - low <= 0.05 * high or policy == "static_batching")
    counts = {name: curve.runs.filter(policy=name).count() for name in LIMITS}
    assert counts["static_batching"] == 1 + 12 and max(counts["orca"] - 3, counts["vllm_v1"] - 1) < 12


def test_the_state_is_in_the_runs_and_nothing_else(ada: Place, curve: Experiment) -> None:
    """Another who goes on, at any moment and as often as it likes, queues what the first would have."""
    services.begin(curve, ada.user, NINETY, ["orca"])
    run = curve.runs.get(state="queued")
    assert (run.policy, run.spec["workload"]["options"]["model"]) == ("orca", "llama2-7b")
    for _ in range(3):
        services.go_on()
    assert curve.runs.filter(state="queued").get() == run
    cast_values = figures_at("orca", 20.0).items()
    RunMetric.objects.bulk_create([RunMetric(run=run, name=n, value=v) for n, v in cast_values])
    Run.objects.filter(pk=run.pk).update(state="succeeded", finished_at=timezone.now())
    assert put_into_trash(ada.project, Run.objects.filter(pk=run.pk), ada.user, "") is not None
    for _ in range(3):
        services.go_on()
    assert rate_of(curve.runs.get(state="queued")) == 14.0, "what the trashed run gave was given"


def test_the_tail_between_tokens_and_the_share_may_be_asked_together(ada: Place, curve: Experiment) -> None:
    services.begin(curve, ada.user, RateGoal(None, 0.05), ["orca"])
    carry_out(curve)
    assert found_of(curve)["orca"][0] == pytest.approx(5.0, rel=0.05)
    services.begin(curve, ada.user, RateGoal(0.9, 0.2), ["orca"])
    carry_out(curve)
    assert found_of(curve)["orca"][0] == pytest.approx(11.0, rel=0.05)


def test_a_run_without_an_answer_ends_its_line_alone(ada: Place, curve: Experiment) -> None:
    services.begin(curve, ada.user, NINETY, ["orca", "vllm_v1"])
    curve.runs.filter(state="queued", policy="orca").update(state="infeasible", reason="no block fits")
    carry_out(curve)
    panel = panel_of(curve)
    assert panel is not None and not panel.is_going
    told = {line.name: line.reason for line in panel.lines}
    assert told == {"orca": "does not fit: no block fits", "vllm_v1": ""}
    assert found_of(curve)["vllm_v1"][0] == pytest.approx(37.0, rel=0.05)


def test_stopping_cancels_and_asks_for_no_more(ada: Place, curve: Experiment) -> None:
    study = services.begin(curve, ada.user, NINETY, [])
    services.stop(study)
    assert set(curve.runs.filter(queued_at__gte=study.created_at).values_list("state", flat=True)) == {
        "cancelled"
    }
    assert carry_out(curve) == 0
    again = services.begin(curve, ada.user, NINETY, ["vllm_v1"])
    assert again.pk != study.pk


def test_cancelling_or_trashing_the_experiment_ends_the_search(ada: Place, curve: Experiment) -> None:
    services.begin(curve, ada.user, NINETY, [])
    cancel_experiment(curve)
    services.go_on()
    assert not RateStudy.objects.filter(ended_at=None).exists() and carry_out(curve) == 0
    trash_experiment(curve)
    study = RateStudy.objects.get()
    RateStudy.objects.update(ended_at=None)
    services.advance(study)
    assert not RateStudy.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize("limit", [{}, {"limit": 20}])
def test_runs_of_a_trace_as_it_stands_begin_a_search_at_its_own_rate(
    ada: Place, limit: dict[str, int]
) -> None:
    """41 requests in 20 seconds, which such a run tells of; one of a part of the trace does not."""
    made, own = cast.experiment(ada.project), 41 / 20
    arrivals = {"arrivals": {"requests": 41, "span": 20.0}}
    trace = cast.ready(ada.project, "requests", "azure.csv", zoo="", summary=arrivals)
    cast.run(made, "orca", figures_at("orca", own), family="serving", options=limit, artifact=trace)
    panel = panel_of(made)
    assert panel is not None and list(panel.policies) == ["orca"]
    services.begin(made, ada.user, NINETY, [])
    asked = made.runs.get(state="queued")
    assert (rate_of(asked), asked.artifact) == (own if limit else 2 * own, trace)
    carry_out(made)
    assert found_of(made)["orca"][0] == pytest.approx(LIMITS["orca"], rel=0.05)


def test_what_cannot_be_asked_is_refused(ada: Place, curve: Experiment) -> None:
    with pytest.raises(BadInput, match="nothing is asked"):
        services.begin(curve, ada.user, RateGoal(), [])
    with pytest.raises(BadInput, match="'las' has no run at a rate"):
        services.begin(curve, ada.user, NINETY, ["las"])
    with pytest.raises(BadInput, match="no run of this experiment"):
        services.begin(cast.experiment(ada.project), ada.user, NINETY, [])
    services.begin(curve, ada.user, NINETY, [])
    with pytest.raises(BadInput, match="already"):
        services.begin(curve, ada.user, NINETY, [])


def test_figures_that_say_nothing_of_objectives_end_the_line(ada: Place, curve: Experiment) -> None:
    """Else every rate would be kept, and the search would double it to the end."""
    RunMetric.objects.filter(name="slo_attainment").delete()
    study = services.begin(curve, ada.user, NINETY, [])
    study.refresh_from_db()
    assert not curve.runs.filter(state="queued").exists()
    services.go_on()
    lines = lines_of(curve, study)
    assert {line.reason.split(":")[0] for line in lines} == {"nothing says what is in time"}
    assert {line.search.low for line in lines} == {0.0}, "of no rate is it known to be kept"


def test_the_comparison_offers_it_shows_it_and_stops_it(ada: Place, curve: Experiment) -> None:
    member, page = signed_in(ada.user), ada.url(f"compare/{curve.pk}/")
    assert "Find the highest rate" in member.get(page).content.decode()
    there = ada.url(f"experiments/{curve.pk}/highest-rate")
    told = member.post(there, {"attainment": "90", "policies": ["orca", "vllm_v1"]}, follow=True)
    text = told.content.decode()
    assert "at most 18 more runs" in text, "six to halve 8 to 32, and twelve where nothing failed yet"
    assert "waits for a worker" in text and "every 5s" in text and "20 a second" in text
    assert member.post(there, {"attainment": "90"}, follow=True).content.decode().count("Not begun") == 1
    assert "Not begun" in member.post(there, {"attainment": "900"}, follow=True).content.decode()
    grid = ada.url(f"experiments/{curve.pk}/grid")
    assert "more runs follow" in member.get(grid).content.decode()
    stopped = member.post(f"{there}/stop", follow=True).content.decode()
    assert "the search has ended" in stopped and "cancelled" in stopped and "every 5s" not in stopped
    assert "more runs follow" not in member.get(grid).content.decode()
    other = cast.experiment(ada.project)
    cast.run(other, "baseline", {"step_time": 1.0})
    assert "highest rate" not in member.get(ada.url(f"compare/{other.pk}/")).content.decode().lower()


def test_who_only_reads_sees_a_search_and_no_empty_panel_before_one(ada: Place, curve: Experiment) -> None:
    reader = User.objects.create_user(username="vera", password="correct horse battery")
    Membership.objects.create(team=ada.project.team, user=reader, role=Role.VIEWER)
    page = ada.url(f"compare/{curve.pk}/")
    assert "Highest rate" not in signed_in(reader).get(page).content.decode()
    signed_in(ada.user).post(ada.url(f"experiments/{curve.pk}/highest-rate"), {"attainment": "90"})
    text = signed_in(reader).get(page).content.decode()
    assert "Highest rate" in text and "Find the highest rate" not in text


def test_the_api_has_it_too(ada: Place, curve: Experiment) -> None:
    caller, address = Caller(ada), f"/experiments/{curve.pk}/highest-rate"
    assert caller.get(address)["detail"].startswith("nobody has asked") and caller.last == 404
    made: dict[str, Any] = caller.post(address, {"attainment": 0.9, "policies": ["orca"]})
    assert (caller.last, made["state"], made["lines"][0]["max_rate"]) == (201, "searching", 8.0)
    assert made["lines"][0]["below"] == 32.0 and made["lines"][0]["waiting"]
    assert made["most_runs_left"] == 6
    carry_out(curve)
    told = caller.get(address)
    assert (told["state"], told["most_runs_left"]) == ("ended", 0)
    assert told["lines"][0]["max_rate"] == pytest.approx(11.0, rel=0.05)
    assert told["lines"][0]["rates"]["20"] is False
    wrong: dict[str, dict[str, Any]] = {"attainment": {"attainment": 1.5}, "policies": {"policies": [1]}}
    for field, body in wrong.items():
        assert caller.post(address, body)["field"] == field and caller.last == 422
    assert caller.post(f"{address}/stop", {})["state"] == "ended"
