"""The catalog of systems, the page of one system, and the papers' tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import FAMILIES
from experiments.core.verdicts import MEANINGS
from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.choice import choice_of
from webapp.compare.export import FORMATS, to_latex
from webapp.compare.figures.chosen import draw_chosen
from webapp.compare.listing import Fixed, asked_export
from webapp.compare.tables import export_table
from webapp.navigation import project_url
from webapp.papers import catalog, presets, services
from webapp.papers import suites as paper_suites
from webapp.papers.agreement import draw_agreement
from webapp.papers.dots import dot_plot
from webapp.papers.forms import CatalogForm
from webapp.papers.suite_tables import SuiteTable
from webapp.papers.tables import SystemTable, exported_claims
from webapp.papers.tally import Tally, years_of
from webapp.papers.trial import TrialForm
from webapp.presentation import simulator_errors
from webapp.runs.models import Run
from webapp.runs.tables import RunTable

RUNS_SHOWN = 20
#: What stands on a table's page to be copied, by export format.
PASTED = (("latex", "LaTeX (booktabs)"), ("markdown", "Markdown"), ("csv", "CSV"))
#: Parts of an address that ask for every figure of a suite's runs, besides its own table.
WHOLE = frozenset(("all", "column", "sort", "baseline", "unfold", "figure", "x", "y", "bar"))
#: The whole catalog on one page: it is read by searching in it.
MOST_SYSTEMS = 1000


@require_safe
@in_project(exports=True)
def systems(request: ProjectRequest) -> HttpResponseBase:
    services.judge_ended(request.project)
    found = catalog.systems(request.project)
    form = CatalogForm(request.GET, found)
    family = form.asked.get("family", "")
    command = f"python -m experiments list{f' --family {family}' if family else ''}"
    # A file has what is sought; on the page the search goes on, so that all are there.
    shown = form.chosen(found, *(() if "export" in request.GET else ("q",)))
    table = SystemTable(shown, request, command=command, per_page=MOST_SYSTEMS)
    if family and "column" not in request.GET:
        table.columns.hide("family")
    table.sought = form.asked.get("q", "").lower()
    counts = Counter(system.family for system in form.chosen(found, "q", "family"))
    page = {
        "table": table,
        "form": form,
        "family": family,
        "families": [(name, counts[name]) for name in FAMILIES if counts[name]],
        "total": sum(counts.values()),
        "years": years_of(one.paper.year for one in form.chosen(found, "q", "year") if one.paper),
        "broken": registry.broken_modules(family or None),
        "tally": Tally(catalog.count_claims(found)),
        "revision": catalog.shipped_revision(),
        "own": sum(any(row.check for row in one.rows) for one in found),
        "systems": len(found),
        "meanings": MEANINGS,
    }
    return asked_export(request, table) or render(request, "papers/systems.html", page)


@require_safe
@in_project(exports=True)
def system(request: ProjectRequest, family: str, policy: str) -> HttpResponseBase:
    services.judge_ended(request.project)
    found = catalog.system(request.project, family, policy)
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
        "plot": dot_plot(found.rows),
        "cannot": [row for row in found.rows if row.claim.cannot],
        "trial": TrialForm(found, request.project) if "simulated" in found.policy.modes else None,
        "hardware": sorted({name for row in found.rows for name in row.hardware}),
        "pairs": presets.pairs(found),
        "span": presets.span_of(found),
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
    found = catalog.system(request.project, family, policy)
    try:
        made = services.check_claims(request.project, request.user, found.family, found.name)
    except BadInput as error:
        messages.error(request, f"The claims cannot be checked here: {error}")
        return redirect(project_url(request.project, "papers:system", family=found.family, policy=found.name))
    return redirect(project_url(request.project, "runs:experiment", experiment=made.pk))


@require_safe
@in_project(exports=True)
def suites(request: ProjectRequest) -> HttpResponseBase:
    """The papers' tables: every suite, what shipped of it and how it stands in this project."""
    found = paper_suites.states(request.project)
    table = SuiteTable(found, request)
    page = {
        "table": table,
        "total": len(found),
        "shipped": [state for state in found if state.shipped],
        "own": sum(state.finished is not None for state in found),
    }
    return asked_export(request, table) or render(request, "papers/suites.html", page)


@require_safe
@in_project(exports=True)
def suite(request: ProjectRequest, suite: str) -> HttpResponseBase:
    """A suite's results as tables and a figure, and as text to paste into a paper: the project's own or what
    shipped.
    """
    found = paper_suites.state(request.project, suite)
    shown = paper_suites.whose(found, request.GET.get("of", ""))
    page: dict[str, Any] = {"found": found, "command": paper_suites.command_of(found.suite), "shown": shown}
    if not shown:
        return render(request, "papers/suite.html", page)
    choice, errors = choice_of(request.GET), simulator_errors(request)
    comparison = paper_suites.compare_suite(found, request.project, shown, choice)
    table = export_table(comparison, found.suite.title, errors)
    published = paper_suites.published_of(found.suite, comparison)
    grids = paper_suites.grids_of(found.suite, comparison)
    is_whole = not (grids or published) or bool(WHOLE.intersection(request.GET))
    page |= {
        "comparison": comparison,
        "lines": comparison.lines,
        "grids": grids,
        "is_whole": is_whole,
        "published": published,
        "agreement": draw_agreement(found.suite, published.rows) if published else None,
        "beside": paper_suites.own_beside_shipped(found, request.project),
        "figure": draw_chosen(comparison, None, choice, request.project, errors) if is_whole else None,
        "texts": [(name, label, FORMATS[name].write(table)) for name, label in PASTED],
    }
    return asked_export(request, Fixed(table)) or render(request, "papers/suite.html", page)


@require_POST
@in_project()
def run_suite(request: ProjectRequest, suite: str) -> HttpResponse:
    found = paper_suites.state(request.project, suite)
    try:
        experiment = found.running or services.run_suite(request.project, request.user, found.suite)
    except BadInput as error:
        messages.error(request, f"The suite cannot be run here: {error}")
        return redirect(project_url(request.project, "tables:suite", suite=found.name))
    return redirect(project_url(request.project, "runs:experiment", experiment=experiment.pk))
