"""Changes of nightly figures: found once a night's runs have ended, run again where they were measured, and
decided by people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from webapp.accounts.models import Project, User
from webapp.nightly import canary, second_opinion, steps
from webapp.nightly.history import History, history
from webapp.nightly.levels import is_worth_telling, shows_step
from webapp.nightly.models import Change, ChangeComment, Night, Schedule
from webapp.nightly.services import UNFINISHED
from webapp.runs.grid import Trial
from webapp.runs.models import Run
from webapp.runs.services import submit_experiment

#: A series may place the same step a few nights off once there are more of them.
MOVES = timedelta(days=3)
#: A step that has held for longer when it is first found is history: nobody is sent word of it.
NEWS = timedelta(days=7)
#: How often a measured run is repeated before its step is told.
REPEATS = 3
State = Change.State
#: What ended so was no level: a later step is one from the level before it.
NO_CHANGE = (State.UNCONFIRMED, State.FALSE_ALARM)


@dataclass(frozen=True)
class Precision:
    """Of the changes that people decided, how many were none."""

    decided: int
    false_alarms: int

    @property
    def share(self) -> float | None:
        return 1 - self.false_alarms / self.decided if self.decided else None


def watch(now: datetime) -> None:
    """Looks once at every schedule of which nights have ended since, and at what was run again."""
    ended = list(_ended_nights())
    for schedule in {night.schedule_id: night.schedule for night in ended}.values():
        look(schedule, now)
    Night.objects.filter(pk__in=[night.pk for night in ended]).update(looked_at=now)
    confirming = Change.objects.filter(state=State.CONFIRMING).select_related("schedule__project")
    for change in confirming.order_by("slot"):
        settle(change)


def _ended_nights() -> QuerySet[Night]:
    running = Run.objects.filter(experiment=OuterRef("experiment"), state__in=UNFINISHED)
    found = Night.objects.filter(looked_at=None, experiment__isnull=False).exclude(Exists(running))
    return found.select_related("schedule__project__team").order_by("slot")


def look(schedule: Schedule, now: datetime) -> list[Change]:
    """The changes that the nights show now, kept; one that they show no more is said to have vanished."""
    found, kept = _look(schedule, now)
    second_opinion.ask(found, kept)
    return kept


@transaction.atomic
def _look(schedule: Schedule, now: datetime) -> tuple[History, list[Change]]:
    """Of two looks at a schedule at the same time the second waits, and finds what the first has kept."""
    Schedule.objects.select_for_update().get(pk=schedule.pk)
    found = history(schedule)
    told = [_from_level_before(schedule, alert) for alert in steps.alerts(found)]
    told = [alert for alert in told if alert.is_worth_telling]
    kept = [_keep(schedule, alert, canary.drift_of(found, alert), now) for alert in told]
    seen = {change.pk for change in kept}
    gone = schedule.changes.filter(state__in=(State.OPEN, State.CONFIRMING)).exclude(pk__in=seen)
    if found.slots:
        gone.filter(slot__gt=min(found.slots)).update(state=State.VANISHED)
    return found, kept


def _from_level_before(schedule: Schedule, alert: steps.Alert) -> steps.Alert:
    """The step from the level that held, so that the way back from what was no change is none either."""
    earlier = _earlier(schedule, alert.title, alert.metric, alert.first_after.slot)
    return replace(alert, before=_level_before(earlier, alert.before))


def _earlier(schedule: Schedule, title: str, metric: str, slot: datetime) -> Change | None:
    """The last change of a series before that night."""
    return schedule.changes.filter(title=title, metric=metric, slot__lt=slot).order_by("slot").last()


def _level_before(earlier: Change | None, before: float) -> float:
    return earlier.before if earlier and earlier.state in NO_CHANGE else before


def _keep(schedule: Schedule, alert: steps.Alert, drift: float | None, now: datetime) -> Change:
    """The change of that step: known already, or new and where it was measured to be confirmed.

    One that its host's own drift explains is that, until somebody says otherwise.
    """
    slot, run = alert.first_after.slot, alert.first_after.run
    series = schedule.changes.filter(title=alert.title, metric=alert.metric, better=alert.better)
    near = series.filter(slot__range=(slot - MOVES, slot + MOVES))
    known = min(near, key=lambda change: abs(change.slot - slot), default=None)
    if known is None:
        known = Change(schedule=schedule, title=alert.title, metric=alert.metric, found_at=now)
        known.silent = now - slot > NEWS
    elif known.state == State.VANISHED:
        known.state = State.OPEN
    known.slot, known.before, known.after, known.better = slot, alert.before, alert.after, alert.better
    known.suspects, known.run = alert.suspects[:300], run
    known.drift = drift if run.mode == "measured" else None
    is_new, is_drift = known.pk is None, canary.explains(known.drift, alert)
    if is_new and is_drift:
        known.state = State.DRIFT
    known.save()
    if is_new and run.mode == "measured" and not (known.silent or is_drift):
        confirm(known)
    return known


@transaction.atomic
def confirm(change: Change, user: User | None = None) -> bool:
    """Runs what stepped again; ``False`` where it cannot be (its upload is gone)."""
    run = change.run
    if run is None or run.artifact is None:
        return False
    trial = Trial(run.artifact, run.spec, run.needs)
    change.confirmation = submit_experiment(
        change.schedule.project,
        user or change.schedule.created_by,  # type: ignore[arg-type]  # who made it may have left
        name=f"Again: {change}"[:160],
        trials=[trial] * REPEATS,
        request={"confirms": change.pk},
    )
    change.state = State.CONFIRMING
    change.save(update_fields=["confirmation", "state"])
    return True


def settle(change: Change) -> None:
    """Once its repeats have ended, and those of the change before it: a change that they show too, or without
    any figure, is open.
    """
    experiment = change.confirmation
    runs = Run.objects.filter(experiment=experiment) if experiment else Run.objects.none()
    if runs.filter(state__in=UNFINISHED).exists():
        return
    earlier = _earlier(change.schedule, change.title, change.metric, change.slot)
    if earlier and earlier.state == State.CONFIRMING:
        return
    change.before = _level_before(earlier, change.before)
    answered = runs.filter(state__in=Run.ANSWERED, metrics__name=change.metric)
    values = list(answered.values_list("metrics__value", flat=True))
    change.again = median(values) if values else None
    is_shown = not values or shows_step(change.before, change.after, values)
    is_step = is_shown and is_worth_telling(change.before, change.after)
    change.state = State.OPEN if is_step else State.UNCONFIRMED
    change.save(update_fields=["before", "again", "state"])


@transaction.atomic
def decide(change: Change, user: User, state: str, now: datetime) -> None:
    change.state, change.decided_by, change.decided_at = state, user, now
    change.save(update_fields=["state", "decided_by", "decided_at"])


@transaction.atomic
def assign(change: Change, assignee: User | None) -> None:
    change.assignee = assignee
    change.save(update_fields=["assignee"])


def comment(change: Change, author: User, text: str) -> ChangeComment:
    return ChangeComment.objects.create(change=change, author=author, text=text)


def of_project(project: Project) -> QuerySet[Change]:
    """Newest first; what is still being run again, or was not there then, too."""
    found = Change.objects.filter(schedule__project=project)
    return found.select_related("schedule", "assignee", "decided_by").order_by("-slot", "pk")


def precision(found: Iterable[Change]) -> Precision:
    """Of what people decided; what repeats did not confirm was never an alert."""
    states = [change.state for change in found]
    false = states.count(State.FALSE_ALARM)
    return Precision(false + states.count(State.ACKNOWLEDGED) + states.count(State.FIXED), false)
