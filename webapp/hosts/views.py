"""The page of hosts."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.hosts import evidence
from webapp.hosts.models import Host
from webapp.runs.models import Run


@require_safe
@in_project()
def index(request: ProjectRequest) -> HttpResponse:
    page = {
        "hosts": Host.objects.with_load().order_by("name"),
        "queue": Run.objects.queue_lengths(),
        "validations": evidence.newest(),
    }
    return render(request, "hosts/index.html", page)
