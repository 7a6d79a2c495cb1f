"""Rows as the API answers them."""

from __future__ import annotations

from typing import Any

from experiments.core.spec import metrics_json
from webapp.artifacts.models import Artifact
from webapp.runs.models import Experiment, Run, RunDocument


def run_row(run: Run) -> dict[str, Any]:
    """A run with ``project`` selected and ``metrics`` prefetched."""
    names = (
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
    )
    times = ("queued_at", "started_at", "finished_at")
    return {
        **{name: getattr(run, name) for name in (*names, *times)},
        "experiment": run.experiment_id,
        "project": run.project.slug,
        "artifact": run.artifact_id,
        "step": run.progress_step,
        "metrics": metrics_json({row.name: row.value for row in run.metrics.all()}),
    }


def run_answer(run: Run) -> dict[str, Any]:
    return {**run_row(run), "outcome": outcome_of(run)}


def outcome_of(run: Run) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = run.document.outcome
    except RunDocument.DoesNotExist:
        return None
    return found


def experiment_answer(experiment: Experiment) -> dict[str, Any]:
    runs = experiment.runs.select_related("project").prefetch_related("metrics").order_by("queued_at", "id")
    return {
        "id": experiment.pk,
        "name": experiment.name,
        "project": experiment.project.slug,
        "created_at": experiment.created_at,
        "runs": [run_row(run) for run in runs],
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
