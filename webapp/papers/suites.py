"""Suites as papers print them, under the titles that they give: the last finished runs of each in a project,
or what shipped with the release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
from webapp.compare.choice import Choice
from webapp.compare.comparison import Comparison, compare, compare_entries
from webapp.compare.filters import comparable
from webapp.nightly.suites import title_of
from webapp.papers.beside import Beside, put_beside
from webapp.papers.models import ShippedSuite
from webapp.papers.shipped_suites import shipped_entries, shipped_suite, shipped_suites
from webapp.runs.models import Experiment, Run

#: So many of a suite's newest experiments are looked at for one that has ended.
LOOKED_AT = 20
#: What there is of a suite that nobody ran: no finished and no running experiment.
NEVER = (None, None)
#: Whose results an address asks for.
OWN, SHIPPED = "own", "shipped"


@dataclass(frozen=True)
class SuiteState:
    """``finished`` is the newest experiment of the suite whose runs have all ended, some of them well;
    ``running`` a newer one that has not ended; ``release`` is what shipped, or why nothing did."""

    suite: Suite
    finished: Experiment | None
    running: Experiment | None
    release: ShippedSuite | None

    @property
    def name(self) -> str:
        return self.suite.name

    @property
    def shipped(self) -> ShippedSuite | None:
        """What shipped; ``None`` where there are no figures of it."""
        return self.release if self.release and not self.release.left_out else None

    @property
    def family(self) -> str:
        return ", ".join(sorted({str(row["family"]) for _, row in self.suite.runs}))


def states(project: Project) -> list[SuiteState]:
    """How every suite stands in the project."""
    releases, made = shipped_suites(), Experiment.objects.filter(project=project, request__has_key="suite")
    tried = set(made.order_by().values_list("request__suite", flat=True).distinct())
    own = {name: _newest(_tried(project, name)) if name in tried else NEVER for name in suite_names()}
    return [SuiteState(load_suite(name), *found, releases.get(name)) for name, found in own.items()]


def state(project: Project, name: str) -> SuiteState:
    """How the suite stands in the project, or 404."""
    try:
        suite = load_suite(name)
    except BadInput as error:
        raise Http404(str(error)) from None
    return SuiteState(suite, *_newest(_tried(project, name)), shipped_suite(suite))


def _tried(project: Project, name: str) -> Iterable[Experiment]:
    made = Experiment.objects.filter(project=project, request__suite=name)
    return made.not_trashed().newest(0, LOOKED_AT)


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
    """Ours for each published figure whose run gave it, the mean over repeats."""
    found = {entry.title: entry.estimates for entry in comparison.entries}
    asked = {row: suite.figure_of(row) for row in suite.published}
    known = {row: found[run].get(metric) for row, (run, metric) in asked.items() if run in found}
    return {row: one.mean for row, one in known.items() if one is not None}


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


def whose(found: SuiteState, asked: str) -> str:
    """Whose results are shown: the project's own unless others are asked for; empty where there are none."""
    there = [name for name, one in ((OWN, found.finished), (SHIPPED, found.shipped)) if one]
    return asked if asked in there else next(iter(there), "")


def compare_suite(found: SuiteState, project: Project, shown: str, choice: Choice) -> Comparison:
    """The project's own runs of the suite, or those that shipped, in the suite's order."""
    if shown == OWN:
        return _compare_own(found, project, choice)
    assert found.shipped is not None
    return compare_entries(list(shipped_entries(found.shipped)), choice)


def _compare_own(found: SuiteState, project: Project, choice: Choice) -> Comparison:
    """The runs of the finished experiment; one that the suite does not know any more comes last."""
    assert found.finished is not None
    order = {title: place for place, (title, _) in enumerate(found.suite.runs)}
    runs = list(comparable(project).filter(experiment=found.finished).select_related("experiment"))
    titles = {run.pk: title_of(run) for run in runs}
    runs.sort(key=lambda run: order.get(titles[run.pk], len(order)))
    return compare(runs, choice, titles=titles)


def own_beside_shipped(found: SuiteState, project: Project) -> Beside | None:
    """The project's figures next to those that shipped; ``None`` where there are not both."""
    if not (found.finished and found.shipped):
        return None
    own, shipped = (compare_suite(found, project, one, Choice()) for one in (OWN, SHIPPED))
    return put_beside(found.suite, own, shipped)
