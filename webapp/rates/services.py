"""Changes of a search for the highest rate: begun, gone on with as its runs end, stopped."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from experiments.core.errors import BadInput
from experiments.core.rate_search import MOST_TRIALS, RateGoal
from webapp.accounts.models import User
from webapp.rates.lines import RateLine, lines_of, with_rate
from webapp.rates.models import RateStudy
from webapp.runs.grid import MOST_RUNS, Trial
from webapp.runs.models import Experiment
from webapp.runs.services import add_runs, cancel

#: So many lines may be searched at once: each asks for twelve runs at most.
MOST_LINES = MOST_RUNS // MOST_TRIALS


@transaction.atomic
def begin(experiment: Experiment, user: User | None, goal: RateGoal, policies: Sequence[str]) -> RateStudy:
    """Look for the highest rate of ``policies``, of all where none is named; ``BadInput`` says why not.

    The first runs are queued at once. Of two who begin at the same time the second is refused; one that has
    ended makes room for the next.
    """
    Experiment.objects.select_for_update().get(pk=experiment.pk)
    _check(experiment, goal, policies)
    RateStudy.objects.filter(experiment=experiment).delete()
    made = RateStudy.objects.create(
        experiment=experiment,
        policies=sorted(policies),
        attainment=goal.attainment,
        tbt_p99=goal.tbt_p99,
        delay_p50=goal.delay_p50,
        created_by=user,
    )
    advance(made)
    return made


def _check(experiment: Experiment, goal: RateGoal, policies: Sequence[str]) -> None:
    if RateStudy.objects.filter(experiment=experiment, ended_at=None).exists():
        raise BadInput("it is being looked for already", "experiment", "one search at a time")
    if not goal.is_asked:
        raise BadInput(
            "nothing is asked of a rate", "attainment", "a share in time, or the time between tokens"
        )
    lines = lines_of(experiment)
    known = {line.runs[0].policy for line in lines}
    if not known:
        what = "no run of this experiment serves requests at a rate"
        raise BadInput(what, "experiment", "runs of the serving family on a trace, or with the option rate")
    if unknown := sorted(set(policies) - known):
        raise BadInput(f"{unknown[0]!r:.80} has no run at a rate", "policies", ", ".join(sorted(known)))
    if len(lines) > MOST_LINES:
        raise BadInput(f"{len(lines)} lines", "experiment", f"at most {MOST_LINES}")


def go_on() -> None:
    """One step of every search that has not ended."""
    for study in RateStudy.objects.filter(ended_at=None).select_related("experiment"):
        advance(study)


@transaction.atomic
def advance(study: RateStudy) -> None:
    """Queue the next run of every line that waits for none. Of two callers the second finds it done."""
    study = RateStudy.objects.select_for_update(of=("self",)).select_related("experiment").get(pk=study.pk)
    if study.ended_at is not None:
        return
    lines = [] if study.experiment.trashed_at else lines_of(study.experiment, study)
    trials = [trial for line in lines if (trial := _next_trial(line)) is not None]
    if trials:
        add_runs(study.experiment, study.created_by, trials)
    elif all(line.is_done for line in lines):
        _end(study)


def _next_trial(line: RateLine) -> Trial | None:
    last = line.runs[-1]
    if line.next_rate is None or last.artifact is None:
        return None
    return Trial(last.artifact, with_rate(last, line.next_rate), last.needs)


def _end(study: RateStudy) -> None:
    study.ended_at = timezone.now()
    study.save(update_fields=["ended_at"])


@transaction.atomic
def stop(study: RateStudy) -> None:
    """Ask for no more runs, and cancel those that it queued and waits for."""
    found = RateStudy.objects.select_for_update().get(pk=study.pk)
    if found.ended_at is not None:
        return
    for line in lines_of(found.experiment, found):
        if line.waiting is not None and line.waiting.queued_at >= found.created_at:
            cancel(line.waiting)
    _end(found)
