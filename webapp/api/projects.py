"""Which project of its team a token speaks of."""

from __future__ import annotations

from experiments.core.errors import BadInput
from webapp.accounts.models import Project, Team


def project_of(team: Team, slug: str | None) -> Project:
    """The named project of the team; without a name its only one."""
    projects = {project.slug: project for project in team.projects.filter(trashed_at=None)}
    if slug is None and len(projects) == 1:
        return next(iter(projects.values()))
    if slug is None or slug not in projects:
        raise BadInput(f"{slug!r:.80} is not a project of {team}", "project", ", ".join(sorted(projects)))
    return projects[slug]
