"""Runs that people's own programs log: their lines as they come, their series, their files."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from ninja import Status
from ninja.params.functions import Query

from experiments.core.errors import BadInput
from webapp.api.application import REFUSALS, api, artifacts_of, json_body, require_writer, token_of
from webapp.api.gate import read_body, read_json
from webapp.api.projects import project_of
from webapp.api.schemas import (
    LogAnswer,
    LogApart,
    LoggedFileList,
    LoggedImageList,
    LoggedTableList,
    SeriesAnswer,
    SeriesList,
)
from webapp.artifacts.sending import BYTES
from webapp.logged import points, services
from webapp.logged.models import LoggedRun, Series
from webapp.runs.models import LONGEST_METRIC

LINES = {
    "requestBody": {
        "required": True,
        "content": {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}},
    }
}


def _logged_of(request: HttpRequest) -> Any:
    team = token_of(request).team
    found = LoggedRun.objects.filter(run__project__team=team, run__project__trashed_at=None, run__trash=None)
    return found.select_related("run__project")


def _answer(logged: LoggedRun) -> dict[str, Any]:
    run = logged.run
    return {"run": run.pk, "offset": logged.offset, "state": run.state, "stop": run.cancel_requested}


@api.post(
    "/logs/{uuid:logged}",
    response={200: LogAnswer, 409: LogApart, **REFUSALS},
    openapi_extra=LINES,
    tags=["logs"],
)
def append_log(
    request: HttpRequest,
    logged: UUID,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    project: str | None = None,
) -> Any:
    """Stores lines of the log of a program's own run, whose id the program draws. `offset` is the byte of
    the log at which they begin; what is stored already changes nothing, and where something between is
    missing the answer is 409 with the byte that is wanted. An empty body says that the program lives.

    ```
    printf '%s\\n' '{"begin": {"name": "resnet", "started": 1790000000}}' '[0, 1790000001, {"loss": 2.3}]' | curl -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/x-ndjson" --data-binary @- "$LAB/api/v1/logs/$LOGGED"
    ```
    """  # noqa: E501
    token = require_writer(request)
    place = services.Place(token.team_id, token.created_by, partial(project_of, token.team, project))
    try:
        found = services.append(place, logged, offset, read_body(request))
    except services.Apart as apart:
        return Status(409, {"detail": str(apart), "offset": apart.offset})
    answer = {"run": found.run, "offset": found.offset, "state": found.state, "stop": found.stop}
    return api.create_response(request, answer, status=200)


@api.get("/logs/{uuid:logged}", response={200: LogAnswer, **REFUSALS}, tags=["logs"])
def read_log(request: HttpRequest, logged: UUID) -> Any:
    """How far the log of a run is stored, and whether somebody asked the run to stop.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED"
    ```
    """
    return _answer(get_object_or_404(_logged_of(request), pk=logged))


@api.get("/logs/{uuid:logged}/diff", response={200: bytes, **REFUSALS}, tags=["logs"])
def read_diff(request: HttpRequest, logged: UUID) -> Any:
    """What the checkout of a run had that its revision has not, as `git diff` prints it.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/diff"
    ```
    """
    found = get_object_or_404(_logged_of(request), pk=logged)
    return HttpResponse(found.diff, content_type="text/plain; charset=utf-8")


@api.get("/logs/{uuid:logged}/series", response={200: SeriesList, **REFUSALS}, tags=["logs"])
def list_series(request: HttpRequest, logged: UUID) -> Any:
    """The figures of a logged run in short: points, last, least and largest value.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/series"
    ```
    """
    found = get_object_or_404(_logged_of(request), pk=logged)
    return api.create_response(request, {"series": list(found.series.values(*SUMMARY))}, status=200)


SUMMARY = ("name", "count", "broken", "first_step", "last_step", "last", "least", "largest")


@api.get("/logs/{uuid:logged}/points", response={200: SeriesAnswer, **REFUSALS}, tags=["logs"])
def read_points(
    request: HttpRequest, logged: UUID, name: Annotated[str, Query(max_length=LONGEST_METRIC)] = ""
) -> Any:
    """Every point of one figure by step; moments in seconds since 1970, values that are no finite numbers as
    text.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/points?name=loss"
    ```
    """
    run = get_object_or_404(_logged_of(request), pk=logged)
    series = get_object_or_404(Series, logged=run, name=name)
    found = points.read([series.pk])[series.pk]
    values = [value if math.isfinite(value) else str(value) for value in found.values]
    answer = {"name": name, "steps": found.steps, "moments": found.at, "values": values}
    return api.create_response(request, answer, status=200)


@api.get("/logs/{uuid:logged}/tables", response={200: LoggedTableList, **REFUSALS}, tags=["logs"])
def list_tables(request: HttpRequest, logged: UUID) -> Any:
    """The tables that a program logged, by name and step.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/tables"
    ```
    """
    found = get_object_or_404(_logged_of(request), pk=logged)
    rows = found.tables.order_by("name", "step").values("name", "step", "columns", "rows")
    return api.create_response(request, {"tables": list(rows)}, status=200)


@api.get("/logs/{uuid:logged}/images", response={200: LoggedImageList, **REFUSALS}, tags=["logs"])
def list_images(request: HttpRequest, logged: UUID) -> Any:
    """The pictures that a program logged, by name and step, without their bytes.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/images"
    ```
    """
    found = get_object_or_404(_logged_of(request), pk=logged)
    rows = found.images.order_by("name", "step").values("id", "name", "step", "kind", "width", "height")
    return api.create_response(request, {"images": list(rows)}, status=200)


@api.get("/logs/{uuid:logged}/images/{int:image}", response={200: bytes, **REFUSALS}, tags=["logs"])
def read_image(request: HttpRequest, logged: UUID, image: int) -> Any:
    """The bytes of a picture as its program made it.

    ```
    curl -H "Authorization: Bearer $TOKEN" -o picture "$LAB/api/v1/logs/$LOGGED/images/$IMAGE"
    ```
    """
    found = get_object_or_404(get_object_or_404(_logged_of(request), pk=logged).images, pk=image)
    return HttpResponse(bytes(found.data), content_type=BYTES)


@api.get("/logs/{uuid:logged}/files", response={200: LoggedFileList, **REFUSALS}, tags=["logs"])
def list_files(request: HttpRequest, logged: UUID) -> Any:
    """The files on the page of a logged run, those in the trash too.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/logs/$LOGGED/files"
    ```
    """
    found = get_object_or_404(_logged_of(request), pk=logged).files.select_related("blob").order_by("pk")
    return {
        "files": [
            {
                "artifact": one.pk,
                "name": one.name,
                "sha256": one.blob_id,
                "size": one.blob.size if one.blob else None,
                "trashed": one.trashed_at is not None,
            }
            for one in found
        ]
    }


@api.post(
    "/logs/{uuid:logged}/files",
    response={200: LogAnswer, **REFUSALS},
    openapi_extra=json_body('{"artifact": 7}'),
    tags=["logs"],
)
def attach_file(request: HttpRequest, logged: UUID) -> Any:
    """Puts a file that was uploaded to the artifacts on the page of a logged run.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d "{\\"artifact\\": $ARTIFACT}" "$LAB/api/v1/logs/$LOGGED/files"
    ```
    """
    require_writer(request)
    found = get_object_or_404(_logged_of(request), pk=logged)
    body = read_json(request)
    number = body.get("artifact") if isinstance(body, dict) and set(body) == {"artifact"} else None
    if type(number) is not int or not 0 < number < 2**63:
        raise BadInput("no artifact", "artifact", '{"artifact": 7}')
    services.attach(found, get_object_or_404(artifacts_of(request), pk=number))
    return _answer(found)
