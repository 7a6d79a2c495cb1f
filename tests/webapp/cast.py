"""The cast of the page tests: two teams that know nothing of each other, and a few things one of them has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from webapp.accounts import services
from webapp.accounts.models import Membership, Project, Role, Team, User
from webapp.artifacts.models import Artifact
from webapp.runs.models import Experiment, Run, RunDocument, RunMetric


@dataclass(frozen=True)
class Cast:
    """Ada is admin, Max member and Vera viewer of the red team; Sly is admin of the blue team and of nothing else."""

    ada: User
    max: User
    vera: User
    sly: User
    red: Team
    project: Project
    foreign: Project

    def url(self, rest: str = "") -> str:
        return f"/t/red/vision/{rest}"


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def make_cast() -> Cast:
    ada, max_, vera, sly = (User.objects.create_user(n, password="pw") for n in ("ada", "max", "vera", "sly"))
    red, blue = services.create_team("Red", ada), services.create_team("Blue", sly)
    Membership.objects.create(team=red, user=max_, role=Role.MEMBER)
    Membership.objects.create(team=red, user=vera, role=Role.VIEWER)
    return Cast(
        ada,
        max_,
        vera,
        sly,
        red,
        services.create_project(red, "Vision"),
        services.create_project(blue, "Speech"),
    )


def ready(project: Project, kind: str = "model", name: str = "gpt2", **more: Any) -> Artifact:
    fields = {"kind": kind, "format": "zoo", "zoo": name, "source": "zoo", "state": "ready", **more}
    return Artifact.objects.create(project=project, name=name, **fields)


def experiment_with(project: Project, artifact: Artifact, **states: int) -> Experiment:
    """An experiment with as many runs in each state as asked for: ``experiment_with(p, a, queued=2)``."""
    made = Experiment.objects.create(project=project, name="which fits")
    for state, count in states.items():
        for number in range(count):
            run_in(made, artifact, state, seed=number)
    return made


def run_in(experiment: Experiment, artifact: Artifact, state: str, **fields: Any) -> Run:
    spec = {
        "family": "memory",
        "policy": "baseline",
        "knobs": {},
        "workload": {"source": "zoo:gpt2", "format": "auto", "options": {"batch": 4}},
        "hardware": "a100-40g",
        "mode": "simulated",
        "seed": fields.get("seed", 0),
    }
    values = {"family": "memory", "policy": "baseline", "hardware": "a100-40g", "mode": "simulated"}
    run = Run.objects.create(
        project=experiment.project, experiment=experiment, artifact=artifact, state=state, spec=spec,
        **{**values, **fields},
    )  # fmt: skip
    if state == "running":
        Run.objects.filter(pk=run.pk).update(started_at=timezone.now() - timedelta(seconds=10), progress=0.5)
    return run


def finished(run: Run) -> Run:
    """Gives the run an outcome: 2 GiB peak, one stacked curve, one move."""
    RunMetric.objects.create(run=run, name="peak_memory", value=2.0 * 2**30)
    outcome = {
        "metrics": {},
        "series": {
            "device_bytes": {"unit": "bytes", "x": [0, 1], "y": [1, 2]},
            "device_bytes.gradient": {"unit": "bytes", "x": [0, 1], "y": [0, 1]},
            "capacity": {"unit": "bytes", "x": [0, 1], "y": [9, 9]},
        },
        "plan": {"moves": [{"action": "offload", "tensor": 66}], "reactive": False},
        "violations": ["tensor 66 is used while away"],
        "provenance": {"versions": {"torch": "9.9.9"}},
    }
    RunDocument.objects.create(run=run, outcome=outcome)
    return run
