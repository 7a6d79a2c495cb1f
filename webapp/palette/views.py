"""What the palette shows for what is typed."""

from __future__ import annotations

from dataclasses import asdict

from django.http import HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.accounts.models import Role
from webapp.palette.places import LONGEST, places


@require_safe
@in_project()
def find(request: ProjectRequest) -> HttpResponse:
    """Places by what is typed; the newest where nothing is."""
    text = request.GET.get("q", "").strip()[:LONGEST]
    found = places(request.project, text, may_write=request.may(Role.MEMBER))
    return JsonResponse({"places": [asdict(one) for one in found]})
