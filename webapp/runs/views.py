"""Pages of experiments and runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.policy import FAMILIES
from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import download as download_table
from webapp.compare.listing import asked_export
from webapp.navigation import project_url
from webapp.presentation import simulator_errors
from webapp.runs import again, document, listings, live, services
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Experiment, Run
from webapp.runs.question import question_of
from webapp.runs.tables import ExperimentTable, RunTable

PLAN_ROWS, SHOWN_IN_PREVIEW = 15, 30


def _experiment(request: ProjectRequest, experiment: UUID) -> Experiment:
    return get_object_or_404(Experiment.objects.not_trashed(), pk=experiment, project=request.project)


def _run(request: ProjectRequest, run: UUID) -> Run:
    found = Run.objects.select_related("experiment", "artifact", "host", "owner")
    return get_object_or_404(found, pk=run, project=request.project)


@require_safe
@in_project()
def experiments(request: ProjectRequest) -> HttpResponse:
    found = Experiment.objects.filter(project=request.project).not_trashed().select_related("created_by")
    table = ExperimentTable(found.with_counts(), request)
    return asked_export(request, table) or render(request, "runs/experiments.html", {"table": table})


def _initial_values(request: ProjectRequest) -> dict[str, Any]:
    """What fills a new form: an experiment (``?from=``), a run (``?run=``) artifacts
    (``?artifact=1&family=memory``) or policies (``?policy=memory/vdnn-all``).
    """
    chosen: QueryDict = request.GET
    if "from" in chosen:
        asked: dict[str, Any] = _experiment(request, _uuid(chosen.get("from", ""))).request
        return asked
    if "run" in chosen:
        return again.from_run(_run(request, _uuid(chosen.get("run", ""))))
    artifacts = [int(pk) for pk in chosen.getlist("artifact") if pk.isdecimal() and len(pk) < 18]
    return again.preset(artifacts, chosen.get("family", ""), chosen.getlist("policy"))


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def new(request: ProjectRequest) -> HttpResponse:
    if request.method != "POST":
        form = ExperimentForm(request.project, initial=_initial_values(request))
        return render(request, "runs/new.html", {"form": form})
    family = request.POST.get("all", "")
    asked = again.everything(family, request.POST) if family in FAMILIES else request.POST
    form = ExperimentForm(request.project, asked)
    if not form.is_valid():
        return render(request, "runs/new.html", {"form": form}, status=422)
    made = services.submit_experiment(
        request.project,
        request.user,
        name=form.cleaned_data["name"],
        trials=form.cleaned_data["expansion"].trials,
        request=form.request_json(),
    )
    page = "compare:experiment" if family in FAMILIES else "runs:experiment"
    return redirect(project_url(request.project, page, experiment=made.pk))


@require_POST
@in_project()
def preview(request: ProjectRequest) -> HttpResponse:
    """How many runs the form would start, the first of them, and what is left out."""
    form = ExperimentForm(request.project, request.POST)
    expansion = form.cleaned_data.get("expansion") if form.is_valid() else None
    shown = expansion.trials[:SHOWN_IN_PREVIEW] if expansion else ()
    page = {"form": form, "expansion": expansion, "shown": shown}
    return render(request, "runs/preview.html", page)


@require_safe
@in_project()
def experiment(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    """The live grid; the file of it (``?export=``) has every run."""
    found = _experiment(request, experiment)
    if "export" in request.GET:
        runs = found.runs.select_related("experiment", "artifact", "host")
        return download_table(RunTable(runs, request, title=found.name).export_table(), request.GET["export"])
    return render(request, "runs/experiment.html", {"experiment": found, "grid": live.grid(found)})


@require_safe
@in_project()
def grid(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    """The part of the experiment page that moves, asked for again when something has happened."""
    found = _experiment(request, experiment)
    return render(request, "runs/grid.html", {"experiment": found, "grid": live.grid(found)})


@require_safe
@in_project()
def events(request: ProjectRequest, experiment: UUID) -> HttpResponseBase:
    """Server-sent events: ``changed`` whenever a run of the experiment has moved, ``ended`` when all have
    ended.
    """
    return live.stream(_experiment(request, experiment).pk)


@require_POST
@in_project()
def cancel_experiment(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    found = _experiment(request, experiment)
    services.cancel_experiment(found)
    return redirect(project_url(request.project, "runs:experiment", experiment=found.pk))


@require_POST
@in_project()
def trash_experiment(request: ProjectRequest, experiment: UUID) -> HttpResponse:
    found = _experiment(request, experiment)
    services.trash_experiment(found)
    messages.success(request, f"{found} is in the trash of the team; it can be restored there.")
    return redirect(project_url(request.project, "runs:experiments"))


@require_safe
@in_project()
def run(request: ProjectRequest, run: UUID) -> HttpResponse:
    found = _run(request, run)
    page = {
        "run": found,
        "view": document.view_of(found),
        "position": live.position(found),
        "question": question_of(found),
        "server": request.build_absolute_uri("/").rstrip("/"),
        "simulator_error": simulator_errors(request).of(found.family, found.hardware),
    }
    return render(request, "runs/run.html", page)


@require_safe
@in_project()
def plan(request: ProjectRequest, run: UUID) -> HttpResponse:
    """One page of one table of the plan."""
    found = document.view_of(_run(request, run))
    table = found.plan_table(request.GET.get("table", ""))
    if "export" in request.GET:
        return download_table(listings.plan_table(table), request.GET["export"])
    page = Paginator(table.rows, PLAN_ROWS).get_page(request.GET.get("page"))
    return render(request, "runs/plan.html", {"table": table, "page": page, "run_id": run})


@require_safe
@in_project()
def spec(request: ProjectRequest, run: UUID) -> JsonResponse:
    """The run's spec as a file: ``python -m experiments run spec.json`` repeats the run."""
    found = _run(request, run)
    answer = JsonResponse(document.repeatable_spec(found), json_dumps_params={"indent": 2})
    answer["Content-Disposition"] = f'attachment; filename="spec-{found.pk}.json"'
    return answer


@require_safe
@in_project()
def trace(request: ProjectRequest, run: UUID) -> JsonResponse:
    """The run's outcome as a trace that Perfetto opens; 404 for a run that has none."""
    found = _run(request, run)
    answer = JsonResponse(document.trace_of(found))
    answer["Content-Disposition"] = f'attachment; filename="trace-{found.pk}.json"'
    return answer


@require_POST
@in_project()
def cancel_run(request: ProjectRequest, run: UUID) -> HttpResponse:
    found = _run(request, run)
    services.cancel(found)
    if found.experiment_id:
        return redirect(project_url(request.project, "runs:experiment", experiment=found.experiment_id))
    return redirect(project_url(request.project, "runs:run", run=found.pk))
