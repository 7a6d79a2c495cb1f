"""Home, teams, members and projects."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts import audit, deletion, invitations, services, trash
from webapp.accounts import home as home_page
from webapp.accounts.access import ProjectRequest, TeamRequest, in_project, in_team
from webapp.accounts.forms import KeepRunsForm, ProjectForm, RoleForm, TeamForm
from webapp.accounts.last_answer import last_answer
from webapp.accounts.models import Membership, Project, Role, User
from webapp.accounts.tables import AuditTable, StorageTable, TrashTable
from webapp.artifacts import uploads
from webapp.artifacts.forms import UploadForm
from webapp.artifacts.samples import SAMPLES
from webapp.compare.listing import asked_export
from webapp.history.discussion import mentions_of
from webapp.navigation import project_url
from webapp.presentation import simulator_errors
from webapp.runs.models import Run

ROWS = 20
ENDED = "this invitation was used, has ended or was taken back"
#: What the drop zone takes, in the words of those who have it.
KINDS = ("config.json", "profiler trace", ".pt2", "ONNX", "job trace", "request trace")


@login_required
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """The user's first project, or the page that says how to get one."""
    assert isinstance(request.user, User)
    found = Project.objects.visible_to(request.user).select_related("team").order_by("created_at").first()
    if found is not None:
        return redirect(project_url(found, "project"))
    teams = request.user.teams.order_by("name")
    return render(request, "accounts/no_project.html", {"teams": teams, "form": TeamForm()})


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def create_team(request: HttpRequest) -> HttpResponse:
    """Administrators of the installation and of any team make teams; everybody else is invited into one."""
    assert isinstance(request.user, User)
    if not services.may_make_teams(request.user):
        raise Http404("no such page")
    form = TeamForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/new_team.html", {"form": form}, status=422 if form.errors else 200)
    team = services.create_team(form.cleaned_data["name"], request.user)
    messages.success(request, f"The team {team} is made. Its first project comes next.")
    return redirect("team", team=team.slug)


@require_safe
@in_project()
def project(request: ProjectRequest) -> HttpResponse:
    page = {
        "form": UploadForm(),
        "devices": home_page.devices(),
        "kinds": KINDS,
        "samples": SAMPLES.values(),
        "cap": settings.UPLOAD_MAX_BYTES,
        "chunk": uploads.CHUNK,
        "last": last_answer(request.project, simulator_errors(request)),
        "doors": home_page.doors(request.project),
        "experiments": home_page.recent_experiments(request.project),
        "hosts": home_page.hosts(),
        "waiting": Run.objects.queue_lengths()["total"],
        "mentions": mentions_of(request.user, request.project),
    }
    return render(request, "accounts/project.html", page)


@require_safe
@in_team(exports=True)
def team(request: TeamRequest) -> HttpResponseBase:
    members = request.team.memberships.select_related("user").order_by("user__username")
    projects = request.team.projects.filter(trashed_at=None).order_by("name")
    lying = trash.list_trash(request.team)
    tables = {
        "storage": StorageTable(trash.storage(request.team), request),
        "trash": TrashTable(lying, request, per_page=ROWS),
        "audit": AuditTable(audit.entries(request.team), request, per_page=ROWS),
    }
    page = {"members": members, "projects": projects, "form": ProjectForm(), "invite": RoleForm()}
    page |= {**tables, "days": settings.TRASH_DAYS, "invitations": invitations.pending(request.team)}
    page["is_deleting"] = any(one.gone is not None for one in lying)
    return asked_export(request, *tables.values()) or render(request, "accounts/team.html", page)


@require_POST
@in_team(write=Role.MEMBER)
def restore(request: TeamRequest) -> HttpResponse:
    """Takes ``kind`` and ``key`` out of the team's trash."""
    kind, key = request.POST.get("kind", ""), request.POST.get("key", "")
    try:
        messages.success(request, trash.restore(request.team, kind, key, request.user))
    except ValidationError as error:
        messages.error(request, error.message)
    return redirect("team", team=request.team.slug)


