"""A page of the table of all runs: rows with the figures that are shown, and where the next page begins."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from experiments.core.metrics import METRICS, known_or_plain
from webapp.accounts.models import Project
from webapp.compare.export_table import Column, LongTable, Rows, Table, in_parts
from webapp.compare.figures.boxes import Boxes
from webapp.compare.statistics import difference, is_better
from webapp.history import archive
from webapp.history.boxes import boxes_of, with_box
from webapp.history.models import RunTag
from webapp.history.search import Query
from webapp.history.search.rows import first_keys, first_runs, groups, search
from webapp.history.search.tree import And, Between, Compare, Condition, Field, Missing, Not, OneOf, Or
from webapp.history.segments.reading import groups_of_many
from webapp.presentation import pretty
from webapp.runs.among import among
from webapp.runs.headline import LEADING
from webapp.runs.models import LONGEST_METRIC, Run
from webapp.runs.results import every_figure
from webapp.runs.trashing import leave_out_trashed_experiments

PER_PAGE, MOST_GROUPS = 100, 200
#: Rows are counted up to here; more are said to be more.
MOST_COUNTED = 10_000
#: Rows of a file.
MOST_EXPORTED = 10_000
COLUMNS_OF_FILE = ("policy", "artifact__name", "hardware", "mode", "state", "seed")
#: Columns of figures that are shown where nobody chose any.
USUAL = 4
MOST_COLUMNS = 40
#: A run's figures by name.
Values = Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """``change`` is relative to the baseline, where one was chosen that has the figure too."""

    name: str
    value: float | None
    change: float | None = None

    @property
    def is_better(self) -> bool | None:
        """Whether the change is for the better; ``None`` for no change or a figure without a direction."""
        return is_better(self.change or 0.0, known_or_plain(self.name).lower_is_better)


@dataclass(frozen=True)
class Row:
    run: Run
    figures: tuple[Figure, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """``count`` runs in ``seconds``, more where ``is_more``; ``metrics`` are the columns of figures.

    ``groups_wait``: they take longer than a page may, and are asked for once it is shown; ``more_groups``:
    there are others besides ``groups``. ``is_first``: it is the first page; ``next`` is the
    run behind which the next one begins. So many that are ``archived`` would be found as well and are left
    out; ``shows_archived``: the search asks for them.
    """

    count: int
    is_more: bool
    seconds: float
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    groups: tuple[Mapping[str, Any], ...]
    offered: tuple[str, ...]
    is_first: bool
    next: UUID | None
    baseline: Run | None
    archived: int = 0
    shows_archived: bool = False
    more_groups: bool = False
    groups_wait: bool = False
    boxes: Boxes | None = None

    @property
    def orders(self) -> dict[str, str]:
        """Each column of figures as a search has it."""
        return {name: str(Field("metric", name)) for name in self.metrics}


def runs_of(project: Project) -> QuerySet[Run]:
    runs = Run.objects.filter(project=project, kind__in=Run.RECORDED)
    return leave_out_trashed_experiments(runs, [project])


def search_listed(project: Project, query: Query) -> QuerySet[Run]:
    """What the table has of a project: archived runs only where the search asks for them."""
    return search(archive.divide(runs_of(project), project, query)[0], query)


def find(
    project: Project,
    query: Query,
    chosen: Sequence[str],
    after: Run | None = None,
    baseline: Run | None = None,
    groups_may_wait: bool = False,
    box: str = "",
) -> Found:
    """The page of what ``query`` finds behind the run ``after``; the first one without it. ``box`` is the
    metric of the groups' boxes, where it is not that of the first column.
    """
    began = time.perf_counter()
    listed, archived = archive.divide(runs_of(project), project, query)
    found, shows = search(listed, query), archive.is_asked_for(query)
    wanted = found.select_related("artifact", "host", "experiment").defer("log_tail", "spec")
    runs = first_runs(wanted, query, PER_PAGE + 1, after)
    few = len(runs) if after is None and len(runs) <= PER_PAGE else None
    shown, following = runs[:PER_PAGE], runs[PER_PAGE - 1].pk if len(runs) > PER_PAGE else None
    values = every_figure([run.pk for run in (*shown, *([baseline] if baseline else []))])
    offered = _list_metrics(shown, values)
    metrics = _columns(query, chosen, shown, offered)
    told = values.get(baseline.pk, {}) if baseline else {}
    tags = tags_of([run.pk for run in shown])
    rows = tuple(
        Row(run, _figures(metrics, values.get(run.pk, {}), told), tuple(tags.get(run.pk, ())))
        for run in shown
    )
    asked = with_box(query, box or next(iter(metrics), ""))
    count, is_more, held = _count_in_groups(project, listed, asked, few, groups_may_wait)
    grouped = tuple(held[:MOST_GROUPS]) if held else ()
    boxes = boxes_of(project, listed, asked, grouped, count)
    return Found(
        count=count,
        is_more=is_more,
        seconds=time.perf_counter() - began,
        metrics=metrics,
        rows=rows,
        groups=grouped,
        offered=offered,
        is_first=after is None,
        next=following,
        baseline=baseline,
        archived=search(archived, query).order_by()[:MOST_COUNTED].count(),
        shows_archived=shows,
        more_groups=held is not None and len(held) > MOST_GROUPS,
        groups_wait=held is None,
        boxes=boxes,
    )


def _count_in_groups(
    project: Project, listed: QuerySet[Run], query: Query, few: int | None, may_wait: bool
) -> tuple[int, bool, list[dict[str, Any]] | None]:
    """How many of the listed runs the search finds, whether there are more, and their groups.

    All are counted where they are ``few`` or segments hold them, else the first of many, whose groups may
    wait: then there are none yet.
    """
    shows = archive.is_asked_for(query)
    if query.group and few is None and (held := groups_of_many([project.pk], query, MOST_GROUPS + 1, shows)):
        return held.count, False, held.rows
    count = _count(search(listed, query)) if few is None else few
    is_more = count > MOST_COUNTED
    waits = is_more and may_wait
    made = groups(listed, query, MOST_GROUPS + 1, is_more) if query.group and not waits else []
    return min(count, MOST_COUNTED), is_more, None if query.group and waits else made


def export_of(
    runs: QuerySet[Run], query: Query, chosen: Sequence[str], most: int = MOST_EXPORTED
) -> LongTable:
    """Those of the runs that the search finds as a table in its order, figures in SI units: the first of
    them, and of how many.
    """
    found = search(runs, query)
    first = first_keys(found, query, most + 1)
    parts = in_parts(first[:most])
    shown = list(Run.objects.filter(among("pk", first[:PER_PAGE])).only("family"))
    metrics = _columns(query, chosen, shown, _list_metrics(shown, every_figure(first[:PER_PAGE])))
    names = ("run", "policy", "workload", "hardware", "mode", "state", "seed", "tags")
    figures = (Column(name, known_or_plain(name).unit, is_figure=True) for name in metrics)
    of = _say(_count(found), MOST_COUNTED) if len(first) > most else ""
    return LongTable(
        Table("All runs", (*map(Column, names), *figures), _rows_of(parts[0], metrics), of=of),
        tuple(partial(_rows_of, part, metrics) for part in parts[1:]),
        min(len(first), most),
    )


def _rows_of(runs: Sequence[UUID], metrics: Sequence[str]) -> Rows:
    """Those that there are, in this order."""
    told = Run.objects.filter(among("pk", runs)).values_list("pk", *COLUMNS_OF_FILE)
    rows, values, tags = {row[0]: row[1:] for row in told}, every_figure(runs, metrics), tags_of(runs)
    return tuple(
        (str(run), *rows[run], " ".join(tags.get(run, ())), *map(values.get(run, {}).get, metrics))
        for run in runs
        if run in rows
    )


def tags_of(runs: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
    """By run: its tags, of those that have any."""
    found: defaultdict[UUID, list[str]] = defaultdict(list)
    for run, name in RunTag.objects.filter(among("run", runs)).values_list("run", "name"):
        found[run].append(name)
    return {run: tuple(sorted(names)) for run, names in found.items()}


def _count(found: QuerySet[Run]) -> int:
    """Up to one more than are counted."""
    return found.order_by()[: MOST_COUNTED + 1].count()


def _say(count: int, most: int) -> str:
    """``34``, or ``over 10,000``."""
    return f"over {most:,}" if count > most else f"{count:,}"


def find_groups(
    runs: QuerySet[Run], projects: Sequence[int], query: Query, most: int, with_archived: bool = True
) -> list[dict[str, Any]]:
    """At most so many groups of those of the projects' runs that the search finds, the largest first."""
    if held := groups_of_many(projects, query, most, with_archived):
        return held.rows
    return groups(runs, query, most, are_many=_count(search(runs, query)) > MOST_COUNTED)


