"""A run's life as workers write it: claimed, renewed, ended or given back. Every write says which attempt it
is.

A write of an attempt that is no longer the run's changes nothing and says so (``False``): the run was taken
over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from experiments.core.dashboard import INFRA_ERROR, dashboard_status
from experiments.core.precision import states_in_words
from experiments.core.spec import Outcome
from experiments.models.step_options import OPEN
from webapp.artifacts.models import Artifact, Blob
from webapp.hosts.models import Host
from webapp.runs import claiming, turns
from webapp.runs.claiming import EVERYTHING
from webapp.runs.models import Run, RunDocument, RunMetric

#: What could not be carried out for no fault of its own waits for 1 s, then twice as long each time, up to
#: this (seconds).
LONGEST_PAUSE = 60
LOST = (Run.State.FAILED, Run.State.CANCELLED, Run.State.REJECTED)
#: The state in which a run ends by its Outcome's status.
STATES = {
    "ok": Run.State.SUCCEEDED,
    "infeasible": Run.State.INFEASIBLE,
    "rejected": Run.State.REJECTED,
    "failed": Run.State.FAILED,
}


@dataclass(frozen=True)
class Claim:
    """The right to write about ``run``, as long as ``attempt`` is its attempt."""

    run: Run
    attempt: int

    @property
    def mine(self) -> QuerySet[Run]:
        return Run.objects.filter(pk=self.run.pk, attempt=self.attempt, state=Run.State.RUNNING)


@dataclass(frozen=True)
class Diagnosis:
    """How the process ended: what a run page shows when something went wrong."""

    exit_code: int | None = None
    signal: str = ""
    peak_rss_bytes: int | None = None
    log_tail: str = ""


@dataclass(frozen=True)
class Ending:
    """What a finished attempt has to say. ``artifact`` are columns of the artifact that the run was about,
    ``next`` runs that are queued with it. ``dashboard_status`` is that of an end without an outcome.
    """

    state: str
    reason: str = ""
    outcome: Outcome | None = None
    dashboard_status: str = ""
    artifact: dict[str, Any] | None = None
    blob: Blob | None = None
    diagnosis: Diagnosis = Diagnosis()
    next: tuple[Run, ...] = ()


def lease() -> Any:
    """The end of a lease taken now, by the clock of the database."""
    return Now() + timedelta(seconds=settings.RUN_LEASE_SECONDS)


def claim(host: Host, kinds: Collection[str], tier: str, among: Q = EVERYTHING) -> Claim | None:
    """Take the next run; two workers never take the same one."""
    run = claiming.take_next(host, kinds, tier, settings.RUN_LEASE_SECONDS, among)
    return Claim(run, run.attempt) if run else None


def renew(claim: Claim, progress: tuple[float, str] | None) -> bool:
    """Prolong the lease and tell the progress."""
    told: dict[str, Any] = {}
    if progress is not None:
        told = {"progress": progress[0], "progress_step": progress[1], "progress_at": Now()}
    return claim.mine.update(lease_until=lease(), heartbeat_at=Now(), **told) == 1


def is_cancelled(claim: Claim) -> bool:
    return claim.mine.filter(cancel_requested=True).exists()


@transaction.atomic
def finish(claim: Claim, ending: Ending) -> bool:
    """Results and state in one transaction, once. An answer tells the whole progress."""
    changes: dict[str, Any] = {
        "state": ending.state,
        "reason": ending.reason,
        "outcome_status": ending.outcome.status if ending.outcome else "",
        "finished_at": Now(),
        "lease_until": None,
        **vars(ending.diagnosis),
    }
    if ending.state in Run.ANSWERED:
        changes["progress"] = 1.0
    if ending.outcome is not None:
        changes["spec_id"] = ending.outcome.spec_id
        changes["spec"] = _spelled_out(claim.run.spec, ending.outcome)
        changes["model_states"] = states_in_words(ending.outcome.provenance)
        changes["dashboard_status"] = dashboard_status(ending.outcome.provenance)
    elif claim.run.family == "compilation" and claim.run.mode == "measured":
        changes["dashboard_status"] = ending.dashboard_status
    if claim.mine.update(**changes) != 1:
        return False
    if ending.outcome is not None:
        store_outcome(claim.run, ending.outcome)
    if ending.artifact is not None:
        Artifact.objects.filter(runs=claim.run).update(**ending.artifact)
    turns.enqueue(ending.next)
    fail_followers(claim.run.pk, ending.state, ending.reason)
    return True


def _spelled_out(asked: Mapping[str, Any], told: Outcome) -> dict[str, Any]:
    """The spec with the options that were still open when it was submitted as its outcome tells them.

    And with the knobs that repeat a search which its limit of time ended.
    """
    workload, answered = asked.get("workload", {}), told.spec.get("workload", {}).get("options", {})
    options = {name: answered[name] for name in OPEN if isinstance(answered.get(name), int | str)}
    spelled = {**asked, "workload": {**workload, "options": {**options, **workload.get("options", {})}}}
    reached = told.provenance.get("knobs_reached")
    if not isinstance(reached, dict) or not reached:  # the trial is not trusted
        return spelled
    return {**spelled, "knobs": {**asked.get("knobs", {}), **reached}}


def store_outcome(run: Run, outcome: Outcome) -> None:
    RunMetric.objects.bulk_create(
        [RunMetric(run=run, name=name, value=entry["value"]) for name, entry in outcome.metrics.items()]
    )
    RunDocument.objects.create(run=run, outcome=outcome.to_json())


def fail_followers(run: UUID, state: str, reason: str) -> None:
    """Runs that waited for one that did not succeed end with its reason, and so do theirs."""
    if state not in LOST:
        return
    followers = Run.objects.filter(after=run, state=Run.State.QUEUED)
    for follower in list(followers.values_list("pk", flat=True)):
        why = f"what it needs was not made ({state}): {reason}"
        ended = Run.objects.filter(pk=follower, state=Run.State.QUEUED)
        if ended.update(state=Run.State.FAILED, reason=why, finished_at=Now()):
            fail_followers(follower, Run.State.FAILED, reason)


def release(claim: Claim, *, lost: bool, **told: Any) -> bool:
    """Back into the queue; ``lost``: the worker could not go on, which is no fault of the run."""
    losses = F("infrastructure_losses") + (1 if lost else 0)
    back = {"state": Run.State.QUEUED, "lease_until": None, "infrastructure_losses": losses}
    return claim.mine.update(**back, **told) == 1


def postpone(claim: Claim, why: str) -> bool:
    """Back into the queue for a while, with the reason on its page: the lab could not carry it out."""
    pause = min(LONGEST_PAUSE, 2 ** min(claim.run.infrastructure_losses, 10))
    told = {"progress_step": f"tried again: {why}"[:120], "not_before": Now() + timedelta(seconds=pause)}
    return release(claim, lost=True, **told)


def wait_for(claim: Claim, needed: Run) -> bool:
    """Back into the queue until ``needed`` has succeeded."""
    return claim.mine.update(state=Run.State.QUEUED, lease_until=None, after=needed) == 1


@transaction.atomic
def record_crash(claim: Claim, reason: str, diagnosis: Diagnosis, artifact: dict[str, Any] | None) -> bool:
    """Another try, until the run crashed as often as it may; then it failed, with all that is known."""
    crashes = claim.run.crashes + 1
    if crashes >= settings.RUN_CRASHES:
        claim.mine.update(crashes=crashes)
        why = f"{reason}, {crashes} times"
        ending = Ending(Run.State.FAILED, why, None, INFRA_ERROR, artifact, diagnosis=diagnosis)
        return finish(claim, ending)
    return (
        claim.mine.update(state=Run.State.QUEUED, lease_until=None, crashes=crashes, **vars(diagnosis)) == 1
    )


def _shorten_waits() -> None:
    """No lease and no pause ends later than one begun now: those that do are of a clock that was set back."""
    longest = Now() + timedelta(seconds=LONGEST_PAUSE)
    Run.objects.filter(state=Run.State.RUNNING, lease_until__gt=lease()).update(lease_until=lease())
    Run.objects.filter(state=Run.State.QUEUED, not_before__gt=longest).update(not_before=longest)


def reap() -> int:
    """Re-queue runs whose lease expired, end what waits in vain; the number of runs changed."""
    _shorten_waits()
    expired = Run.objects.filter(state=Run.State.RUNNING, lease_until__lt=Now())
    cancelled = expired.filter(cancel_requested=True).update(
        state=Run.State.CANCELLED, reason="cancelled", finished_at=Now(), lease_until=None
    )
    requeued = expired.update(
        state=Run.State.QUEUED, lease_until=None, infrastructure_losses=F("infrastructure_losses") + 1
    )
    # Said of the column, too: only those that wait for another run are looked at, by its index.
    followers = Run.objects.filter(state=Run.State.QUEUED, after__isnull=False)
    in_vain = followers.filter(after__state__in=LOST).select_related("after")
    needed = {run.after for run in in_vain if run.after is not None}
    for run in needed:
        fail_followers(run.pk, run.state, run.reason)
    return cancelled + requeued + len(needed)
