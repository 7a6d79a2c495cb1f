"""All runs of a project: the page, its completion, tags and saved views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.export import download
from webapp.compare.export_table import LongTable, Table
from webapp.compare.filters import comparable, named_runs
from webapp.compare.views import comparison_page, groups_url
from webapp.history import archive, boards, discussion, services, table
from webapp.history.archive import ARCHIVED
from webapp.history.forms import CommentForm, NoteForm, TagForm, ViewForm
from webapp.history.leaderboard import leaderboard_of, ranking_plot, record_plot, table_of
from webapp.history.models import SavedView
from webapp.history.search import Query, SearchError, parse
from webapp.history.search.completion import complete
from webapp.history.search.tree import Aggregate, Field
from webapp.history.search.words import say, write
from webapp.navigation import project_url
from webapp.runs.models import Run
from webapp.runs.trashing import put_into_trash, say_are

#: Rows of the list of leaderboards, and logged runs that are compared at once.
BOARDS, MOST_COMPARED = 50, 50
NONE_CHOSEN = "No run is chosen: tick some of them first."


def views_of(request: ProjectRequest) -> QuerySet[SavedView]:
    """The person's own and those that the team shares."""
    own = Q(owner=request.user) if request.user.is_authenticated else Q()
    return SavedView.objects.filter(own | Q(shared=True), project=request.project).select_related("owner")


@require_safe
@in_project(exports=True)
def index(request: ProjectRequest) -> HttpResponseBase:
    text = request.GET.get("q", "").strip()
    error, query = None, Query()
    try:
        query = parse(text)
    except SearchError as complaint:
        error = complaint
    chosen = request.GET.getlist("column")
    if "export" in request.GET and error is None:
        return download(_file_of(request, query, chosen), request.GET["export"])
    after, baseline = (_find_named(request, name) for name in ("after", "baseline"))
    may_wait = request.GET.get("groups") != "now"
    box = request.GET.get("box", "")
    found = table.find(request.project, query, chosen, after, baseline, may_wait, box)
    views = list(views_of(request))
    page: dict[str, Any] = {
        "text": text,
        "error": error,
        "said": say(query) if text and not error else "",
        "found": found,
        "aggregates": [(str(one), one.field.name if one.field else "") for one in query.aggregates],
        "group": [str(field) for field in query.group],
        "box": box or (found.boxes.metric if found.boxes else ""),
        "box_metrics": _box_metrics(query, found, box),
        "views": views,
        "own_views": [view for view in views if view.owner_id == request.user.pk],
        "columns": " ".join(chosen),
        "caret": " " * (error.column - 1) + "^" if error else "",
    }
    return render(request, "history/index.html", page, status=422 if error else 200)


def _file_of(request: ProjectRequest, query: Query, chosen: Sequence[str]) -> Table | LongTable:
    """The runs, or where they are asked for the groups, as the page has them."""
    if query.group and request.GET.get("table") == "groups":
        shows = archive.is_asked_for(query)
        return table.groups_of(request.project, query, with_archived=shows)
    listed = archive.divide(table.runs_of(request.project), request.project, query)[0]
    return table.export_of(listed, query, chosen)


def _box_metrics(query: Query, found: table.Found, box: str) -> list[str]:
    """What boxes can be of: metrics of the search and of the runs on the page."""
    asked = [one.field.name for one in query.aggregates if one.field]
    return list(dict.fromkeys([*asked, *found.offered, *([box] if box else [])]))


def _find_named(request: ProjectRequest, name: str) -> Run | None:
    """The run of the project that a parameter of the address names."""
    named = named_runs(request.GET, name)
    return table.runs_of(request.project).filter(pk=named[0]).first() if named else None


@require_safe
@in_project(exports=True)
def comparison(request: ProjectRequest) -> HttpResponseBase:
    """What ``search`` finds, compared; a search that cannot be read goes back to where it says why."""
    text = request.GET.get("search", "").strip()
    back = services.search_url(request.project, text)
    try:
        query = parse(text)
    except SearchError:
        return redirect(back)
    found = table.search_listed(request.project, query)
    logged = found.filter(kind=Run.Kind.LOGGED).order_by("-queued_at").values_list("pk", flat=True)
    policies = comparable(request.project).filter(pk__in=found.order_by().values("pk"))
    if not policies.exists() and (runs := list(logged[:MOST_COMPARED])):
        asked = urlencode({"run": [str(run) for run in runs]}, doseq=True)
        return redirect(f"{project_url(request.project, 'logged:comparison')}?{asked}")
    page = {
        "heading": "Comparison",
        "other_runs": back,
        "as_groups": groups_url(request.project, _in_groups(query)),
    }
    return comparison_page(request, policies, page, "")


def _in_groups(query: Query) -> str:
    """The search in the groups that it has, else by policy."""
    if not query.group:
        query = replace(query, group=(Field("column", "policy"),), aggregates=(Aggregate("count"),))
    return write(replace(query, order=None))


@require_safe
@in_project()
def leaderboards(request: ProjectRequest) -> HttpResponse:
    """Every question that several policies answered, with who leads."""
    found = Paginator(boards.boards_of(request.project), BOARDS).get_page(request.GET.get("page"))
    return render(request, "history/leaderboards.html", {"boards": found, "most": boards.MOST_RUNS})


