"""Comparison pages: the runs of an experiment, or any runs of the project."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare import plots, services
from webapp.compare.answer import answer_of
from webapp.compare.choice import choice_of
from webapp.compare.comparison import compare
from webapp.compare.export import download
from webapp.compare.filters import MOST_RUNS, RunFilter, comparable, named_runs
from webapp.compare.parallel import parallel
from webapp.compare.tables import export_table
from webapp.navigation import project_url
from webapp.presentation import simulator_errors
from webapp.runs.models import Experiment, Run

PER_PAGE = 100


def _experiment(request: ProjectRequest, experiment: UUID) -> Experiment:
    return get_object_or_404(Experiment.objects.not_trashed(), pk=experiment, project=request.project)


@require_safe
@in_project()
def experiment(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    found = _experiment(request, experiment)
    runs = comparable(request.project).filter(experiment=found)
    page = {"experiment": found, "heading": found.name}
    return _page(request, runs, page, str(found.pinned_id or ""))


@require_safe
@in_project()
def runs(request: ProjectRequest) -> HttpResponse:
    """Any runs of the project: ``?run=<id>&run=<id>`` or ``?run=<id>,<id>``."""
    chosen = comparable(request.project).filter(pk__in=named_runs(request.GET))
    return _page(request, chosen, {"heading": "Comparison"}, "")


def _page(request: ProjectRequest, runs: QuerySet[Run], page: dict[str, Any], pinned: str) -> HttpResponse:
    chosen, choice = RunFilter(request.GET, runs), choice_of(request.GET)
    comparison = compare(list(chosen.qs[:MOST_RUNS]), choice, pinned)
    errors = simulator_errors(request)
    if "export" in request.GET:
        return download(export_table(comparison, page["heading"], errors), request.GET["export"])
    page |= {
        "filter": chosen,
        "choice": choice,
        "comparison": comparison,
        "lines": Paginator(comparison.lines, PER_PAGE).get_page(request.GET.get("page")),
        "scatter": plots.scatter(comparison, choice, request.project, errors),
        "parallel": parallel(comparison, request.project),
        "bars": plots.bars(comparison, choice, request.project),
        "answer": answer_of(comparison),
        "any_runs": runs.exists(),
        "moving": runs.exclude(state__in=Run.FINAL).exists(),
    }
    return render(request, "compare/comparison.html", page)


@require_POST
@in_project()
def pin(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    """Pins ``run`` of the experiment as everybody's baseline; without one, unpins."""
    found = _experiment(request, experiment)
    wanted = named_runs(request.POST)
    run = get_object_or_404(Run, pk=wanted[0], experiment=found) if wanted else None
    services.pin(found, run)
    return redirect(project_url(request.project, "compare:experiment", experiment=found.pk))
