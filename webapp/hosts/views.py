"""The page of hosts, and that of how well their simulated figures hold."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.listing import asked_export
from webapp.hosts import evidence, joining, validating
from webapp.hosts.forms import HostForm
from webapp.hosts.models import Host, HostAccess
from webapp.hosts.tables import (
    CellTable,
    DeviceTable,
    HostTable,
    ValidationTable,
    cell_rows,
    device_rows,
    validation_rows,
)
from webapp.runs.models import Run

#: A whole grid of models and policies is read on one page.
CELLS_SHOWN = 200


@require_safe
@in_project(exports=True)
def index(request: ProjectRequest) -> HttpResponseBase:
    hosts = Host.objects.with_load()
    table, devices = HostTable(hosts, request), DeviceTable(device_rows(hosts), request)
    page = {
        "table": table,
        "devices": devices,
        "joined": HostAccess.objects.select_related("host", "invited_by").order_by("host__name"),
        "queue": Run.objects.queue_lengths(),
        "validated": len({entry.device for entry in evidence.newest()}),
    }
    return asked_export(request, table, devices) or render(request, "hosts/index.html", page)


@require_http_methods(["GET", "HEAD", "POST"])
@in_project()
def add(request: ProjectRequest) -> HttpResponse:
    """The form of a new host; a POST makes its address, which stands on the answer and nowhere else."""
    _require_administrator(request)
    form = HostForm(request.POST or None)
    command = ""
    if request.method == "POST" and form.is_valid() and joining.takes_hosts():
        secret = joining.invite(request.user, form.cleaned_data["name"])
        form = HostForm()
        command = f"./lab worker --join '{joining.address(request.build_absolute_uri('/')[:-1], secret)}'"
    page = {"form": form, "command": command, "takes_hosts": joining.takes_hosts()}
    answer = render(request, "hosts/add.html", page, status=422 if form.errors else 200)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
@in_project()
def revoke(request: ProjectRequest, host: int) -> HttpResponse:
    _require_administrator(request)
    found = get_object_or_404(HostAccess.objects.select_related("host"), host=host, revoked_at=None)
    joining.revoke(found)
    messages.success(request, f"{found.host} opens nothing any more; others take up its runs.")
    return redirect("hosts:index", team=request.team.slug, project=request.project.slug)


@require_POST
@in_project()
def validate(request: ProjectRequest, host: int) -> HttpResponse:
    """Have the host's devices of a kind validated, and look at the run."""
    _require_administrator(request)
    found = get_object_or_404(Host, pk=host)
    kind = request.POST.get("kind", "")
    if kind not in found.device_kinds:
        raise Http404(f"{found} has no device of that kind")
    run = validating.ask(request.project, request.user, found, kind)
    return redirect("runs:run", team=request.team.slug, project=request.project.slug, run=run.pk)


def _require_administrator(request: ProjectRequest) -> None:
    """Hosts carry out every team's runs, so that no team's admin decides about them."""
    if not request.user.is_superuser:
        raise PermissionDenied("this needs an administrator of the lab")


@require_safe
@in_project(exports=True)
def validation(request: ProjectRequest) -> HttpResponseBase:
    """Predicted against measured: errors by device, then every model and policy."""
    found = evidence.newest()
    validated = "python -m experiments.validate --device cpu --out evidence.json"
    lines = ValidationTable(validation_rows(found), request, command=validated)
    cells = CellTable(cell_rows(found), request, command=validated, per_page=CELLS_SHOWN)
    page = {"lines": lines, "cells": cells, "validations": found}
    return asked_export(request, cells, lines) or render(request, "hosts/validation.html", page)
