"""Which commit a figure's step is of: the step's run is carried out by stored revisions, halving their range.

Both ends are tried first: where the old revision gives the new figure too, or the new one does not any more,
it is not the code. A revision that gives no figure is left out, as git's own bisect skips one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from django.db import transaction

from experiments.core.errors import BadInput
from webapp.accounts.models import User
from webapp.nightly.changes import REPEATS
from webapp.nightly.levels import shows_step
from webapp.nightly.models import Bisection, Change
from webapp.nightly.services import UNFINISHED
from webapp.nightly.suspects import Commit, commits_between
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, Run
from webapp.runs.services import add_runs

State = Bisection.State
Verdict = Literal["old", "new", "none"]
OLD: Verdict = "old"
NEW: Verdict = "new"
NONE: Verdict = "none"


@dataclass(frozen=True)
class Probe:
    """A revision of the range: what its runs gave, or ``None`` while nothing is known."""

    commit: Commit
    verdict: Verdict | None
    value: float | None
    runs: Sequence[Run]
    is_found: bool


@transaction.atomic
def begin(change: Change, user: User) -> Bisection:
    """Try both ends of the change's range; ``BadInput`` says why it cannot be searched.

    Of two who begin at the same time the second is told that it is being searched.
    """
    Change.objects.select_for_update().get(pk=change.pk)
    if change.bisections.filter(state=State.RUNNING).exists():
        raise BadInput("it is being looked for already", "change", "one search at a time")
    run = change.run
    if run is None or run.artifact is None:
        raise BadInput("the run that stepped, or its upload, is gone", "change", "a run that can be repeated")
    commits = commits_between(change.suspects)
    if commits is None:
        raise BadInput("this server's checkout has no such range of revisions", "change", change.suspects)
    if len(commits) < 2:
        raise BadInput("no commit of the range changed the package that runs carry out", "change", "a commit")
    experiment = Experiment.objects.create(
        project=change.schedule.project,
        name=f"Bisect: {change}"[:160],
        request={"bisects": change.pk},
        created_by=user,
    )
    revisions = [commit.revision for commit in commits]
    made = Bisection.objects.create(
        change=change, experiment=experiment, revisions=revisions, created_by=user
    )
    _try(made, [0, len(revisions) - 1])
    return made


def go_on() -> None:
    """One step of every search whose probes have ended."""
    for one in Bisection.objects.filter(state=State.RUNNING).select_related("change__run", "experiment"):
        advance(one)


@transaction.atomic
def advance(bisection: Bisection) -> None:
    """Try the next revision, or say what was found. Of two callers the second finds what the first did."""
    Bisection.objects.select_for_update().get(pk=bisection.pk)
    bisection.refresh_from_db(fields=["state"])
    if bisection.state != State.RUNNING:
        return
    if bisection.experiment is None:
        _end(bisection, State.FAILED)
        return
    if Run.everything.filter(experiment=bisection.experiment, state__in=UNFINISHED).exists():
        return
    verdicts = _verdicts(bisection)
    last = len(bisection.revisions) - 1
    if NONE in (verdicts.get(0), verdicts.get(last)):
        _end(bisection, State.FAILED)
    elif verdicts.get(0) == NEW or verdicts.get(last) == OLD:
        _end(bisection, State.NOT_CODE)
    else:
        _narrow(bisection, verdicts, last)


def _narrow(bisection: Bisection, verdicts: Mapping[int, Verdict], last: int) -> None:
    high = min(place for place, verdict in verdicts.items() if verdict == NEW)
    low = max(place for place, verdict in verdicts.items() if verdict == OLD and place < high)
    untried = [place for place in range(low + 1, high) if place not in verdicts]
    if untried:
        middle = (low + high) / 2
        _try(bisection, [min(untried, key=lambda place: abs(place - middle))])
        return
    bisection.found = bisection.revisions[high]
    _end(bisection, State.FOUND if high - low == 1 else State.UNCLEAR)


def _end(bisection: Bisection, state: str) -> None:
    bisection.state = state
    bisection.save(update_fields=["state", "found"])


def _try(bisection: Bisection, places: Sequence[int]) -> None:
    change, user = bisection.change, bisection.created_by
    run = change.run
    if run is None or run.artifact is None or bisection.experiment is None:
        _end(bisection, State.FAILED)
        return
    trials = [Trial(run.artifact, run.spec, run.needs)] * (REPEATS if run.mode == "measured" else 1)
    for place in places:
        add_runs(bisection.experiment, user, trials, bisection.revisions[place])


def _verdicts(bisection: Bisection) -> dict[int, Verdict]:
    """What every revision that was tried gave, by its place in the range."""
    found: dict[int, Verdict] = {}
    for place, runs in _runs_by_place(bisection).items():
        value = _value(runs, bisection.change.metric)
        shown = value is not None and shows_step(bisection.change.before, bisection.change.after, [value])
        found[place] = NONE if value is None else NEW if shown else OLD
    return found


def _runs_by_place(bisection: Bisection) -> dict[int, list[Run]]:
    """With those that somebody put into the trash: what they gave was given."""
    places = {revision: place for place, revision in enumerate(bisection.revisions)}
    found: dict[int, list[Run]] = {}
    runs = Run.everything.filter(experiment=bisection.experiment, experiment__isnull=False)
    for run in runs.with_figures().order_by("queued_at", "id"):
        found.setdefault(places[run.revision], []).append(run)
    return found


def _value(runs: Sequence[Run], metric: str) -> float | None:
    """The median of the figure; ``None`` where no run has it."""
    values = [run.figures[metric] for run in runs if metric in run.figures]
    return median(values) if values else None


def probes_of(bisection: Bisection) -> list[Probe]:
    """The revisions that were tried, with what is known of them, the newest first."""
    verdicts, runs = _verdicts(bisection), _runs_by_place(bisection)
    told = {commit.revision: commit for commit in commits_between(bisection.change.suspects) or ()}
    found = []
    for place, tried in sorted(runs.items(), reverse=True):
        revision = bisection.revisions[place]
        is_ended = all(run.is_final for run in tried)
        found.append(
            Probe(
                told.get(revision, Commit(revision, "", "", "")),
                verdicts.get(place) if is_ended else None,
                _value(tried, bisection.change.metric),
                tried,
                bisection.state in (State.FOUND, State.UNCLEAR) and revision == bisection.found,
            )
        )
    return found
