"""The catalogue of systems and the page of one system."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe
from django_tables2 import RequestConfig

from experiments.core.errors import BadInput
from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import download, to_latex
from webapp.navigation import project_url
from webapp.papers import catalogue, services
from webapp.papers.forms import CatalogueForm
from webapp.papers.tables import SystemTable, exported_claims, exported_systems
from webapp.runs.models import Run

RUNS_SHOWN = 20
#: The whole catalogue on one page: it is read by searching in it.
MOST_SYSTEMS = 1000


@require_safe
@in_project()
def systems(request: ProjectRequest) -> HttpResponse:
    services.judge_ended(request.project)
    found = catalogue.systems(request.project)
    form = CatalogueForm(request.GET, found)
    chosen = form.chosen(found)
    if "export" in request.GET:
        return download(exported_systems(chosen), request.GET["export"])
    table = SystemTable(chosen, request=request)
    RequestConfig(request, paginate={"per_page": MOST_SYSTEMS, "silent": True}).configure(table)
    return render(request, "papers/systems.html", {"table": table, "form": form, "count": len(chosen)})


@require_safe
@in_project()
def system(request: ProjectRequest, family: str, policy: str) -> HttpResponse:
    services.judge_ended(request.project)
    found = catalogue.system(request.project, family, policy)
    table = exported_claims(found)
    if "export" in request.GET:
        return download(table, request.GET["export"])
    runs = Run.objects.filter(
        project__team=request.team, kind=Run.Kind.POLICY, family=family, policy=found.name
    )
    own = runs.filter(project=request.project).select_related("experiment", "host", "artifact")
    page = {
        "system": found,
        "paper": found.paper,
        "latex": to_latex(table) if found.rows else "",
        "command": f"python -m experiments claims --family {found.family} --policy {found.name} --run",
        "pending": services.pending(request.project, found.family, found.name),
        "runs": own.order_by("-queued_at", "-id")[:RUNS_SHOWN],
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
