"""The highest rate of an experiment's policies: asked for, looked at, stopped."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Status
from ninja.errors import HttpError

from experiments.core.errors import BadInput
from experiments.core.rate_search import RateGoal
from webapp.api.application import REFUSALS, api, experiments_of, json_body, require_writer
from webapp.api.gate import read_given
from webapp.api.schemas import RateStudyAnswer
from webapp.rates import services
from webapp.rates.models import RateStudy
from webapp.rates.panel import panel_json, panel_of
from webapp.runs.models import Experiment

ADDRESS = "/experiments/{uuid:experiment}/highest-rate"


def _answer(experiment: Experiment) -> dict[str, Any]:
    panel = panel_of(experiment)
    if panel is None or panel.study is None:
        raise HttpError(404, "nobody has asked for the highest rate of this experiment")
    return panel_json(panel)


@api.post(
    ADDRESS,
    response={201: RateStudyAnswer, **REFUSALS},
    openapi_extra=json_body('{"attainment": 0.9}'),
    tags=["experiments"],
)
def find_highest_rate(request: HttpRequest, experiment: UUID) -> Any:
    """Looks for the highest rate that the serving policies of an experiment keep: further runs of it follow one
    another at rates that are doubled or halved, then bisected, at most twelve of each policy. Asked is a share
    of requests within their objectives (`attainment`), the 99th percentile of the time between tokens in
    seconds (`tbt_p99`), or both; `policies` are all where none is named.

    ```
    curl -H "Authorization: Bearer $TOKEN" -d '{"attainment": 0.9, "policies": ["orca"]}' "$LAB/api/v1/experiments/$SERVING/highest-rate"
    ```
    """  # noqa: E501
    token = require_writer(request)
    found = get_object_or_404(experiments_of(request), pk=experiment)
    body = read_given(request, attainment=int | float, tbt_p99=int | float, policies=list)
    goal = RateGoal(_within(body, "attainment", 1.0), _within(body, "tbt_p99", 1e6))
    policies = body.get("policies", [])
    if not all(isinstance(name, str) for name in policies):
        raise BadInput(f"{policies!r:.80} are not names", "policies", "names of policies")
    services.begin(found, token.created_by, goal, policies)
    return Status(201, _answer(found))


def _within(body: dict[str, Any], name: str, high: float) -> float | None:
    value = body.get(name)
    if value is not None and not 0 < value <= high:
        raise BadInput(f"{value!r:.80} is out of bounds", name, f"over 0, at most {high:g}")
    return None if value is None else float(value)


@api.get(ADDRESS, response={200: RateStudyAnswer, **REFUSALS}, tags=["experiments"])
def read_highest_rate(request: HttpRequest, experiment: UUID) -> Any:
    """How far that search is: by policy the highest rate that was kept (`max_rate`), the lowest that was not
    (`below`), and the run that it waits for.

    ```
    curl -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/experiments/$SERVING/highest-rate"
    ```
    """
    return _answer(get_object_or_404(experiments_of(request), pk=experiment))


@api.post(f"{ADDRESS}/stop", response={200: RateStudyAnswer, **REFUSALS}, tags=["experiments"])
def stop_highest_rate(request: HttpRequest, experiment: UUID) -> Any:
    """Asks for no more runs, and cancels those that the search waits for.

    ```
    curl -X POST -H "Authorization: Bearer $TOKEN" "$LAB/api/v1/experiments/$SERVING/highest-rate/stop"
    ```
    """
    require_writer(request)
    found = get_object_or_404(experiments_of(request), pk=experiment)
    for study in RateStudy.objects.filter(experiment=found):
        services.stop(study)
    return _answer(found)