@require_safe
@in_project(exports=True)
def leaderboard(request: ProjectRequest, run: UUID) -> HttpResponseBase:
    """The ranking of the policies that answered the question of ``run``, and its records."""
    runs = Run.objects.select_related("project__team", "artifact", "host")
    one = get_object_or_404(runs, pk=run, project=request.project, kind=Run.Kind.POLICY)
    found = leaderboard_of(one, request.GET.get("metric", ""))
    if "export" in request.GET and found.metric:
        return download(table_of(found, one), request.GET["export"])
    page = {
        "run": one,
        "found": found,
        "ranking": ranking_plot(found, request.project) if found.places else None,
        "records": record_plot(found, request.project),
    }
    return render(request, "history/leaderboard.html", page)


def _find_recorded(request: ProjectRequest, run: UUID) -> Run:
    runs = Run.objects.select_related("project")
    return get_object_or_404(runs, pk=run, project=request.project, kind__in=Run.RECORDED)


def _to_run(request: ProjectRequest, run: UUID) -> HttpResponse:
    return redirect(f"{project_url(request.project, 'runs:run', run=run)}#discussion")


@require_POST
@in_project()
def note(request: ProjectRequest, run: UUID) -> HttpResponse:
    found, form = _find_recorded(request, run), NoteForm(request.POST)
    if form.is_valid():
        discussion.write_note(found, request.user, form.cleaned_data["text"])
    else:
        messages.error(request, "The note was not kept: it may have 20,000 characters.")
    return _to_run(request, run)


@require_POST
@in_project()
def comment(request: ProjectRequest, run: UUID) -> HttpResponse:
    found, form = _find_recorded(request, run), CommentForm(request.POST)
    if form.is_valid():
        discussion.say(found, request.user, form.cleaned_data["text"])
    else:
        messages.error(request, "Nothing was said: a comment has 1 to 8,000 characters.")
    return _to_run(request, run)


@require_POST
@in_project()
def remove_comment(request: ProjectRequest, run: UUID, comment: int) -> HttpResponse:
    """One's own comments alone."""
    get_object_or_404(_find_recorded(request, run).comments, pk=comment, author=request.user).delete()
    return _to_run(request, run)


@require_safe
@in_project()
def completion(request: ProjectRequest) -> HttpResponse:
    """Words that may come next, for the box."""
    return JsonResponse({"words": complete(request.project, request.GET.get("q", "")[:4000])})


def _back(request: ProjectRequest) -> HttpResponse:
    return redirect(f"{project_url(request.project, 'history:index')}?{request.POST.get('back', '')[:4000]}")


def _chosen(request: ProjectRequest) -> QuerySet[Run]:
    """The runs that were chosen on the page: those named, or with ``whole`` all that its search finds."""
    runs = table.runs_of(request.project)
    if not request.POST.get("whole"):
        return runs.filter(pk__in=named_runs(request.POST)[: services.MOST_AT_ONCE])
    try:
        query = parse(QueryDict(request.POST.get("back", "")[:4000]).get("q", "").strip())
    except SearchError:
        return runs.none()
    found = table.search_listed(request.project, query)
    return runs.filter(pk__in=found.order_by().values("pk")[: table.MOST_COUNTED])


@require_POST
@in_project()
def trash(request: ProjectRequest) -> HttpResponse:
    """Puts the chosen runs into the trash."""
    chosen = _chosen(request)
    count = chosen.count()
    trashed = put_into_trash(request.project, chosen, request.user)
    if not count:
        messages.error(request, NONE_CHOSEN)
    elif trashed is None:
        messages.error(request, "None of these runs has ended, so none went into the trash.")
    else:
        where = reverse("team", kwargs={"team": request.team.slug})
        told = f"{say_are(trashed)} now in the trash{_say_others(count - trashed.count)}."
        said = format_html('{} <a href="{}#trash">Take back</a>', told, where)
        messages.success(request, said)
    return _back(request)


def _say_others(count: int) -> str:
    if count < 1:
        return ""
    return "; 1 that has not ended stays" if count == 1 else f"; {count:,} that have not ended stay"


@require_POST
@in_project()
def tag(request: ProjectRequest) -> HttpResponse:
    """Puts a tag on the chosen runs, or takes it off."""
    form, runs = TagForm(request.POST), _chosen(request)
    if not form.is_valid():
        messages.error(request, f"No tag: {'; '.join(str(one) for one in form.errors.get('name', ()))}.")
        return _back(request)
    if not runs.exists():
        messages.error(request, NONE_CHOSEN)
        return _back(request)
    name, is_off = form.cleaned_data["name"], request.POST.get("take") == "off"
    count = services.untag(runs, name) if is_off else services.tag(runs, name, request.user)
    messages.success(request, _say_tagged(count, name, is_off))
    return _back(request)


def _say_tagged(count: int, name: str, is_off: bool) -> str:
    runs = "1 run is" if count == 1 else f"{count} runs are"
    if name == ARCHIVED:
        where = "in the list again" if is_off else "archived: out of this list, everywhere else as before"
        return f"{runs} {where}."
    return f"{name} was taken off {runs.rsplit(' ', 1)[0]}." if is_off else f"{runs} tagged {name}."


@require_POST
@in_project()
def keep_view(request: ProjectRequest) -> HttpResponse:
    form = ViewForm(request.POST)
    if not form.is_valid():
        messages.error(request, "A view needs a name.")
        return _back(request)
    made = services.keep_view(request.project, request.user, **form.cleaned_data)
    messages.success(request, f"The view {made} is kept{' for the team' if made.shared else ''}.")
    return redirect(services.search_url(request.project, made.query, made.columns.split()))


@require_POST
@in_project()
def remove_view(request: ProjectRequest, view: int) -> HttpResponse:
    found = get_object_or_404(SavedView, pk=view, project=request.project, owner=request.user)
    found.delete()
    messages.success(request, f"The view {found} is removed.")
    return _back(request)