def groups_of(project: Project, query: Query, most: int = MOST_GROUPS, with_archived: bool = True) -> Table:
    """Groups of the project's runs that the search finds, the largest first, as a table in SI units."""
    names = [str(field) for field in query.group]
    figures = [
        Column(str(one), known_or_plain(one.field.name).unit if one.field else "", is_figure=True)
        for one in query.aggregates
    ]
    runs = runs_of(project)
    listed = runs if with_archived else archive.divide(runs, project, query)[0]
    found = find_groups(listed, [project.pk], query, max(most, MOST_GROUPS) + 1, with_archived)
    rows = tuple(
        (*(_text(row[name]) for name in names), *(row[figure.label] for figure in figures))
        for row in found[:most]
    )
    of = _say(len(found), max(most, MOST_GROUPS)) if len(found) > most else ""
    return Table("Runs in groups", (*map(Column, names), *figures), rows, of=of)


def _text(value: Any) -> str:
    return "" if value is None else str(pretty(value))


def _figures(metrics: Sequence[str], values: Values, baseline: Values) -> tuple[Figure, ...]:
    return tuple(_figure(name, values.get(name), baseline.get(name)) for name in metrics)


def _figure(name: str, value: float | None, baseline: float | None) -> Figure:
    if value is None or baseline is None:
        return Figure(name, value)
    return Figure(name, value, difference(value, baseline))


