"""A suite of ``experiments/suites`` as trials of a project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.core.suites import FOLDER, Suite
from webapp.accounts.models import Project, User
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import add_sample
from webapp.runs.grid import Trial
from webapp.runs.specs import Submission


def trials_of(suite: Suite, project: Project, user: User | None) -> list[tuple[str, Trial]]:
    """Every run with its title. ``BadInput`` says which field of a run is wrong."""
    submission = Submission(project, user)
    return [(title, submission.trial(_placed(dict(row), project, user))) for title, row in suite.runs]


def _placed(row: dict[str, Any], project: Project, user: User | None) -> dict[str, Any]:
    """The run with a file of the suites' folder replaced by the project's artifact of it, added when missing."""
    source = Path(row["workload"]["source"])
    if not source.is_relative_to(FOLDER):
        return row
    artifact = _artifact(project, user, source)
    return {**row, "workload": {**row["workload"], "source": f"artifact:{artifact.pk}"}}


def _artifact(project: Project, user: User | None, file: Path) -> Artifact:
    samples = Artifact.objects.of(project).filter(source=Artifact.Source.SAMPLE, name=file.name)
    had = samples.order_by("pk").first()
    return had or add_sample(project, user, file.name, file.read_bytes())  # type: ignore[arg-type]  # nobody's
