"""Pages of changes: all of a project, one with its history and what people said, and who is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.core.errors import BadInput
from webapp.accounts.access import ProjectRequest, in_project
from webapp.accounts.models import Role
from webapp.compare.listing import asked_export
from webapp.navigation import project_url
from webapp.nightly import bisection, changes, channels, charts, feed, history
from webapp.nightly.calendar import cells, count_nights
from webapp.nightly.change_forms import ChannelForm, CommentForm, DecisionForm, EditChannelForm
from webapp.nightly.change_tables import ChangeTable
from webapp.nightly.models import Change, Channel
from webapp.nightly.suspects import suspects


@require_safe
@in_project(exports=True)
def index(request: ProjectRequest) -> HttpResponseBase:
    found = changes.of_project(request.project)
    table = ChangeTable(found, request)
    file = asked_export(request, table)
    if file:
        return file
    page = {
        "table": table,
        "precision": changes.precision(found),
        "open": found.filter(state=Change.State.OPEN).count(),
        "feed": feed.address(request.project, request.user),
    }
    return render(request, "nightly/changes.html", page)


def _change(request: ProjectRequest, change: int) -> Change:
    found = changes.of_project(request.project).select_related("run", "confirmation")
    return get_object_or_404(found, pk=change)


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def change(request: ProjectRequest, change: int) -> HttpResponse:
    """One change; a POST decides it, gives it to somebody, or says something of it."""
    found = _change(request, change)
    decision = DecisionForm(request.project.team, found)
    said = CommentForm()
    if request.method == "POST":
        if "text" in request.POST:
            said = CommentForm(request.POST)
            if said.is_valid():
                changes.comment(found, request.user, said.cleaned_data["text"])
                return _back(request, found)
        else:
            decision = DecisionForm(request.project.team, found, request.POST)
            if decision.is_valid():
                _decide(request, found, decision)
                return _back(request, found)
    search = found.bisections.select_related("change", "experiment").first()
    page = {
        "change": found,
        "decision": decision,
        "said": said,
        "comments": found.comments.select_related("author"),
        "chart": _chart(found),
        "suspects": suspects(found.suspects),
        "bisection": search,
        "probes": bisection.probes_of(search) if search else (),
    }
    return render(request, "nightly/change.html", page, status=422 if request.method == "POST" else 200)


def _decide(request: ProjectRequest, found: Change, form: DecisionForm) -> None:
    state, assignee = form.cleaned_data["state"], form.cleaned_data["assignee"]
    if state and state != found.state:
        changes.decide(found, request.user, state, timezone.now())
    if assignee != found.assignee:
        changes.assign(found, assignee)


def _back(request: ProjectRequest, found: Change) -> HttpResponse:
    return redirect(project_url(request.project, "nightly:change", change=found.pk))


def _chart(found: Change) -> dict[str, Any] | None:
    """The series of the change alone, with its levels."""
    past = history.history(found.schedule)
    points = tuple(one for one in past.points if (one.title, one.metric) == (found.title, found.metric))
    if not points:
        return None
    alone = history.History(points, past.slots)
    return charts.chart(alone, found.metric, found.schedule, cells(count_nights(found.schedule)))


@require_POST
@in_project()
def confirm(request: ProjectRequest, change: int) -> HttpResponse:
    found = _change(request, change)
    if not changes.confirm(found, request.user):
        messages.warning(request, "It cannot be run again: its upload is gone.")
    return _back(request, found)


@require_POST
@in_project()
def bisect(request: ProjectRequest, change: int) -> HttpResponse:
    """Begin to look for the commit that the change is of."""
    found = _change(request, change)
    try:
        bisection.begin(found, request.user)
    except BadInput as error:
        messages.warning(request, f"Not begun: {error.what}.")
    return redirect(f"{project_url(request.project, 'nightly:change', change=found.pk)}#bisection")


@require_http_methods(["GET", "HEAD", "POST"])
@in_project(read=Role.ADMIN, write=Role.ADMIN)
def channel_list(request: ProjectRequest) -> HttpResponse:
    """Whom changes are told to; a POST adds a channel. A webhook's secret is shown this once."""
    form = ChannelForm(request.project, request.POST or None)
    if request.method == "POST" and form.is_valid():
        return _channel_page(request, ChannelForm(request.project), fresh=form.save(request.user))
    return _channel_page(request, form)


def _channel_page(
    request: ProjectRequest, form: ChannelForm, fresh: Channel | None = None, renewed: Channel | None = None
) -> HttpResponse:
    """All channels; the secret of one that is ``fresh`` or ``renewed`` is shown."""
    own = request.project.channels.select_related("created_by").order_by("name")
    page = {"channels": channels.with_messages(own), "form": form, "fresh": fresh, "renewed": renewed}
    return render(request, "nightly/channels.html", page, status=422 if form.errors else 200)


def _channel(request: ProjectRequest, channel: int) -> Channel:
    return get_object_or_404(request.project.channels.select_related("project__team"), pk=channel)


@require_http_methods(["GET", "HEAD", "POST"])
@in_project(read=Role.ADMIN, write=Role.ADMIN)
def channel(request: ProjectRequest, channel: int) -> HttpResponse:
    """One channel; a POST changes its name, address or quiet hours. Its kind and its secret stay."""
    found = _channel(request, channel)
    form = EditChannelForm(found, request.POST or None)
    if request.method == "POST" and form.is_valid():
        messages.success(request, f"{form.save(request.user)} is changed.")
        return redirect(project_url(request.project, "nightly:channels"))
    page = {"channel": str(found), "pk": found.pk, "signs": bool(found.secret), "form": form}
    return render(request, "nightly/channel.html", page, status=422 if form.errors else 200)


@require_POST
@in_project(write=Role.ADMIN)
def channel_secret(request: ProjectRequest, channel: int) -> HttpResponse:
    """Gives a webhook another secret, which is shown this once."""
    found = _channel(request, channel)
    try:
        channels.renew_secret(found)
    except BadInput as error:
        messages.warning(request, f"No new secret: {error.what}.")
        return redirect(project_url(request.project, "nightly:channels"))
    return _channel_page(request, ChannelForm(request.project), renewed=found)


@require_POST
@in_project(write=Role.ADMIN)
def channel_test(request: ProjectRequest, channel: int) -> HttpResponse:
    """Sends a message that names no change."""
    found, now = _channel(request, channel), datetime.now(UTC)
    try:
        channels.deliver_test(found, now)
        messages.success(request, f"{found} took the message.")
    except channels.Undelivered as error:
        messages.error(request, f"{found} did not take the message: {error}")
    return redirect(project_url(request.project, "nightly:channels"))


@require_POST
@in_project(write=Role.ADMIN)
def channel_remove(request: ProjectRequest, channel: int) -> HttpResponse:
    _channel(request, channel).delete()
    return redirect(project_url(request.project, "nightly:channels"))


@require_safe
def atom(request: HttpRequest, key: str) -> HttpResponse:
    """The feed behind a secret address."""
    text = feed.atom(feed.project_behind(key))
    return HttpResponse(text, content_type="application/atom+xml; charset=utf-8")
