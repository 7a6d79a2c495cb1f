"""The calendar of a schedule: one cell for each day of the last weeks, with how its night ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import Count, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from webapp.nightly.models import Night, Schedule
from webapp.runs.among import among
from webapp.runs.models import Run

WEEKS = 6
BAD = (Run.State.FAILED, Run.State.REJECTED, Run.State.CANCELLED)


@dataclass(frozen=True)
class Cell:
    """A night with its state: ``running``, ``succeeded``, ``failed`` (``bad`` of ``total`` runs) or
    ``skipped``.
    """

    night: Night
    state: str
    total: int
    bad: int


@dataclass(frozen=True)
class Day:
    """``missed``: the schedule was there, the slot has passed, and no message came."""

    date: date
    cells: tuple[Cell, ...]
    is_missed: bool
    is_future: bool


def cells(nights: Iterable[Night]) -> list[Cell]:
    """``nights`` with the counts of ``count_nights``."""
    return [_cell(night) for night in nights]


def count_nights(schedule: Schedule) -> list[Night]:
    """The nights of the calendar's weeks, newest first, with the number of their runs by how they ended."""
    return list(_with_counts(schedule.nights.all())[: WEEKS * 14])


def count_last_nights(schedules: Iterable[Schedule], most: int) -> dict[int, list[Night]]:
    """By schedule: its last nights as ``count_nights`` has them, asked for once for all schedules."""
    place = Window(RowNumber(), partition_by="schedule", order_by="-slot")
    numbered = Night.objects.filter(schedule__in=schedules).annotate(place=place)
    last = list(numbered.filter(place__lte=most).order_by().values_list("pk", flat=True))
    found: dict[int, list[Night]] = {}
    for night in _with_counts(Night.objects.filter(among("pk", last))):
        found.setdefault(night.schedule_id, []).append(night)
    return found


def _with_counts(nights: QuerySet[Night]) -> QuerySet[Night]:
    runs = {
        "total": Count("experiment__runs"),
        "bad": Count("experiment__runs", filter=Q(experiment__runs__state__in=BAD)),
        "ended": Count("experiment__runs", filter=Q(experiment__runs__state__in=Run.FINAL)),
    }
    return nights.select_related("experiment").annotate(**runs).order_by("-slot")


def _cell(night: Night) -> Cell:
    total, bad, ended = (int(getattr(night, name)) for name in ("total", "bad", "ended"))
    if night.skipped:
        return Cell(night, "skipped", total, bad)
    if ended < total:
        return Cell(night, "running", total, bad)
    return Cell(night, "failed" if bad or not total else "succeeded", total, bad)


def weeks(schedule: Schedule, nights: Iterable[Night], now: datetime) -> list[list[Day]]:
    """The last weeks since the schedule was made, Monday to Sunday, newest last. Days are those of UTC, as
    the schedule's time is.
    """
    by_day: dict[date, list[Cell]] = {}
    for cell in cells(nights):
        by_day.setdefault(cell.night.slot.astimezone(UTC).date(), []).append(cell)
    today = now.astimezone(UTC).date()
    monday = today - timedelta(days=today.weekday())
    born = schedule.created_at.astimezone(UTC).date()
    shown = min(WEEKS, max(1, (monday - born + timedelta(days=6)).days // 7 + 1))
    first = monday - timedelta(weeks=shown - 1)
    days = [_day(schedule, first + timedelta(days=offset), by_day, now) for offset in range(7 * shown)]
    return [days[start : start + 7] for start in range(0, len(days), 7)]


def _day(schedule: Schedule, day: date, by_day: Mapping[date, list[Cell]], now: datetime) -> Day:
    slot = datetime(day.year, day.month, day.day, schedule.hour, schedule.minute, tzinfo=UTC)
    found = tuple(by_day.get(day, ()))
    was_due = schedule.created_at <= slot <= now - timedelta(hours=1) and schedule.runs_on(day.weekday())
    at_slot = any(cell.night.slot == slot for cell in found)
    return Day(day, found, was_due and not at_slot and schedule.enabled, day > now.astimezone(UTC).date())
