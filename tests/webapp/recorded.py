"""A team with a project, and runs as a worker would have left them: what the pages' tests start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from webapp.accounts.models import Membership, Project, Role, Team, User
from webapp.accounts.services import create_project
from webapp.artifacts.models import Artifact
from webapp.runs.models import Experiment, Run, RunMetric


@dataclass(frozen=True)
class Place:
    """A member of a team and the project they work in."""

    user: User
    project: Project

    def url(self, rest: str) -> str:
        return f"/t/{self.project.team.slug}/{self.project.slug}/{rest}"


def place(name: str, role: str = Role.MEMBER) -> Place:
    """The team ``name`` with one user of the same name in ``role`` and one project."""
    user = User.objects.create_user(username=name, password="correct horse battery")
    team = Team.objects.create(name=name, slug=name)
    Membership.objects.create(team=team, user=user, role=role)
    return Place(user, create_project(team, "Lab"))


def artifact(project: Project, name: str = "gpt2", kind: str = "model") -> Artifact:
    return Artifact.objects.create(
        project=project, name=name, kind=kind, format="hf-config", state=Artifact.State.READY
    )


def experiment(project: Project, name: str = "memory on gpt2") -> Experiment:
    return Experiment.objects.create(project=project, name=name)


def run(
    experiment: Experiment, policy: str = "baseline", metrics: dict[str, float] | None = None, **more: Any
) -> Run:
    """A run that has ended; ``metrics`` empty means that there was nothing to report."""
    now = timezone.now()
    spec = {
        "family": more.pop("family", "memory"),
        "policy": policy,
        "workload": {"source": "zoo:gpt2", "format": "auto", "options": more.pop("options", {})},
        "hardware": more.pop("hardware", "a100-40g"),
        "knobs": more.pop("knobs", {}),
        "mode": more.pop("mode", "simulated"),
        "seed": more.pop("seed", 0),
    }
    fields: dict[str, Any] = {"state": Run.State.SUCCEEDED, "outcome_status": "ok", "finished_at": now} | more
    made = Run.objects.create(
        project=experiment.project,
        experiment=experiment,
        spec=spec,
        family=spec["family"],
        policy=policy,
        hardware=str(spec["hardware"]),
        mode=spec["mode"],
        seed=spec["seed"],
        **fields,
    )
    values = (metrics or {}).items()
    RunMetric.objects.bulk_create([RunMetric(run=made, name=name, value=value) for name, value in values])
    return made
