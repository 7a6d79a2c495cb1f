"""Rows as the API answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F, QuerySet

from experiments.core.metrics import Metric, known_or_plain
from webapp.artifacts.models import Artifact
from webapp.runs.models import Experiment, Run, RunDocument
from webapp.runs.results import every_figure

#: Columns of a run that its answer has by the same name, and those that it has by another.
SAME = (
    "id",
    "family",
    "policy",
    "hardware",
    "mode",
    "seed",
    "state",
    "progress",
    "outcome_status",
    "dashboard_status",
    "reason",
    "queued_at",
    "started_at",
    "finished_at",
)
RENAMED = {
    "experiment": F("experiment_id"),
    "project": F("project__slug"),
    "artifact": F("artifact_id"),
    "step": F("progress_step"),
}


def run_rows(runs: QuerySet[Run]) -> list[dict[str, Any]]:
    """``runs`` as ``schemas.RunRow`` has them, in two queries and without an object for each figure: a
    thousand whole runs are asked for at once.
    """
    columns = {f"told_{name}": value for name, value in RENAMED.items()}
    found = list(runs.annotate(**columns).values(*SAME, *columns))
    metrics = every_figure([row["id"] for row in found])
    about = {name: known_or_plain(name) for name in {name for told in metrics.values() for name in told}}
    return [_run_row(row, metrics.get(row["id"], {}), about) for row in found]


def _run_row(
    row: Mapping[str, Any], metrics: Mapping[str, float], about: Mapping[str, Metric]
) -> dict[str, Any]:
    told = {name.removeprefix("told_"): value for name, value in row.items()}
    told["metrics"] = {
        name: {"value": value, "unit": (known := about[name]).unit, "lower_is_better": known.lower_is_better}
        for name, value in metrics.items()
    }
    return told


def run_answer(run: Run) -> dict[str, Any]:
    (row,) = run_rows(Run.objects.filter(pk=run.pk))
    return {**row, "outcome": outcome_of(run)}


def outcome_of(run: Run) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = run.document.outcome
    except RunDocument.DoesNotExist:
        return None
    return found


def experiment_answer(experiment: Experiment) -> dict[str, Any]:
    return {
        "id": experiment.pk,
        "name": experiment.name,
        "project": experiment.project.slug,
        "created_at": experiment.created_at,
        "runs": run_rows(experiment.runs.order_by("queued_at", "id")),
    }


def experiment_row(experiment: Any) -> dict[str, Any]:
    """One with the counts of ``with_counts``."""
    return {
        **{name: getattr(experiment, name) for name in ("id", "name", "created_at", "total")},
        "project": experiment.project.slug,
        "states": {state: getattr(experiment, state) for state in Run.State if getattr(experiment, state)},
    }


def host_row(host: Any) -> dict[str, Any]:
    """One with the count of ``with_load``."""
    names = ("name", "device_kinds", "devices", "cores", "memory_bytes", "slots", "busy", "heartbeat_at")
    return {**{name: getattr(host, name) for name in names}, "up": host.is_up}


def artifact_answer(artifact: Artifact) -> dict[str, Any]:
    return {**artifact_row(artifact), "summary": artifact.summary}


def artifact_row(artifact: Artifact) -> dict[str, Any]:
    names = ("id", "name", "state", "kind", "format", "reason", "warnings", "assumed", "created_at")
    return {
        **{name: getattr(artifact, name) for name in names},
        "project": artifact.project.slug,
        "sha256": artifact.blob_id,
        "size": artifact.blob.size if artifact.blob else None,
    }
