"""The last answer of a project: the newest experiment that has ended, no night's, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef
from django.http import QueryDict
from django.utils.safestring import SafeString

from webapp.accounts.models import Project
from webapp.compare.answer import answer_of
from webapp.compare.choice import choice_of
from webapp.compare.comparison import compare
from webapp.compare.figures.chosen import draw_chosen
from webapp.compare.filters import MOST_RUNS, comparable
from webapp.hosts.evidence import SimulatorErrors
from webapp.runs.document import outcome_of
from webapp.runs.headline import headline_of
from webapp.runs.models import Experiment, Run


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
    runs_of_it = Run.objects.filter(experiment=OuterRef("pk"))
    moving = Exists(runs_of_it.exclude(state__in=Run.FINAL))
    figures = Exists(runs_of_it.filter(state=Run.State.SUCCEEDED))
    found = Experiment.objects.filter(~moving, figures, project=project, night=None).not_trashed()
    ended = found.with_counts().first()
    if ended is None:
        return None
    runs = list(comparable(project).filter(experiment=ended)[:MOST_RUNS])
    return _of_many(ended, runs, project, errors) or _of_one(ended, runs)


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
    values = {row.name: row.value for row in run.metrics.all()}
    sentence = headline_of(run, values, outcome_of(run))
    return LastAnswer(experiment, sentence, run, 1, None, is_comparison=False) if sentence else None
