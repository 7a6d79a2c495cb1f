"""Suites as a paper prints them: the last finished runs of each in a project, under the titles that the suite
gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.http import Http404

from experiments.core.errors import BadInput
from experiments.core.published_figures import Against, Agreement, mean_error, verdicts_in_words
from experiments.core.suites import (
    Cell,
    Suite,
    agreement_of,
    compare_with_published,
    load_suite,
    suite_names,
    value_grid,
)
from webapp.accounts.models import Project
from webapp.compare.comparison import Comparison
from webapp.compare.filters import comparable
from webapp.nightly.suites import title_of
from webapp.runs.models import Experiment, Run

#: So many of a suite's newest experiments are looked at for one that has ended.
LOOKED_AT = 20


@dataclass(frozen=True)
class SuiteState:
    """``finished`` is the newest experiment of the suite whose runs have all ended, some of them well;
    ``running`` a newer one that has not ended."""

    suite: Suite
    finished: Experiment | None
    running: Experiment | None

    @property
    def name(self) -> str:
        return self.suite.name

    @property
    def family(self) -> str:
        return ", ".join(sorted({str(row["family"]) for _, row in self.suite.runs}))


@dataclass(frozen=True)
class TitledRuns:
    """Runs in the suite's order, and what it calls each."""

    runs: tuple[Run, ...]
    titles: dict[UUID, str]


def states(project: Project) -> list[SuiteState]:
    return [state(project, name) for name in suite_names()]


def state(project: Project, name: str) -> SuiteState:
    """How the suite stands in the project, or 404."""
    try:
        suite = load_suite(name)
    except BadInput as error:
        raise Http404(str(error)) from None
    tried = (
        Experiment.objects.filter(project=project, request__suite=name)
        .not_trashed()
        .with_counts()[:LOOKED_AT]
    )
    return SuiteState(suite, *_newest(tried))


def _newest(tried: Iterable[Experiment]) -> tuple[Experiment | None, Experiment | None]:
    """The newest that has ended with a result, and one that still runs before it."""
    running = None
    for experiment in tried:
        counts = {state: int(getattr(experiment, state)) for state in Run.State}
        if counts[Run.State.QUEUED] or counts[Run.State.RUNNING]:
            running = running or experiment
        elif any(counts[state] for state in Run.ANSWERED):
            return experiment, running
    return None, running


def command_of(suite: Suite) -> str:
    """What gives the same table without this server."""
    return f"python -m experiments suite {suite.name}" + (" --data FOLDER" if suite.asks_for_data else "")


def grids_of(suite: Suite, comparison: Comparison) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """Each metric of the suite by workload and policy, as papers print it; none where it is no grid."""
    return [(metric, _grid_of(suite, comparison, metric)) for metric in suite.grid_metrics]


def _grid_of(suite: Suite, comparison: Comparison, metric: str) -> list[tuple[str, list[Cell]]]:
    known = {entry.title: entry.estimates.get(metric) for entry in comparison.entries}
    unseen = {title for title, one in known.items() if one is not None and one.is_unseen}
    return value_grid(suite, _means(comparison, dict.fromkeys(known, metric)), unseen)


def _values(suite: Suite, comparison: Comparison) -> dict[str, float]:
    return _means(comparison, {title: suite.value_of(title) for title in _titles(comparison)})


def _titles(comparison: Comparison) -> list[str]:
    return [entry.title for entry in comparison.entries]


def _means(comparison: Comparison, metrics: Mapping[str, str]) -> dict[str, float]:
    """Return for each title the mean of its metric over repeats, where there is one."""
    found = {entry.title: entry.estimates.get(metrics[entry.title]) for entry in comparison.entries}
    return {title: one.mean for title, one in found.items() if one is not None}


@dataclass(frozen=True)
class Published:
    """The suite's figures next to what was published, the mean of the errors, and what was asked of them.

    ``counts`` says how many have which verdict.
    """

    rows: tuple[Against, ...]
    mean: float | None
    agreement: Agreement | None
    counts: str


def published_of(suite: Suite, comparison: Comparison) -> Published | None:
    """``None`` for a suite that names no published figures."""
    rows = tuple(compare_with_published(suite, _values(suite, comparison)))
    if not rows:
        return None
    return Published(rows, mean_error(rows), agreement_of(suite, rows), verdicts_in_words(rows))


def titled_runs(found: SuiteState, project: Project) -> TitledRuns:
    """The runs of the finished experiment; one that the suite does not know any more comes last."""
    assert found.finished is not None
    order = {title: place for place, (title, _) in enumerate(found.suite.runs)}
    runs = list(comparable(project).filter(experiment=found.finished).select_related("experiment"))
    titles = {run.pk: title_of(run) for run in runs}
    runs.sort(key=lambda run: order.get(titles[run.pk], len(order)))
    return TitledRuns(tuple(runs), titles)
