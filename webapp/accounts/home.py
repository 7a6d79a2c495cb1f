"""What the home page of a project says: four doors and one line about last night."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import NoReverseMatch

from webapp.accounts.models import Project
from webapp.navigation import project_url
from webapp.nightly.models import Night
from webapp.runs.models import Run

#: Question, what one does there, and where it leads.
DOORS = (
    (
        "Will my model fit, and what does it cost?",
        "Drop a config.json, pick a device, try all memory policies.",
        "artifacts:upload",
    ),
    (
        "Is this paper's claim true?",
        "Each system's claims beside our figures, with the rule of the verdict.",
        "papers:systems",
    ),
    (
        "What changed last night?",
        "Nights, series and alerts of the scheduled suites.",
        "nightly:index",
    ),
    (
        "Which strategy for our cluster?",
        "A model and a cluster: the best plan with its reasons, and settings to copy.",
        "advice:index",
    ),
)


@dataclass(frozen=True)
class Door:
    question: str
    answer: str
    url: str


def doors(project: Project) -> list[Door]:
    return [Door(question, answer, _url(project, name)) for question, answer, name in DOORS]


def _url(project: Project, name: str) -> str:
    """Where the door leads; to the experiments while its own page is not installed."""
    try:
        return project_url(project, name)
    except NoReverseMatch:
        return project_url(project, "runs:experiments")


def last_night(project: Project) -> str:
    """One line: how the most recent night ended."""
    night = Night.objects.filter(schedule__project=project).select_related("experiment", "schedule").first()
    if night is None:
        return "No suite is scheduled in this project."
    when = f"{night.schedule.suite}, {night.slot:%d %b %H:%M} UTC"
    if night.skipped:
        return f"{when}: skipped, {night.skipped}."
    if night.experiment is None:
        return f"{when}: not started."
    states = list(night.experiment.runs.values_list("state", flat=True))
    told = f"{when}: {states.count(Run.State.SUCCEEDED)} of {len(states)} runs succeeded"
    unfit = states.count(Run.State.INFEASIBLE)
    return f"{told}, {Run.State.INFEASIBLE.count_in_words(unfit)}." if unfit else f"{told}."
