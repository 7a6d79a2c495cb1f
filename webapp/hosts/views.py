"""The page of hosts."""

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
@in_project()
def index(request: ProjectRequest) -> HttpResponse:
    hosts, found = Host.objects.with_load(), evidence.newest()
    validated = "python -m experiments.validate --device cpu --out evidence.json"
    table = HostTable(hosts, request)
    devices = DeviceTable(device_rows(hosts), request)
    lines = ValidationTable(validation_rows(found), request, command=validated)
    cells = CellTable(cell_rows(found), request, command=validated, per_page=CELLS_SHOWN)
    page = {
        "table": table,
        "devices": devices,
        "lines": lines,
        "cells": cells,
        "queue": Run.objects.queue_lengths(),
        "validations": found,
    }
    return asked_export(request, table, devices, cells, lines) or render(request, "hosts/index.html", page)
