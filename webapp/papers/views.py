"""The catalogue of systems and the page of one system."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from experiments.core.errors import BadInput
from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import to_latex
from webapp.compare.listing import Fixed, asked_export
from webapp.navigation import project_url
from webapp.papers import catalogue, services
from webapp.papers.forms import CatalogueForm
from webapp.papers.tables import SystemTable, exported_claims
from webapp.runs.models import Run
from webapp.runs.tables import RunTable

RUNS_SHOWN = 20
#: The whole catalogue on one page: it is read by searching in it.
MOST_SYSTEMS = 1000


@require_safe
@in_project()
def systems(request: ProjectRequest) -> HttpResponse:
    services.judge_ended(request.project)
    found = catalogue.systems(request.project)
    form = CatalogueForm(request.GET, found)
    family = form.cleaned_data.get("family") if form.is_valid() else ""
    command = f"python -m experiments list{f' --family {family}' if family else ''}"
    table = SystemTable(form.chosen(found), request, fields=form, command=command, per_page=MOST_SYSTEMS)
    return asked_export(request, table) or render(request, "papers/systems.html", {"table": table})


@require_safe
@in_project()
def system(request: ProjectRequest, family: str, policy: str) -> HttpResponse:
    services.judge_ended(request.project)
    found = catalogue.system(request.project, family, policy)
    table = exported_claims(found)
    runs = Run.objects.filter(
        project__team=request.team, kind=Run.Kind.POLICY, family=family, policy=found.name
    )
    own = runs.filter(project=request.project).select_related("experiment", "host", "artifact")
    runs_table = RunTable(own, request, prefix="runs-", title=f"Runs of {found.name}", per_page=RUNS_SHOWN)
    file = asked_export(request, Fixed(table), runs_table)
    if file is not None:
        return file
    page = {
        "system": found,
        "paper": found.paper,
        "latex": to_latex(table) if found.rows else "",
        "command": f"python -m experiments claims --family {found.family} --policy {found.name} --run",
        "pending": services.pending(request.project, found.family, found.name),
        "runs": runs_table,
    }
    return render(request, "papers/system.html", page)


@require_POST
@in_project()
def check(request: ProjectRequest, family: str, policy: str) -> HttpResponse:
    """Submits the runs of the system's claims; the verdicts stand on its page once they have ended."""
    found = catalogue.system(request.project, family, policy)
    try:
        made = services.check_claims(request.project, request.user, found.family, found.name)
    except BadInput as error:
        messages.error(request, f"The claims cannot be checked here: {error}")
        return redirect(project_url(request.project, "papers:system", family=found.family, policy=found.name))
    return redirect(project_url(request.project, "runs:experiment", experiment=made.pk))
