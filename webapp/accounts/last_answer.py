"""The last answer of a project: the newest experiment that has ended, no night's, in one sentence."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max
from django.http import QueryDict
from django.utils.safestring import SafeString

from webapp.accounts.models import Project
from webapp.compare.answer import answer_of
from webapp.compare.choice import choice_of
from webapp.compare.comparison import compare
from webapp.compare.figures.chosen import draw_chosen
from webapp.compare.filters import MOST_RUNS, comparable
from webapp.hosts.evidence import SimulatorErrors
from webapp.navigation import project_url
from webapp.runs.document import outcome_of
from webapp.runs.headline import headline_of
from webapp.runs.models import Experiment, ExperimentQuerySet, Run

#: So many experiments are read at once, from the newest on, until one has ended with figures.
READ_AT_ONCE = 20


@dataclass(frozen=True)
class LastAnswer:
    """``run`` is one of the experiment's: whose mode, family and hardware the badge tells."""

    experiment: Experiment
    sentence: SafeString
    run: Run
    answered: int
    plot: Mapping[str, Any] | None
    is_comparison: bool


def last_answer(project: Project, errors: SimulatorErrors) -> LastAnswer | None:
    """``None`` while no experiment has ended with a run that succeeded."""
    asked = Experiment.objects.filter(project=project, night=None, is_logged=False)
    ended = _first_ended(asked.not_trashed())
    if ended is None:
        return None
    ended.project = project
    answer = _answer_as_of(_Moment.of(ended), errors)
    return replace(answer, experiment=ended) if answer else None


def _first_ended(found: ExperimentQuerySet) -> Experiment | None:
    """The first with figures of which no run waits or runs. Not asked for in SQL: the planner takes it for
    rare, and works out the counts of all.
    """
    for start in itertools.count(0, READ_AT_ONCE):
        page: list[Any] = found.newest(start, start + READ_AT_ONCE)
        for one in page:
            if one.succeeded and not one.queued and not one.running:
                ended: Experiment = one
                return ended
        if len(page) < READ_AT_ONCE:
            break
    return None


@dataclass(frozen=True)
class _Moment:
    """What an answer follows from: runs of an experiment that has ended stay as they are, but they, or the
    workloads that they name, may be deleted, and another baseline pinned.
    """

    experiment: UUID
    pinned: UUID | None
    address: str
    runs: int
    workloads: int
    ended: datetime | None

    @classmethod
    def of(cls, experiment: Experiment) -> _Moment:
        told = experiment.runs.aggregate(
            runs=Count("pk"), workloads=Count("artifact"), ended=Max("finished_at")
        )
        return cls(experiment.pk, experiment.pinned_id, project_url(experiment.project, "project"), **told)


@functools.lru_cache(maxsize=128)
def _answer_as_of(moment: _Moment, errors: SimulatorErrors) -> LastAnswer | None:
    """Worked out once: everybody who comes home reads the same one."""
    experiment = Experiment.objects.select_related("project__team").get(pk=moment.experiment)
    project = experiment.project
    runs = list(comparable(project).filter(experiment=experiment)[:MOST_RUNS])
    return _of_many(experiment, runs, project, errors) or _of_one(experiment, runs)


def _of_many(
    experiment: Experiment, runs: list[Run], project: Project, errors: SimulatorErrors
) -> LastAnswer | None:
    choice = choice_of(QueryDict())
    comparison = compare(runs, choice, str(experiment.pinned_id or ""))
    answer = answer_of(comparison, project, errors)
    if answer is None:
        return None
    figure = draw_chosen(comparison, answer, choice, project, errors)
    plot = figure.plot if figure else None
    answered = sum(run.state == Run.State.SUCCEEDED for run in runs)
    return LastAnswer(experiment, answer.headline, runs[0], answered, plot, is_comparison=True)


def _of_one(experiment: Experiment, runs: list[Run]) -> LastAnswer | None:
    """Of runs with several questions, or a single one: what the first that succeeded found."""
    run = next(one for one in runs if one.state == Run.State.SUCCEEDED)
    sentence = headline_of(run, run.figures, outcome_of(run))
    return LastAnswer(experiment, sentence, run, 1, None, is_comparison=False) if sentence else None
