"""Checking claims: their runs are submitted as an experiment, and once all have ended they are judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from experiments.core import registry
from experiments.core.claims import (
    ClaimTrial,
    OwnedClaim,
    TrialFigures,
    chosen_claims,
    claim_trials,
    clocks_of,
    judge_trials,
)
from experiments.core.errors import BadInput
from experiments.core.suites import Suite
from experiments.core.verdicts import NOT_RUN, Verdict
from experiments.estimates import CLOSED_FORMS
from webapp.accounts.models import Project, User
from webapp.nightly.suites import submit
from webapp.papers.models import ClaimCheck
from webapp.presentation import MOMENT_FORMAT
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
    for owned in chosen_claims(family, policy):
        if owned.claim.cannot:
            continue
        found = _trials(submission, family, policy, owned)
        trials |= {identity(spec_of(trial)): trial for trial in found.values()}
        named[owned.claim.id] = {name: identity(spec_of(trial)) for name, trial in found.items()}
    if not trials:
        raise BadInput(f"no claim of {policy} can be run", "policy", "a claim with runs")
    request = {CHECKS: {"family": family, "policy": policy, "claims": named}}
    name = f"claims of {policy}"
    return submit_experiment(project, user, name=name, trials=list(trials.values()), request=request)


def run_suite(project: Project, user: User, suite: Suite) -> Experiment:
    """Submits the suite's runs now; its table shows them once all have ended."""
    return submit(suite, project, user, f"{suite.title}, {timezone.now():{MOMENT_FORMAT}}")


def _trials(submission: Submission, family: str, policy: str, owned: OwnedClaim) -> dict[str, Trial]:
    """Every run that the verdict may need, repeats and half and double included, by name and label."""
    found: dict[str, Trial] = {}
    for trial in claim_trials(registry.policy_class(family, policy), owned.claim):
        try:
            found |= {
                f"{name}{trial.label}": submission.trial(_with_given_options(spec.to_json()))
                for name, spec in trial.specs.items()
            }
        except BadInput:  # half or double of a stand-in's parameter cannot be asked for
            if trial.factor == 1:
                raise
    return found


def _with_given_options(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with those options of its workload that the paper's sheet gives."""
    options = {name: value for name, value in spec["workload"]["options"].items() if value is not None}
    return {**spec, "workload": {**spec["workload"], "options": options}}


@transaction.atomic
def judge_ended(project: Project) -> None:
    """Judges every check of the project whose runs have all ended, once."""
    for experiment in _unjudged_checks(project).select_for_update():
        runs = list(experiment.runs.with_figures())
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
    claims = {one.claim.id: one for one in owned}
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
            low=verdict.low,
            high=verdict.high,
            verdict=verdict.verdict,
            reason=verdict.reason,
        )


def verdict_of(owned: OwnedClaim, runs: Mapping[str, Run | None]) -> Verdict:
    """The verdict on stored runs, by name and label; one that failed says nothing about the claim."""
    try:
        trials = claim_trials(owned.policy, owned.claim)
    except BadInput as error:
        return Verdict(NOT_RUN, str(error))
    found: list[TrialFigures | None] = []
    for trial in trials:
        reason = next(filter(None, (_unusable(name, trial, runs) for name in trial.specs)), "")
        if reason and trial.factor == 1:
            return Verdict(NOT_RUN, reason)
        found.append(None if reason else _trial_figures(trial, runs))
    return judge_trials(owned.claim, found, CLOSED_FORMS)


def _unusable(name: str, trial: ClaimTrial, runs: Mapping[str, Run | None]) -> str:
    """Why a run of a trial has no figures; nothing where it has."""
    run = runs.get(name + trial.label)
    if run is None:
        return f"the policy of the run {name!r} or its claim has changed since: check again"
    if run.state not in Run.ANSWERED:
        return f"the run {name!r} ended {run.state}: {run.reason}".rstrip(": ")
    return ""


def _trial_figures(trial: ClaimTrial, runs: Mapping[str, Run | None]) -> TrialFigures:
    found = {name: runs[name + trial.label] for name in trial.specs}
    return {name: _figures(run) for name, run in found.items() if run is not None}


def _figures(run: Run) -> dict[str, float]:
    """What a figure can name of a stored run: its metrics, what its planning took, and ``feasible``."""
    return {**run.figures, **clocks_of(_provenance(run)), "feasible": float(run.outcome_status == "ok")}


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
