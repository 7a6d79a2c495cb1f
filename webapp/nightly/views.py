"""Pages of nightly suites: the schedules of a project, and one schedule's calendar and history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.suites import load_suite
from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.listing import asked_export
from webapp.navigation import project_url
from webapp.nightly import calendar, changes, charts, history, services, steps
from webapp.nightly.forms import ScheduleForm
from webapp.nightly.levels import FEWEST_MEASURED
from webapp.nightly.models import Change, Night, Schedule
from webapp.nightly.recent import trends_of
from webapp.nightly.sample import sample_page
from webapp.nightly.tables import AlertTable, NightTable, ScheduleTable, schedule_rows
from webapp.runs.models import Preset

LAST_NIGHTS = 14


def _schedule(request: ProjectRequest, schedule: int) -> Schedule:
    found = Schedule.objects.select_related("project__team", "task", "preset")
    return get_object_or_404(found, pk=schedule, project=request.project)


@require_http_methods(["GET", "HEAD", "POST"])
@in_project(exports=True)
def index(request: ProjectRequest) -> HttpResponseBase:
    """All schedules with their last nights; a POST makes one."""
    form = ScheduleForm(request.project, request.POST or None, initial=request.GET.dict())
    if request.method == "POST" and form.is_valid():
        return _create(request, **form.cleaned_data)
    schedules = request.project.schedules.select_related("created_by").order_by("suite", "hour", "minute")
    table = ScheduleTable(schedule_rows(schedules, LAST_NIGHTS), request)
    file = asked_export(request, table) if request.method != "POST" else None
    open_changes = changes.of_project(request.project).filter(state=Change.State.OPEN).count()
    page: dict[str, Any] = {"table": table, "form": form, "open_changes": open_changes}
    if not Night.objects.filter(schedule__project=request.project).exists():
        page["sample"] = sample_page(timezone.now())
    return file or render(request, "nightly/index.html", page, status=422 if form.errors else 200)


@require_safe
@in_project()
def recent(request: ProjectRequest) -> HttpResponse:
    """The series in short, for the home page, which does not wait for them."""
    trends, total = trends_of(request.project)
    return render(request, "nightly/recent.html", {"trends": trends, "total": total})


def _create(request: ProjectRequest, suite: str | Preset, at: time, days: str) -> HttpResponse:
    """A schedule; of the same suite at the same time there is one, and another time is said to be another."""
    preset = suite if isinstance(suite, Preset) else None
    others = request.project.schedules.filter(suite=str(suite), preset=preset).order_by("pk")
    first = others.filter(hour=at.hour, minute=at.minute).first() or others.first()
    if first and (first.hour, first.minute) == (at.hour, at.minute):
        messages.warning(
            request, f"{suite} runs at {at:%H:%M} UTC already, by this schedule; none was added."
        )
        return redirect(project_url(request.project, "nightly:schedule", schedule=first.pk))
    made = services.create_schedule(request.project, request.user, suite, at.hour, at.minute, days)
    if first:
        link = project_url(request.project, "nightly:schedule", schedule=first.pk)
        said = '{} runs at <a href="{}">{} UTC</a> too: it is carried out at each of these times.'
        messages.info(request, format_html(said, suite, link, f"{first.hour:02d}:{first.minute:02d}"))
    return redirect(project_url(request.project, "nightly:schedule", schedule=made.pk))


@require_safe
@in_project(exports=True)
def schedule(request: ProjectRequest, schedule: int) -> HttpResponseBase:
    found = _schedule(request, schedule)
    past = history.history(found)
    chosen = [name for name in request.GET.getlist("metric") if name in past.metrics]
    shown = chosen or past.metrics[: history.CHARTS_AT_FIRST]
    nights = calendar.count_nights(found)
    suite = None if found.preset else load_suite(found.suite)
    command = f"python -m experiments suite {suite.name}" if suite else ""
    cells = calendar.cells(nights)
    alerts = AlertTable(steps.alerts(past), request)
    table = NightTable(cells, request, command=command, per_page=LAST_NIGHTS)
    page = {
        "schedule": found,
        "title": suite.title if suite else found.suite,
        "about": suite.about if suite else "",
        "weeks": calendar.weeks(found, nights, timezone.now()),
        "nights": table,
        "metrics": past.metrics,
        "only_night": past.points[0].run.experiment_id if past.points else None,
        "shown": shown,
        "charts": [charts.chart(past, name, found, cells) for name in shown] if past.nights > 1 else [],
        "alerts": alerts,
        "too_few": FEWEST_MEASURED if steps.is_too_short(past) else 0,
    }
    return asked_export(request, alerts, table) or render(request, "nightly/schedule.html", page)


@require_POST
@in_project()
def run_now(request: ProjectRequest, schedule: int) -> HttpResponse:
    night = services.run_now(_schedule(request, schedule))
    if night.skipped:
        messages.warning(request, f"Not started: {night.skipped}.")
        return redirect(project_url(request.project, "nightly:schedule", schedule=schedule))
    return redirect(project_url(request.project, "runs:experiment", experiment=night.experiment_id))


def _change(request: ProjectRequest, schedule: int, change: Callable[[Schedule], None]) -> HttpResponse:
    change(_schedule(request, schedule))
    return redirect(project_url(request.project, "nightly:schedule", schedule=schedule))


@require_POST
@in_project()
def pause(request: ProjectRequest, schedule: int) -> HttpResponse:
    return _change(request, schedule, lambda found: services.set_enabled(found, False))


@require_POST
@in_project()
def resume(request: ProjectRequest, schedule: int) -> HttpResponse:
    return _change(request, schedule, lambda found: services.set_enabled(found, True))


@require_POST
@in_project()
def remove(request: ProjectRequest, schedule: int) -> HttpResponse:
    found = _schedule(request, schedule)
    services.remove(found)
    messages.success(
        request, f"{found.suite} is not run at night any more. The experiments of its nights stay."
    )
    return redirect(project_url(request.project, "nightly:index"))
