"""The page of hosts, and that of how well their simulated figures hold."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.listing import asked_export
from webapp.hosts import evidence
from webapp.hosts.models import Host
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
def index(request: ProjectRequest) -> HttpResponse:
    hosts = Host.objects.with_load()
    table, devices = HostTable(hosts, request), DeviceTable(device_rows(hosts), request)
    page = {
        "table": table,
        "devices": devices,
        "queue": Run.objects.queue_lengths(),
        "validated": len({entry.device for entry in evidence.newest()}),
    }
    return asked_export(request, table, devices) or render(request, "hosts/index.html", page)


@require_safe
@in_project(exports=True)
def validation(request: ProjectRequest) -> HttpResponse:
    """Predicted against measured: errors by device, then every model and policy."""
    found = evidence.newest()
    validated = "python -m experiments.validate --device cpu --out evidence.json"
    lines = ValidationTable(validation_rows(found), request, command=validated)
    cells = CellTable(cell_rows(found), request, command=validated, per_page=CELLS_SHOWN)
    page = {"lines": lines, "cells": cells, "validations": found}
    return asked_export(request, cells, lines) or render(request, "hosts/validation.html", page)