@require_POST
@in_team()
def delete(request: TeamRequest) -> HttpResponse:
    kind, key = request.POST.get("kind", ""), request.POST.get("key", "")
    messages.success(request, deletion.delete(request.team, kind, key, request.user))
    return redirect("team", team=request.team.slug)


@require_POST
@in_project(write=Role.ADMIN)
def trash_project(request: ProjectRequest) -> HttpResponse:
    services.trash_project(request.project)
    messages.success(request, f"The project {request.project} is in the trash.")
    return redirect("team", team=request.team.slug)


@require_POST
@in_project(write=Role.ADMIN)
def keep_runs(request: ProjectRequest) -> HttpResponse:
    """For how many days the project keeps runs that nobody marked."""
    form = KeepRunsForm(request.POST)
    if form.is_valid():
        days = form.cleaned_data["keep_runs_days"]
        trash.keep_runs(request.project, days)
        told = f"for {days} days after their end, unless somebody marked them" if days else "for good"
        messages.success(request, f"{request.project} keeps runs {told}.")
    else:
        messages.error(request, "Runs are kept for 1 to 36,500 days, or for good where nothing is said.")
    return redirect("team", team=request.team.slug)


@require_POST
@in_team()
def create_project(request: TeamRequest) -> HttpResponse:
    form = ProjectForm(request.POST)
    if not form.is_valid():
        return render(request, "accounts/new_project.html", {"form": form}, status=422)
    made = services.create_project(request.team, **form.cleaned_data)
    return redirect(project_url(made, "project"))


@require_POST
@in_team()
def invite(request: TeamRequest) -> HttpResponse:
    """Shows the link to send; it is not kept anywhere."""
    form = RoleForm(request.POST)
    if not form.is_valid():
        raise Http404("no such role")
    token = invitations.token(request.team, request.user, form.cleaned_data["role"])
    link = request.build_absolute_uri(reverse("invitation", kwargs={"token": token}))
    page = {"link": link, "invited_as": form.cleaned_data["role"], "days": invitations.LASTS.days}
    return render(request, "accounts/invitation_made.html", page)


@require_POST
@in_team()
def revoke_invitation(request: TeamRequest, invitation: int) -> HttpResponse:
    found = get_object_or_404(invitations.pending(request.team), pk=invitation)
    invitations.revoke(found)
    messages.success(request, "The invitation opens nothing any more.")
    return redirect("team", team=request.team.slug)


@require_POST
@in_team()
def set_role(request: TeamRequest, member: int) -> HttpResponse:
    found = get_object_or_404(Membership, pk=member, team=request.team)
    form = RoleForm(request.POST)
    if not form.is_valid():
        raise Http404("no such role")
    return _try(request, lambda: services.set_role(found, form.cleaned_data["role"]))


@require_POST
@in_team()
def remove_member(request: TeamRequest, member: int) -> HttpResponse:
    found = get_object_or_404(Membership, pk=member, team=request.team)
    answer = _try(request, lambda: services.remove_member(found))
    made = request.team.tokens.filter(created_by=found.user, revoked_at=None).count()
    if made and found.pk is None:
        tokens = "1 token that still opens" if made == 1 else f"{made} tokens that still open"
        messages.warning(request, f"{found.user} made {tokens} this team: revoke what is not needed.")
    return answer


def _try(request: TeamRequest, change: object) -> HttpResponse:
    """Makes a change that may be refused and says why when it is."""
    assert callable(change)
    try:
        change()
    except ValidationError as error:
        messages.error(request, error.message)
    return redirect("team", team=request.team.slug)


@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Joins the bearer into the team; who has no account signs up first."""
    found = invitations.read_invitation(token)
    if found is None:
        raise Http404(ENDED)
    if not isinstance(request.user, User):
        invitations.remember(request, token)
        return redirect("account_signup")
    if request.method == "POST":
        if invitations.accept(found, request.user) is None:
            raise Http404(ENDED)
        return redirect("team", team=found.team.slug)
    return render(request, "accounts/invitation.html", {"invitation": found, "token": token})
