"""What there is: artifacts, experiments, policies, hardware and hosts, as the API lists them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja.params.functions import Query

from experiments import hardware
from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.policy import FAMILIES
from experiments.core.reading import KINDS
from webapp.api import answers
from webapp.api.application import (
    MOST_PER_PAGE,
    REFUSALS,
    api,
    artifacts_of,
    experiments_of,
    in_project,
    one_page,
)
from webapp.api.schemas import (
    ArtifactPage,
    ExperimentPage,
    HostRow,
    PolicyRow,
    SheetRow,
)
from webapp.hosts.models import Host

Limit = Annotated[int, Query(ge=1, le=MOST_PER_PAGE)]


@api.get("/artifacts", response={200: ArtifactPage, **REFUSALS}, tags=["artifacts"])
def list_artifacts(
    request: HttpRequest,
    after: int | None = None,
    project: str | None = None,
    kind: str | None = None,
    limit: Limit = 50,
) -> Any:
    """Newest first, without their summaries. For the next page pass the answer's `next` as `after`.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/artifacts?kind=model"
    ```
    """
    found = in_project(request, artifacts_of(request), project)
    if kind is not None:
        found = found.filter(kind=_choice(kind, tuple(KINDS), "kind"))
    if after is not None:
        found = found.filter(pk__lt=after)
    rows, following = one_page(found.order_by("-pk"), limit)
    return {"artifacts": [answers.artifact_row(one) for one in rows], "next": following}


@api.get("/experiments", response={200: ExperimentPage, **REFUSALS}, tags=["experiments"])
def list_experiments(
    request: HttpRequest, after: UUID | None = None, project: str | None = None, limit: Limit = 50
) -> Any:
    """Newest first, with the number of their runs by state.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/experiments?limit=10"
    ```
    """
    found = in_project(request, experiments_of(request), project)
    if after is not None:
        last = get_object_or_404(experiments_of(request), pk=after)
        same_time = Q(created_at=last.created_at, pk__lt=last.pk)
        found = found.filter(Q(created_at__lt=last.created_at) | same_time)
    rows, following = one_page(found.with_counts(), limit)  # type: ignore[attr-defined]
    return {"experiments": [answers.experiment_row(one) for one in rows], "next": following}


@api.get("/policies", response={200: list[PolicyRow], **REFUSALS}, tags=["what there is"])
def list_policies(request: HttpRequest, family: str | None = None) -> Any:
    """Every policy with its knobs and its paper, as `python -m experiments list --json` has them.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/policies?family=memory"
    ```
    """
    if family is not None:
        _choice(family, FAMILIES, "family")
    return [registry.describe(one) for one in registry.all_policies() if family in (None, one.family)]


@api.get("/hardware", response={200: list[SheetRow], **REFUSALS}, tags=["what there is"])
def list_hardware(request: HttpRequest) -> Any:
    """Every spec sheet that a spec's `hardware` can name, with its source.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/hardware"
    ```
    """
    return [{"name": row["name"], "kind": row["kind"], "sheet": row} for row in hardware.catalog()]


@api.get("/hosts", response={200: list[HostRow], **REFUSALS}, tags=["what there is"])
def list_hosts(request: HttpRequest) -> Any:
    """The machines that carry runs out, what they have, and how many of their slots are busy.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/hosts"
    ```
    """
    return [answers.host_row(host) for host in Host.objects.with_load().order_by("name")]


def _choice(value: str, known: tuple[str, ...], name: str) -> str:
    if value not in known:
        raise BadInput(f"{value!r:.80} is not a {name}", name, ", ".join(known))
    return value
