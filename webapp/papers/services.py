"""Checking claims: their runs are submitted as an experiment, and once all have ended they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from experiments.core import registry
from experiments.core.claims import chosen_claims, claim_specs, clocks_of, judge_runs
from experiments.core.errors import BadInput
from experiments.core.paper import Claim, Verdict
from experiments.core.suites import Suite
from experiments.estimates import CLOSED_FORMS
from webapp.accounts.models import Project, User
from webapp.nightly.suites import submit
from webapp.papers.models import ClaimCheck
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, ExperimentQuerySet, Run, RunDocument
from webapp.runs.services import submit_experiment
from webapp.runs.specs import Submission, identity, spec_of

#: Where an experiment's request says which claims it checks.
CHECKS = "checks"


@transaction.atomic
def check_claims(project: Project, user: User, family: str, policy: str) -> Experiment:
    """Submits the runs of every claim of the policy that can be run; equal runs of two claims are one run.

    ``BadInput`` where nothing can be run.
    """
    named: dict[str, dict[str, str]] = {}
    trials: dict[str, Trial] = {}
    submission = Submission(project, user)
    for _, _, claim in chosen_claims(family, policy):
        if claim.not_run:
            continue
        found = _trials(submission, family, policy, claim)
        trials |= {identity(spec_of(trial)): trial for trial in found.values()}
        named[claim.id] = {name: identity(spec_of(trial)) for name, trial in found.items()}
    if not trials:
        raise BadInput(f"no claim of {policy} can be run", "policy", "a claim with runs")
    request = {CHECKS: {"family": family, "policy": policy, "claims": named}}
    name = f"claims of {policy}"
    return submit_experiment(project, user, name=name, trials=list(trials.values()), request=request)


def run_suite(project: Project, user: User, suite: Suite) -> Experiment:
    """Submits the suite's runs now; its table shows them once all have ended."""
    return submit(suite, project, user, f"{suite.title}, {timezone.now():%d %b %Y %H:%M}")


def _trials(submission: Submission, family: str, policy: str, claim: Claim) -> dict[str, Trial]:
    specs = claim_specs(registry.policy_class(family, policy), claim)
    return {name: submission.trial(_with_given_options(spec.to_json())) for name, spec in specs.items()}


def _with_given_options(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with those options of its workload that the paper's sheet gives."""
    options = {name: value for name, value in spec["workload"]["options"].items() if value is not None}
    return {**spec, "workload": {**spec["workload"], "options": options}}


@transaction.atomic
def judge_ended(project: Project) -> None:
    """Judges every check of the project whose runs have all ended, once."""
    for experiment in _unjudged_checks(project).select_for_update():
        runs = list(experiment.runs.prefetch_related("metrics"))
        if all(run.is_final for run in runs):
            _judge(experiment, _by_identity(runs))


def _by_identity(runs: Iterable[Run]) -> dict[str, Run]:
    """Runs by what was asked; one whose policy or knobs no longer exist is left out."""
    found = {}
    for run in runs:
        with suppress(BadInput):
            found[identity(run.spec)] = run
    return found


def _judge(experiment: Experiment, runs: Mapping[str, Run]) -> None:
    """Store the verdicts; a check of a policy that cannot be used at present waits until it can."""
    check = experiment.request[CHECKS]
    try:
        owned = chosen_claims(check["family"], check["policy"])
    except BadInput:
        return
    claims = {one.claim.id: one.claim for one in owned}
    for claim_id, names in check["claims"].items():
        if claim_id not in claims:
            continue
        verdict = verdict_of(claims[claim_id], {name: runs.get(key) for name, key in names.items()})
        ClaimCheck.objects.create(
            family=check["family"],
            policy=check["policy"],
            claim=claim_id,
            experiment=experiment,
            ours=verdict.ours,
            verdict=verdict.verdict,
            reason=verdict.reason,
        )


def verdict_of(claim: Claim, runs: Mapping[str, Run | None]) -> Verdict:
    """The verdict on stored runs. A run that failed or was cancelled says nothing about the claim."""
    found: dict[str, Run] = {}
    for name, run in runs.items():
        if run is None:
            return Verdict("not run", f"the policy of the run {name!r} has changed since: check again")
        found[name] = run
        if run.state != Run.State.SUCCEEDED:
            return Verdict("not run", f"the run {name!r} ended {run.state}: {run.reason}".rstrip(": "))
    return judge_runs(claim, {name: _figures(run) for name, run in found.items()}, CLOSED_FORMS)


def _figures(run: Run) -> dict[str, float]:
    """What a figure can name of a stored run: its metrics, what its planning took, and ``feasible``."""
    values = {row.name: row.value for row in run.metrics.all()}
    return {**values, **clocks_of(_provenance(run)), "feasible": float(run.outcome_status == "ok")}


def _provenance(run: Run) -> Mapping[str, Any]:
    document = RunDocument.objects.filter(run=run).first()
    return (document.outcome.get("provenance") or {}) if document else {}


def pending(project: Project, family: str, policy: str) -> Experiment | None:
    """A check of the policy's claims whose runs have not all ended."""
    checks = _unjudged_checks(project).filter(request__checks__family=family, request__checks__policy=policy)
    return checks.not_trashed().first()


def _unjudged_checks(project: Project) -> ExperimentQuerySet:
    """Experiments that check claims and have no verdict yet."""
    judged = ClaimCheck.objects.filter(experiment=OuterRef("pk"))
    return Experiment.objects.filter(~Exists(judged), project=project, request__has_key=CHECKS)
