"""All addresses. Whatever belongs to a project lives under ``/t/<team>/<project>/``."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from webapp.metrics import metrics
from webapp.nightly.change_views import atom
from webapp.outages import readyz
from webapp.viewer import viewer


def healthz(request: HttpRequest) -> HttpResponse:
    """Says that the web process answers; looks at nothing else."""
    return HttpResponse("ok", content_type="text/plain")


handler500 = "webapp.outages.server_error"

PROJECT = "t/<slug:team>/<slug:project>/"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("viewer/perfetto", viewer, name="viewer"),
    path("feeds/<str:key>/changes.atom", atom, name="feed"),
    path("hosts/", include("webapp.hosts.host_urls")),
    path("accounts/", include("webapp.accounts.sign_in_urls")),
    path("scim/v2/", include("webapp.accounts.scim.urls")),
    path("", include("webapp.api.urls")),
    path("", include("webapp.accounts.urls")),
    path(f"{PROJECT}artifacts/", include("webapp.artifacts.urls")),
    path(f"{PROJECT}", include("webapp.runs.urls")),
    path(f"{PROJECT}experiments/", include("webapp.rates.urls")),
    path(f"{PROJECT}hosts/", include("webapp.hosts.urls")),
    path(f"{PROJECT}all-runs/", include("webapp.history.urls")),
    path(f"{PROJECT}reports/", include("webapp.reports.urls")),
    path(f"{PROJECT}palette", include("webapp.palette.urls")),
    path(f"{PROJECT}own-runs/", include("webapp.logged.urls")),
    path(f"{PROJECT}compare/", include("webapp.compare.urls")),
    path(f"{PROJECT}systems/", include("webapp.papers.urls")),
    path(f"{PROJECT}tables/", include("webapp.papers.table_urls")),
    path(f"{PROJECT}nightly/", include("webapp.nightly.urls")),
    path(f"{PROJECT}advise/", include("webapp.advice.urls")),
]

handler400 = "webapp.refusals.bad_request"
handler403 = "webapp.refusals.forbidden"
handler404 = "webapp.refusals.not_found"
#: Asked by the sign-in pages where their limits are reached.
handler429 = "webapp.refusals.too_many"
