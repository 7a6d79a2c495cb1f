"""The page of a team's tokens, for its admins."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from webapp.accounts.access import TeamRequest, in_team
from webapp.accounts.models import Role
from webapp.api import services
from webapp.api.forms import TokenForm
from webapp.api.models import ApiToken


@require_http_methods(["GET", "HEAD", "POST"])
@in_team(read=Role.ADMIN)
def tokens(request: TeamRequest) -> HttpResponse:
    """All tokens; a POST makes one, whose secret stands on the answer and nowhere else."""
    form = TokenForm(request.POST or None)
    secret = ""
    if request.method == "POST" and form.is_valid():
        made, secret = services.make_token(request.team, request.user, **form.cleaned_data)
        messages.success(request, f"The token {made.name} is made.")
        form = TokenForm()
    page = {
        "tokens": request.team.tokens.select_related("created_by").order_by("revoked_at", "-created_at"),
        "form": form,
        "secret": secret,
        "server": request.build_absolute_uri("/").rstrip("/"),
    }
    return render(request, "api/tokens.html", page, status=422 if form.errors else 200)


@require_POST
@in_team()
def revoke(request: TeamRequest, token: int) -> HttpResponse:
    found = get_object_or_404(ApiToken, pk=token, team=request.team)
    services.revoke(found)
    messages.success(request, f"The token {found.name} opens nothing any more.")
    return redirect("tokens", team=request.team.slug)
