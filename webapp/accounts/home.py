"""The home page of a project: where a file goes, the last answer, what runs, and on which hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments import hardware
from webapp.accounts.models import Project
from webapp.artifacts.fit import USUAL_DEVICE
from webapp.hosts.models import Host
from webapp.navigation import project_url
from webapp.nightly.models import Night
from webapp.runs.models import Experiment, Run
from webapp.runs.results import Segment, segments_of

#: Question, what one does there, and where it leads.
DOORS = (
    ("Is this paper's claim true?", "Each system's claims next to our figures.", "papers:systems"),
    (
        "Which strategy for our cluster?",
        "A model and a cluster: the best plan with its reasons, and settings to copy.",
        "advice:index",
    ),
    ("What changed last night?", "", "nightly:index"),
)
RECENT = 8


@dataclass(frozen=True)
class Door:
    question: str
    answer: str
    url: str


@dataclass(frozen=True)
class RecentExperiment:
    """An experiment with its runs as one bar, by state."""

    experiment: Experiment
    segments: tuple[Segment, ...]
    total: int
    is_final: bool


def doors(project: Project) -> list[Door]:
    """The last of them says how the last night ended."""
    return [
        Door(question, answer or last_night(project), project_url(project, name))
        for question, answer, name in DOORS
    ]


def devices() -> Sequence[tuple[str, float, bool]]:
    """Accelerators by memory: name, bytes, and whether it is the usual one."""
    ordered = sorted(hardware.accelerators().items(), key=lambda row: (row[1], row[0]))
    return [(name, memory, name == USUAL_DEVICE) for name, memory in ordered]


def recent_experiments(project: Project) -> list[RecentExperiment]:
    """Those that people asked for; nights have a place of their own."""
    found = Experiment.objects.filter(project=project, night=None).not_trashed()
    return [_recent(experiment) for experiment in found.select_related("created_by").newest(0, RECENT)]


def _recent(experiment: Experiment) -> RecentExperiment:
    counts = {str(state): getattr(experiment, state) for state in Run.State}
    moving = counts[Run.State.QUEUED] + counts[Run.State.RUNNING]
    return RecentExperiment(experiment, segments_of(counts), sum(counts.values()), not moving)


def hosts() -> list[Host]:
    """Those that are up first, with how many of their slots are at work."""
    return sorted(Host.objects.with_load().order_by("name"), key=lambda host: not host.is_up)


def last_night(project: Project) -> str:
    """One line: how the most recent night ended."""
    night = Night.objects.filter(schedule__project=project).select_related("experiment", "schedule").first()
    if night is None:
        return "No suite is scheduled in this project."
    suite = night.schedule.suite
    if night.skipped:
        return f"{suite} was skipped: {night.skipped}."
    if night.experiment is None:
        return f"{suite} was not started."
    states = list(night.experiment.runs.values_list("state", flat=True))
    told = f"{suite}: {states.count(Run.State.SUCCEEDED)} of {len(states)} runs succeeded"
    unfit = states.count(Run.State.INFEASIBLE)
    return f"{told}, {Run.State.INFEASIBLE.count_in_words(unfit)}." if unfit else f"{told}."
