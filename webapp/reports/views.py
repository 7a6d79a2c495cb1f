"""Pages of reports: all of them, one, and one being written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import OuterRef, Subquery
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import download
from webapp.navigation import project_url
from webapp.reports import page, services
from webapp.reports.forms import ReportForm, TitleForm
from webapp.reports.models import Report, Revision

#: Reports of a page of the list, and revisions that are listed.
PER_PAGE, MOST_REVISIONS = 50, 50
#: What a whole report is exported as: who writes it, its kind of content, the ending of its file's name.
WHOLE: dict[str, tuple[Callable[[Report, str, str], str], str, str]] = {
    "markdown": (page.to_document, "text/markdown", "md"),
    "bibtex": (page.to_bibtex, "application/x-bibtex", "bib"),
}


def _find(request: ProjectRequest, report: int) -> Report:
    return get_object_or_404(Report.objects.select_related("project"), pk=report, project=request.project)


def _to(report: Report, anchor: str = "") -> HttpResponse:
    address = project_url(report.project, "reports:report", report=report.pk)
    return redirect(address + (f"#{anchor}" if anchor else ""))


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def index(request: ProjectRequest) -> HttpResponse:
    """All reports, and a form for another one."""
    form = TitleForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        made = services.make(request.project, request.user, form.cleaned_data["title"])
        return redirect(project_url(request.project, "reports:edit", report=made.pk))
    last = Revision.objects.filter(report=OuterRef("pk")).order_by("-pk")
    every = Report.objects.filter(project=request.project).annotate(
        written_at=Subquery(last.values("at")[:1]), written_by=Subquery(last.values("by__username")[:1])
    )
    shown = Paginator(every.filter(trashed_at=None), PER_PAGE).get_page(request.GET.get("page"))
    told = {"reports": shown, "trashed": every.exclude(trashed_at=None)[:PER_PAGE], "form": form}
    return render(request, "reports/index.html", told, status=422 if form.errors else 200)


@require_safe
@in_project(exports=True)
def report(request: ProjectRequest, report: int) -> HttpResponseBase:
    """The report now, or as an earlier revision had its text; whole or a table of it as a file."""
    found = _find(request, report)
    latest = services.latest_of(found)
    shown = _revision(found, request.GET.get("revision", "")) or latest
    if "export" in request.GET:
        return _file(request, found, shown.text)
    told: dict[str, Any] = {
        "report": found,
        "parts": page.parts(found, shown.text, request.GET.get("all", "")),
        "shown": shown,
        "is_latest": shown == latest,
        "revisions": found.revisions.select_related("by")[:MOST_REVISIONS],
    }
    return render(request, "reports/report.html", told)


def _revision(report: Report, told: str) -> Revision | None:
    """The revision of that number; 404 for one that the report does not have."""
    if not told:
        return None
    if not told.isascii() or not told.isdigit() or len(told) > 18:
        raise Http404("no such revision")
    return get_object_or_404(report.revisions.select_related("by"), pk=int(told))


def _file(request: ProjectRequest, report: Report, text: str) -> HttpResponseBase:
    """One table, or the whole report; the block that ``all`` names without its author's limit."""
    whole = request.GET.get("all", "")
    if "table" in request.GET:
        block = page.blocks_by_key(text).get(request.GET["table"])
        if block is None:
            raise Http404("the report has no such table")
        kept = report.frozen.filter(key=block.key).first()
        return download(page.content(report, page.widen(block, whole), kept).table, request.GET["export"])
    asked = request.GET["export"]
    if asked not in WHOLE:
        raise Http404(f"a whole report is exported as {' or '.join(WHOLE)}")
    write, kind, ending = WHOLE[asked]
    answer = HttpResponse(write(report, text, whole), content_type=f"{kind}; charset=utf-8")
    name = slugify(report.title)[:80] or "report"
    answer["Content-Disposition"] = f'attachment; filename="{name}.{ending}"'
    return answer


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def edit(request: ProjectRequest, report: int) -> HttpResponse:
    """The editor. Where another revision was saved since it was opened, both texts are shown."""
    found = _find(request, report)
    latest = services.latest_of(found)
    begun = _revision(found, request.GET.get("revision", "")) or latest
    first = {"title": found.title, "text": begun.text, "opened": latest.pk}
    form = ReportForm(request.POST or None, initial=first)
    meanwhile = None
    if request.method == "POST" and form.is_valid():
        told = form.cleaned_data
        try:
            services.write(found, request.user, told["title"], told["text"], told["opened"])
            return _to(found)
        except services.WrittenMeanwhile as error:
            meanwhile = error.latest
            form = ReportForm(initial={**told, "opened": meanwhile.pk})
    status = 422 if form.errors or meanwhile else 200
    told = {"report": found, "form": form, "meanwhile": meanwhile}
    return render(request, "reports/edit.html", told, status=status)


@require_POST
@in_project()
def freeze(request: ProjectRequest, report: int) -> HttpResponse:
    """Keeps what a block has found, or lets it be searched again."""
    found, key = _find(request, report), request.POST.get("key", "")
    block = page.blocks_by_key(services.latest_of(found).text).get(key)
    if block is None:
        messages.error(request, "The report has no such table or plot any more: nothing was kept.")
    elif request.POST.get("take") == "off":
        services.thaw(found, key)
    else:
        services.freeze(found, block, request.user)
    return _to(found, f"block-{key[:12]}" if block else "")


@require_POST
@in_project()
def trash(request: ProjectRequest, report: int) -> HttpResponse:
    """Takes a report out of the list, or puts it back."""
    found = _find(request, report)
    services.set_trashed(found, request.POST.get("take") != "back")
    word = "in the trash, below the list" if found.trashed_at else "in the list again"
    messages.success(request, f"The report {found} is {word}.")
    return redirect(project_url(request.project, "reports:index"))