def _list_metrics(runs: Sequence[Run], values: Mapping[UUID, Values]) -> tuple[str, ...]:
    """The metrics that any of the runs has: in the catalog's order, then those of people's own programs."""
    there = {name for run in runs for name in values.get(run.pk, {})}
    return (*(name for name in METRICS if name in there), *sorted(there.difference(METRICS)))


def _columns(
    query: Query, chosen: Sequence[str], runs: Sequence[Run], offered: Sequence[str]
) -> tuple[str, ...]:
    """Those that were chosen; else those that the search is about, and the leading ones of the families."""
    if chosen:
        return tuple(dict.fromkeys(name for name in chosen if 0 < len(name) <= LONGEST_METRIC))[:MOST_COLUMNS]
    about = [field.name for field in fields_of(query) if field.kind == "metric"]
    families = dict.fromkeys(run.family for run in runs)
    leading = [name for family in families for name in LEADING.get(family, ())]
    usual = [name for name in leading if name in offered]
    usual += [name for name in offered if name not in METRICS]
    return tuple(dict.fromkeys([*about, *usual]))[: max(USUAL, len(about))]


def fields_of(query: Query) -> list[Field]:
    """All that the search names, in the order in which it does."""
    found = _fields(query.condition) if query.condition else []
    found += [one.field for one in query.aggregates if one.field]
    return [*found, *([query.order] if query.order else [])]


def _fields(condition: Condition) -> list[Field]:
    match condition:
        case And(parts) | Or(parts):
            return [field for part in parts for field in _fields(part)]
        case Not(of):
            return _fields(of)
        case Compare(field) | OneOf(field) | Between(field) | Missing(field):
            return [field]
    return []
