"""Changes of experiments and runs: submitting and cancelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from webapp.accounts.models import Project, User
from webapp.runs import lifecycle, queue, turns
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, Run
from webapp.runs.node_lists import cluster_listed


@transaction.atomic
def submit_experiment(
    project: Project, user: User, *, name: str, trials: Sequence[Trial], request: dict[str, Any]
) -> Experiment:
    """Writes the experiment and its runs as queued; workers are woken once that is committed."""
    made = Experiment.objects.create(
        project=project, name=name or name_of(trials), request=request, created_by=user
    )
    add_runs(made, user, trials)
    return made


def add_runs(experiment: Experiment, user: User | None, trials: Sequence[Trial], revision: str = "") -> None:
    """More runs of an experiment, queued; with ``revision`` that stored code carries them out."""
    runs = [_run(experiment, user, trial) for trial in trials]
    for run in runs:
        run.revision = revision
    turns.enqueue(runs)
    queue.wake()


def name_of(trials: Sequence[Trial]) -> str:
    """``vdnn-all and 4 more on gpt2``."""
    policies = list(dict.fromkeys(trial.spec["policy"] for trial in trials))
    artifacts = list(dict.fromkeys(trial.artifact.name for trial in trials))
    return f"{_some(policies)} on {_some(artifacts)}"[:160]


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _run(experiment: Experiment, user: User | None, trial: Trial) -> Run:
    spec = {**trial.spec, "workload": {"source": f"artifact:{trial.artifact.pk}", **trial.spec["workload"]}}
    return Run(
        project=experiment.project,
        experiment=experiment,
        artifact=trial.artifact,
        owner=user,
        spec=spec,
        family=spec["family"],
        policy=spec["policy"],
        hardware=label_in(experiment.project, spec["hardware"]),
        mode=spec["mode"],
        seed=spec["seed"],
        needs=trial.needs,
    )


def label_in(project: Project, hardware: Any) -> str:
    """As ``hardware_label``, a node list of the project by its name."""
    listed = cluster_listed(project, hardware)
    return listed.label if listed else hardware_label(hardware)


def hardware_label(hardware: Any) -> str:
    """A spec's hardware in one line: ``a100-40g with memory_bytes=1.2e+10``, ``4x4 t4``, ``4x dgx-a100``."""
    if isinstance(hardware, str):
        return hardware
    if isinstance(hardware, Sequence):
        return " + ".join(hardware_label(group) for group in hardware)[:120]
    row = hardware.get("cluster", hardware)
    if isinstance(row.get("nodes"), str):
        return f"nodes of {row['nodes']}"[:120]
    changed = ", ".join(f"{name}={value:g}" for name, value in row.get("overrides", {}).items())
    label = _machine_label(row)
    return f"{label} with {changed}"[:120] if changed else label


def _machine_label(row: Mapping[str, Any]) -> str:
    if "node" in row:
        return f"{row.get('nodes', 1)}x {row['node']}"
    if "nodes" in row:
        return f"{row['nodes']}x{row.get('devices_per_node', '')} {row['device']}"
    return str(row["device"])


@transaction.atomic
def cancel(run: Run) -> None:
    """A queued run is cancelled at once; a running one is asked to stop, and its worker ends it."""
    found = Run.objects.select_for_update().get(pk=run.pk)
    if found.is_final:
        return
    found.cancel_requested = True
    if found.state == Run.State.QUEUED:
        found.state, found.finished_at = Run.State.CANCELLED, timezone.now()
    found.save(update_fields=["cancel_requested", "state", "finished_at"])
    lifecycle.fail_followers(found.pk, found.state, "cancelled")


@transaction.atomic
def trash_experiment(experiment: Experiment) -> None:
    """Cancels what has not ended and puts the experiment into the team's trash."""
    cancel_experiment(experiment)
    experiment.trashed_at = timezone.now()
    experiment.save(update_fields=["trashed_at"])


@transaction.atomic
def cancel_experiment(experiment: Experiment) -> None:
    """As ``cancel`` of each of its runs that has not ended, by as many queries for many as for few.

    All are asked to stop first, so that one which is claimed meanwhile is ended by its worker.
    """
    cancelled = Run.State.CANCELLED
    experiment.runs.exclude(state__in=Run.FINAL).update(cancel_requested=True)
    experiment.runs.filter(state=Run.State.QUEUED).update(state=cancelled, finished_at=Now())
    needed = experiment.runs.filter(state=cancelled, followers__state=Run.State.QUEUED)
    for run in list(needed.order_by().values_list("pk", flat=True).distinct()):
        lifecycle.fail_followers(run, cancelled, "cancelled")
