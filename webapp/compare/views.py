"""Comparison pages: the runs of an experiment, or any runs of the project."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.accounts.models import Project
from webapp.compare import services
from webapp.compare.answer import Answer, answer_of
from webapp.compare.choice import choice_of
from webapp.compare.chooser import PREFIX, chooser, is_choosing
from webapp.compare.comparison import Comparison, Line, compare
from webapp.compare.export import download
from webapp.compare.fallen import fallen_of
from webapp.compare.figures.chosen import draw_chosen
from webapp.compare.filters import MOST_RUNS, RunFilter, comparable, named_runs
from webapp.compare.origins import differing_origins
from webapp.compare.tables import export_table
from webapp.navigation import project_url
from webapp.presentation import simulator_errors
from webapp.rates.panel import panel_of
from webapp.runs.models import Experiment, Run

PER_PAGE = 100


def _experiment(request: ProjectRequest, experiment: UUID) -> Experiment:
    return get_object_or_404(Experiment.objects.not_trashed(), pk=experiment, project=request.project)


@require_safe
@in_project(exports=True)
def experiment(request: ProjectRequest, experiment: UUID) -> HttpResponseBase:
    found = _experiment(request, experiment)
    runs = comparable(request.project).filter(experiment=found)
    if found.is_logged:
        return redirect(f"{project_url(request.project, 'logged:comparison')}?experiment={found.pk}")
    page = {"experiment": found, "heading": found.name, "rates": panel_of(found)}
    page["as_groups"] = groups_url(
        request.project, f"experiment = {_quote(found.name)} group by policy: count"
    )
    return comparison_page(request, runs, page, str(found.pinned_id or ""))


@require_safe
@in_project(exports=True)
def runs(request: ProjectRequest) -> HttpResponseBase:
    """Any runs of the project: ``?run=<id>&run=<id>`` or ``?run=<id>,<id>``, ``?chosen=<key>`` where they are
    many; else all to choose from.
    """
    query = services.unfold(request.project, request.GET)
    if is_choosing(query):
        page = {"chooser": chooser(request.project, query), "is_asked": "compare" in query}
        return render(request, "compare/chooser.html", page)
    named = named_runs(query)
    if "compare" in query:
        asked = QueryDict(urlencode({"run": named}, doseq=True))
        return redirect(f"{request.path}?{services.shorten(request.project, asked).urlencode()}")
    if Run.objects.filter(project=request.project, pk__in=named, kind=Run.Kind.LOGGED).exists():
        return redirect(
            f"{project_url(request.project, 'logged:comparison')}?{urlencode({'run': named}, doseq=True)}"
        )
    if "export" not in request.GET and services.is_long(request.GET):
        return redirect(f"{request.path}?{services.shorten(request.project, request.GET).urlencode()}")
    chosen = comparable(request.project).filter(pk__in=named)
    those = {name: request.GET.getlist(name) for name in ("run", "chosen")}
    other_runs = f"?{urlencode({**those, f'{PREFIX}-q': ''}, doseq=True)}"
    return comparison_page(request, chosen, {"heading": "Comparison", "other_runs": other_runs}, "")


def groups_url(project: Project, search: str) -> str:
    """The page of all runs with a search in groups, which may be of as many runs as there are."""
    return f"{project_url(project, 'history:index')}?{urlencode({'q': search})}"


def _quote(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def comparison_page(
    request: ProjectRequest, runs: QuerySet[Run], page: dict[str, Any], pinned: str
) -> HttpResponseBase:
    """The first of the runs, compared; ``page`` says what they are, ``as_groups`` where all of them are."""
    chosen, choice = RunFilter(request.GET, runs), choice_of(request.GET)
    compared = list(chosen.qs[:MOST_RUNS])
    comparison = compare(compared, choice, pinned)
    errors = simulator_errors(request)
    if "export" in request.GET:
        return download(export_table(comparison, page["heading"], errors), request.GET["export"])
    asked = answer_of(comparison, request.project, errors)
    answer = None if chosen.is_narrowed else asked  # of a part there is a figure, but no finding
    page |= {
        "filter": chosen,
        "choice": choice,
        "comparison": comparison,
        "lines": Paginator(_shown_lines(comparison, answer), PER_PAGE).get_page(request.GET.get("page")),
        "answer": answer,
        "origins": differing_origins(comparison),
        "fallen": fallen_of(answer, page.get("experiment")) if answer else None,
        "figure": draw_chosen(comparison, asked, choice, request.project, errors),
        "any_runs": bool(compared) or runs.exists(),
        "most": MOST_RUNS,
        "of": chosen.qs.order_by().count() if len(compared) == MOST_RUNS else len(compared),
        "moving": runs.exclude(state__in=Run.FINAL).exists(),
    }
    return render(request, "compare/comparison.html", page)


def _shown_lines(comparison: Comparison, answer: Answer | None) -> list[Line]:
    """The lines of the table: with an answer those with figures, and what they are compared with."""
    hidden = (*answer.case.fallen, *answer.case.waiting) if answer and answer.case.done else ()
    return [line for line in comparison.lines if line.is_baseline or line.entry not in hidden]


@require_POST
@in_project()
def pin(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    """Pins ``run`` of the experiment as everybody's baseline; without one, unpins."""
    found = _experiment(request, experiment)
    wanted = named_runs(request.POST)
    run = get_object_or_404(Run, pk=wanted[0], experiment=found) if wanted else None
    services.pin(found, run)
    return redirect(project_url(request.project, "compare:experiment", experiment=found.pk))
