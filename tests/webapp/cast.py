"""The cast of the page tests: teams that know nothing of each other, and artifacts, experiments and runs they
have.
"""

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
    """Ada is admin, Max member and Vera viewer of the red team; Sly is admin of the blue team and of nothing
    else.
    """

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


@dataclass(frozen=True)
class Place:
    """A member of a team of their own and the project they work in: for tests that need no more people."""

    user: User
    project: Project

    def url(self, rest: str = "") -> str:
        return f"/t/{self.project.team.slug}/{self.project.slug}/{rest}"


def place(name: str, role: str = Role.MEMBER) -> Place:
    """The team ``name`` with one user of the same name in ``role`` and one project."""
    user = User.objects.create_user(username=name, password="correct horse battery")
    team = Team.objects.create(name=name, slug=name)
    Membership.objects.create(team=team, user=user, role=role)
    return Place(user, services.create_project(team, "Lab"))


def ready(project: Project, kind: str = "model", name: str = "gpt2", **more: Any) -> Artifact:
    fields = {"kind": kind, "format": "zoo", "zoo": name, "source": "zoo", "state": "ready", **more}
    return Artifact.objects.create(project=project, name=name, **fields)


def experiment(project: Project, name: str = "which fits") -> Experiment:
    return Experiment.objects.create(project=project, name=name)


def experiment_with(project: Project, artifact: Artifact, **states: int) -> Experiment:
    """An experiment with as many runs in each state as asked for: ``experiment_with(p, a, queued=2)``."""
    made = experiment(project)
    for state, count in states.items():
        for number in range(count):
            run_in(made, artifact, state, seed=number)
    return made


def run(
    experiment: Experiment,
    policy: str = "baseline",
    metrics: dict[str, float] | None = None,
    state: str = Run.State.SUCCEEDED,
    **more: Any,
) -> Run:
    """A run as a worker would have left it in ``state``; what the spec says (knobs, mode ...) and columns in
    ``more``.
    """
    spec = {
        "family": more.pop("family", "memory"),
        "policy": policy,
        "knobs": more.pop("knobs", {}),
        "workload": {"source": "zoo:gpt2", "format": "auto", "options": more.pop("options", {"batch": 4})},
        "hardware": more.pop("hardware", "a100-40g"),
        "mode": more.pop("mode", "simulated"),
        "seed": more.pop("seed", 0),
    }
    same = {name: spec[name] for name in ("family", "policy", "mode", "seed")}
    fields = same | {"hardware": str(spec["hardware"]), **_since(state), **more}
    made = Run.objects.create(
        project=experiment.project, experiment=experiment, spec=spec, state=state, **fields
    )
    values = (metrics or {}).items()
    RunMetric.objects.bulk_create([RunMetric(run=made, name=name, value=value) for name, value in values])
    return made


def run_in(experiment: Experiment, artifact: Artifact, state: str, **more: Any) -> Run:
    """A run on ``artifact`` in ``state``, its policy and the rest left as they come."""
    return run(experiment, artifact=artifact, state=state, **more)


def _since(state: str) -> dict[str, Any]:
    """The columns that say how far a run in ``state`` has come."""
    now = timezone.now()
    if state == Run.State.RUNNING:
        return {"started_at": now - timedelta(seconds=10), "progress": 0.5}
    if state == Run.State.SUCCEEDED:
        return {"finished_at": now, "outcome_status": "ok"}
    return {"finished_at": now} if state in Run.FINAL else {}


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


def finished_run(cast: Cast, outcome: dict[str, Any], hardware: str) -> Run:
    """A run with all that a worker would have left of ``outcome``."""
    experiment = experiment_with(cast.project, ready(cast.project), succeeded=1)
    made = experiment.runs.get()
    RunDocument.objects.create(run=made, outcome=outcome)
    for name, row in outcome["metrics"].items():
        made.metrics.create(name=name, value=row["value"])
    spec = outcome["spec"]
    Run.objects.filter(pk=made.pk).update(
        family=spec["family"], policy=spec["policy"], spec=spec, hardware=hardware
    )
    made.refresh_from_db()
    return made
