"""The page of hosts."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webapp.accounts.access import ProjectRequest, in_project
from webapp.compare.listing import asked_export
from webapp.hosts import evidence
from webapp.hosts.models import Host
from webapp.hosts.tables import DeviceTable, HostTable, ValidationTable, device_rows, validation_rows
from webapp.runs.models import Run


@require_safe
@in_project()
def index(request: ProjectRequest) -> HttpResponse:
    hosts, found = Host.objects.with_load(), evidence.newest()
    validated = "python -m experiments.validate --device cpu --out evidence.json"
    table = HostTable(hosts, request)
    devices = DeviceTable(device_rows(hosts), request)
    lines = ValidationTable(validation_rows(found), request, command=validated)
    page = {
        "table": table,
        "devices": devices,
        "lines": lines,
        "queue": Run.objects.queue_lengths(),
        "validations": found,
    }
    return asked_export(request, table, devices, lines) or render(request, "hosts/index.html", page)
