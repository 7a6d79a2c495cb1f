"""Pages of experiments and runs."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.errors import BadInput
from experiments.core.policy import FAMILIES
from webapp.accounts.access import ProjectRequest, in_project, still_enters
from webapp.compare.export import download as download_table
from webapp.compare.listing import asked_export
from webapp.history.discussion import discussion_of
from webapp.navigation import project_url
from webapp.presentation import simulator_errors
from webapp.runs import again, choices, document, listings, live, presets, services
from webapp.runs.as_command import commands_of
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Experiment, Run
from webapp.runs.new_page import page_of
from webapp.runs.question import question_of
from webapp.runs.reasons import reason_in_words
from webapp.runs.tables import ExperimentTable, RunTable

PLAN_ROWS = 15


def _experiment(request: ProjectRequest, experiment: UUID) -> Experiment:
    return get_object_or_404(Experiment.objects.not_trashed(), pk=experiment, project=request.project)


def _run(request: ProjectRequest, run: UUID) -> Run:
    """Not in the trash, nor is its experiment."""
    found = Run.objects.select_related("experiment", "artifact", "host", "owner")
    there = found.exclude(experiment__trashed_at__isnull=False)
    return get_object_or_404(there, pk=run, project=request.project)


@require_safe
@in_project(exports=True)
def experiments(request: ProjectRequest) -> HttpResponseBase:
    found = Experiment.objects.filter(project=request.project).not_trashed().select_related("created_by")
    table = ExperimentTable(found.with_counts(), request)
    return asked_export(request, table) or render(request, "runs/experiments.html", {"table": table})


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def new(request: ProjectRequest) -> HttpResponse:
    """The page of a new experiment as its address asks; a POST launches it, or keeps it as a preset."""
    if request.method != "POST":
        found = choices.settle(request.project, choices.asked_by(request.project, request.GET))
        return _new_page(request, found, ExperimentForm(request.project, found.asked))
    family, found = request.POST.get("all", ""), choices.settle(request.project, request.POST)
    is_all = family in FAMILIES
    asked = again.everything(family, request.POST, found.kinds, found.told) if is_all else request.POST
    form = ExperimentForm(request.project, asked)
    if not form.is_valid():
        return _new_page(request, found, form)
    if "then" in request.POST:
        return _keep(request, found, form)
    made = services.submit_experiment(
        request.project,
        request.user,
        name=form.cleaned_data["name"],
        trials=form.cleaned_data["expansion"].trials,
        request=form.request_json(),
    )
    page = "compare:experiment" if is_all else "runs:experiment"
    return redirect(project_url(request.project, page, experiment=made.pk))


def _keep(request: ProjectRequest, found: choices.Choices, form: ExperimentForm) -> HttpResponse:
    """A preset of what is chosen, for everybody of the project; run at night, its schedule is next."""
    name = (form.cleaned_data["name"] or services.name_of(form.cleaned_data["expansion"].trials))[:80]
    try:
        made = presets.save_preset(request.project, request.user, name, found)
    except BadInput as error:
        form.add_error("name", str(error))
        return _new_page(request, found, form)
    if request.POST["then"] == "nightly":
        return redirect(f"{project_url(request.project, 'nightly:index')}?suite=preset:{made.pk}#schedule")
    messages.success(request, f"Kept as {made}: it is under Presets for everybody of this project.")
    return redirect(f"{project_url(request.project, 'runs:new')}?{found.address}")


def _new_page(request: ProjectRequest, found: choices.Choices, form: ExperimentForm) -> HttpResponse:
    """With what is wrong of a launch, if it was one; what was typed stays."""
    page = page_of(request.project, found, form)
    return render(request, "runs/new.html", page, status=422 if request.method == "POST" else 200)


@require_safe
@in_project()
def preview(request: ProjectRequest) -> HttpResponse:
    """What of the page follows a choice: the sentence, the drawing and the summary; and the lists of options
    and policies where they are others now. ``New-Address`` is the page's with these choices.
    """
    found = choices.settle(request.project, request.GET)
    page = page_of(request.project, found, ExperimentForm(request.project, found.asked))
    answer = render(request, "runs/preview.html", {**page, "anew": found.shown != request.GET.get("shown")})
    answer["New-Address"] = f"{project_url(request.project, 'runs:new')}?{found.address}"
    return answer


@require_safe
@in_project()
def command(request: ProjectRequest) -> HttpResponse:
    """What is chosen as commands to copy; what is wrong of it where it cannot be run."""
    found = choices.settle(request.project, request.GET)
    form = ExperimentForm(request.project, found.asked)
    page: dict[str, Any] = {"form": form}
    if form.is_valid():
        trials = form.cleaned_data["expansion"].trials
        name = form.cleaned_data["name"] or services.name_of(trials)
        server = request.build_absolute_uri("/").rstrip("/")
        page["commands"] = commands_of(request.project, name, trials, server)
    return render(request, "runs/new/command.html", page)


@require_POST
@in_project()
def remove_preset(request: ProjectRequest, preset: int) -> HttpResponse:
    found = get_object_or_404(request.project.presets, pk=preset)
    try:
        presets.remove_preset(found)
        messages.success(request, f"The preset {found} is removed. Its experiments stay.")
    except BadInput as error:
        messages.error(request, f"Not removed: {error}")
    return redirect(f"{project_url(request.project, 'runs:new')}?{found.address}")


@require_safe
@in_project(exports=True)
def experiment(request: ProjectRequest, experiment: UUID) -> HttpResponseBase:
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
    ended. It ends within seconds for who was removed from the team.
    """
    return live.stream(_experiment(request, experiment).pk, partial(still_enters, request))


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
    trashed = Run.everything.filter(pk=run, project=request.project, trash__isnull=False)
    if thrown_away := trashed.select_related("trash__by").first():
        return render(request, "runs/in_trash.html", {"run": thrown_away}, status=410)
    found = _run(request, run)
    if found.kind == Run.Kind.LOGGED:
        return redirect(project_url(request.project, "logged:run", logged=found.pk))
    page = {
        "run": found,
        "view": document.view_of(found, request.GET.dict()),
        "position": live.position(found),
        "question": question_of(found),
        "reason": reason_in_words(found),
        "server": request.build_absolute_uri("/").rstrip("/"),
        "simulator_error": simulator_errors(request).of(found.family, found.hardware),
        "discussion": discussion_of(found, request.user) if found.kind in Run.RECORDED else None,
    }
    return render(request, "runs/run.html", page)


@require_safe
@in_project(exports=True)
def plan(request: ProjectRequest, run: UUID) -> HttpResponseBase:
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


@require_safe
@in_project()
def timeline(request: ProjectRequest, run: UUID) -> HttpResponse:
    """The run's schedule in Perfetto's viewer; 404 for a run that has none."""
    found = _run(request, run)
    document.trace_of(found)
    back = (project_url(request.project, "runs:run", run=found.pk), f"{found.policy} on {found.hardware}")
    trace_url = project_url(request.project, "runs:trace", run=found.pk)
    return render(request, "viewer/timeline.html", {"back": back, "trace_url": trace_url})


@require_POST
@in_project()
def cancel_run(request: ProjectRequest, run: UUID) -> HttpResponse:
    found = _run(request, run)
    services.cancel(found)
    if found.experiment_id:
        return redirect(project_url(request.project, "runs:experiment", experiment=found.experiment_id))
    return redirect(project_url(request.project, "runs:run", run=found.pk))
