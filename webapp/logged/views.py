"""Pages of runs that people's own programs log."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import download
from webapp.compare.export_table import Column, Table
from webapp.compare.filters import named_runs
from webapp.history.discussion import discussion_of
from webapp.logged import points, shown
from webapp.logged.comparison import compare
from webapp.logged.figures import MOST_PLOTS, STEP, TIME, kind_of, plots_of
from webapp.logged.models import LoggedImage, LoggedRun, LoggedTable
from webapp.runs.models import Experiment, Run

MOST_COMPARED = 50
#: Rows of a file of points.
MOST_EXPORTED = 500_000


def _asked_by(request: ProjectRequest) -> str:
    return TIME if request.GET.get("by") == TIME else STEP


@require_safe
@in_project(exports=True)
def run(request: ProjectRequest, logged: UUID) -> HttpResponseBase:
    """What a program logged: its figures by step or time, its parameters, where it ran."""
    runs = LoggedRun.objects.select_related("run__experiment", "run__owner")
    found = get_object_or_404(runs, pk=logged, run__project=request.project, run__trash=None)
    series = list(found.series.all())
    if "export" in request.GET:
        return download(_points_table(found), request.GET["export"])
    by = _asked_by(request)
    page: dict[str, Any] = {
        "logged": found,
        "run": found.run,
        "series": series,
        "plots": plots_of(series, {}, by),
        "tables": shown.tables_of(found, request.GET.get("table", "")),
        "images": shown.images_of(found),
        "undrawn": len({kind_of(one.name) for one in series}) - MOST_PLOTS,
        "by": by,
        "params": sorted(found.run.spec.get("knobs", {}).items()),
        "environment": sorted(found.environment.items()),
        "tags": found.run.tags.order_by("name"),
        "files": found.files.filter(trashed_at=None).order_by("name"),
        "is_moving": not found.run.is_final,
        "discussion": discussion_of(found.run, request.user),
    }
    return render(request, "logged/run.html", page)


@require_safe
@in_project()
def image(request: ProjectRequest, logged: UUID, image: int) -> HttpResponse:
    """A picture that a program logged, as it came; a browser may do nothing with it but show it."""
    kept = LoggedImage.objects.filter(logged__run__project=request.project, logged__run__trash=None)
    found = get_object_or_404(kept, pk=image, logged=logged)
    answer = HttpResponse(bytes(found.data), content_type=f"image/{found.kind}")
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Content-Disposition"] = f'inline; filename="{found.step}.{found.kind}"'
    return answer


@require_safe
@in_project(exports=True)
def table(request: ProjectRequest, logged: UUID, table: int) -> HttpResponseBase:
    """A table that a program logged, as a file."""
    kept = LoggedTable.objects.filter(logged__run__project=request.project, logged__run__trash=None)
    found = get_object_or_404(kept, pk=table, logged=logged)
    columns = tuple(Column(name) for name in found.columns)
    told = Table(str(found), columns, tuple(map(tuple, found.rows)))
    return download(told, request.GET.get("export", "csv"))


def _points_table(logged: LoggedRun) -> Table:
    """Every point, in the order of figures and steps."""
    series = {one.pk: one.name for one in logged.series.all()}
    rows: list[tuple[Any, ...]] = []
    for pk, found in points.read(list(series)).items():
        rows += zip([series[pk]] * len(found.steps), found.steps, found.at, found.values, strict=True)
    columns = (Column("figure"), Column("step", "", is_figure=True), Column("moment", "s", is_figure=True))
    title = str(logged.run.policy)
    if len(rows) > MOST_EXPORTED:
        title = f"{title}, the first {MOST_EXPORTED:,} points of {len(rows):,}"
    return Table(title, (*columns, Column("value", "", is_figure=True)), tuple(rows[:MOST_EXPORTED]))


@require_safe
@in_project()
def comparison(request: ProjectRequest) -> HttpResponse:
    """Logged runs over one another: ``?run=`` several times, or all of an ``?experiment=``."""
    runs = Run.objects.filter(project=request.project, kind=Run.Kind.LOGGED).select_related("experiment")
    experiment = _experiment(request)
    chosen = runs.filter(experiment=experiment) if experiment else runs.filter(pk__in=named_runs(request.GET))
    shown = list(chosen.order_by("queued_at", "id")[: MOST_COMPARED + 1])
    by = _asked_by(request)
    page = {
        "experiment": experiment,
        "comparison": compare(shown[:MOST_COMPARED], by),
        "is_cut": len(shown) > MOST_COMPARED,
        "most": MOST_COMPARED,
        "by": by,
    }
    return render(request, "logged/comparison.html", page)


def _experiment(request: ProjectRequest) -> Experiment | None:
    asked = named_runs(request.GET, "experiment")
    if not asked:
        return None
    return get_object_or_404(Experiment.objects.not_trashed(), pk=asked[0], project=request.project)
