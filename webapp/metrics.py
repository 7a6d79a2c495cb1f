"""What Prometheus reads: queue, leases, durations, losses, hosts, storage. Postgres is asked at each scrape.

Nothing is counted in a process, so it does not matter which web process answers, or how often it was started.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, QuerySet, Sum
from django.db.models.functions import Extract
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from webapp.accounts.models import User
from webapp.hosts.models import Host
from webapp.runs.models import Run

#: Durations are told of what ended within this time.
LATELY = timedelta(hours=1)
QUANTILES = (0.5, 0.95)
Families = Iterator[Metric]


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer Prometheus, which sends ``METRICS_TOKEN`` as its bearer token, and administrators."""
    if not _may_read(request):
        raise Http404
    registry = CollectorRegistry()
    registry.register(Lab())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    given = request.headers.get("Authorization", "")
    if given:
        expected = f"Bearer {settings.METRICS_TOKEN}"
        return bool(settings.METRICS_TOKEN) and constant_time_compare(given, expected)
    return isinstance(request.user, User) and request.user.is_superuser


class Lab(Collector):
    """All families of metrics, each asked of the database when it is collected."""

    def collect(self) -> Iterable[Metric]:
        for families in (_queue, _work, _ends, _durations, _hosts, _storage):
            yield from families()


def _queue() -> Families:
    queued = Run.objects.filter(state=Run.State.QUEUED)
    rows = queued.values_list("family", "effort").annotate(Count("pk")).order_by()
    yield _gauge("lab_queued_runs", "Runs that wait for a worker.", ("family", "effort"), rows)
    oldest = queued.filter(after=None).aggregate(least=Min("queued_at"))["least"]
    age = (timezone.now() - oldest).total_seconds() if oldest else 0.0
    yield GaugeMetricFamily("lab_queue_oldest_seconds", "How long the oldest waiting run has waited.", age)


def _work() -> Families:
    running = Run.objects.filter(state=Run.State.RUNNING)
    rows = running.values_list("host__name").annotate(Count("pk")).order_by()
    yield _gauge("lab_running_runs", "Runs that are carried out.", ("host",), rows)
    expired = running.filter(lease_until__lt=timezone.now()).count()
    yield GaugeMetricFamily("lab_expired_leases", "Running runs whose worker has not been heard of.", expired)


def _ends() -> Families:
    ended = Run.objects.filter(state__in=Run.FINAL)
    family = CounterMetricFamily("lab_ended_runs", "Runs that ended, by state.", labels=("family", "state"))
    for name, state, count in ended.values_list("family", "state").annotate(Count("pk")).order_by():
        family.add_metric((name, state), count)
    yield family
    lost = Run.objects.aggregate(
        claims=Sum("attempt"), losses=Sum("infrastructure_losses"), crashes=Sum("crashes")
    )
    told = {
        "claims": "Attempts that workers took up.",
        "losses": "Attempts that ended because a worker, a server or a host was lost.",
        "crashes": "Trials that a signal ended.",
    }
    for name, what in told.items():
        yield CounterMetricFamily(f"lab_{name}", what, lost[name] or 0)


def _durations() -> Families:
    """Yield quantiles of what ended within the last hour."""
    family = GaugeMetricFamily(
        "lab_run_seconds",
        "How long runs took that ended within the last hour.",
        labels=("family", "quantile"),
    )
    recent = Run.objects.filter(finished_at__gt=timezone.now() - LATELY, started_at__isnull=False)
    taken: dict[str, list[float]] = {}
    seconds = Extract("finished_at", "epoch") - Extract("started_at", "epoch")
    for name, value in recent.annotate(seconds=seconds).values_list("family", "seconds").order_by("seconds"):
        taken.setdefault(name, []).append(float(value))
    for name, values in sorted(taken.items()):
        for quantile in QUANTILES:
            family.add_metric(
                (name, str(quantile)), values[min(int(quantile * len(values)), len(values) - 1)]
            )
    yield family


def _hosts() -> Families:
    now, hosts = timezone.now(), list(Host.objects.order_by("name"))
    ages = [(host.name, (now - host.heartbeat_at).total_seconds()) for host in hosts]
    yield _gauge("lab_host_silent_seconds", "How long ago a host was heard of.", ("host",), ages)
    slots = [(host.name, host.slots) for host in hosts]
    yield _gauge("lab_host_slots", "Runs that a host carries out at once.", ("host",), slots)


def _storage() -> Families:
    try:
        free = float(shutil.disk_usage(settings.MEDIA_ROOT).free)
    except OSError:
        free = 0.0
    yield GaugeMetricFamily("lab_storage_free_bytes", "Space left for uploads and results.", free)


def _gauge(name: str, what: str, labels: tuple[str, ...], rows: Iterable[Any] | QuerySet[Any]) -> Metric:
    """Return a gauge of rows whose last column is the value."""
    family = GaugeMetricFamily(name, what, labels=labels)
    for *given, value in rows:
        family.add_metric([str(label or "") for label in given], value)
    return family
