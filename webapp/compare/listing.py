"""Lists as tables: one base that searches, sorts, chooses columns, pages, counts and leaves as a file.

The whole state is in the address, every name after the table's prefix, so that a page may have several
tables: ``?nights-q=failed&nights-sort=-night&nights-column=state&nights-page=2``.
``?export=csv&table=nights-`` is the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import django_tables2 as tables
from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django_tables2 import RequestConfig

from webapp import presentation
from webapp.compare.export import download
from webapp.compare.export_table import PART, Cell, Column, LongTable, Rows, Table, in_parts
from webapp.runs.among import among

PER_PAGE = 50
RIGHT = {"th": {"class": "right"}, "td": {"class": "right"}}


class FigureColumn(tables.Column):  # type: ignore[misc]
    """A figure in the SI unit ``unit``: as people read it on the page, with every digit in a file."""

    def __init__(self, *args: Any, unit: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **{"attrs": RIGHT, **kwargs})
        self.unit = unit

    def render(self, value: Any) -> Any:
        return presentation.figure(value, self.unit)

    def value(self, value: Any) -> Any:
        return value


class MetricColumn(FigureColumn):
    """A figure of the metric that the row names under ``metric``; a file has SI units, so give it a column of
    them.
    """

    def __init__(self, *args: Any, metric: str = "metric", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.metric = tables.A(metric)

    def render(self, value: Any, record: Any = None) -> Any:
        return presentation.metric(value, self.metric.resolve(record))


class MomentColumn(tables.Column):  # type: ignore[misc]
    """A moment: in the reader's time zone on the page, ISO 8601 in a file."""

    def render(self, value: Any) -> Any:
        return presentation.when(value)

    def value(self, value: Any) -> str:
        return str(value.isoformat(timespec="seconds"))


class StateColumn(tables.Column):  # type: ignore[misc]
    """A state with its mark."""

    def render(self, value: str) -> Any:
        return presentation.state_badge(value)

    def value(self, value: str) -> str:
        return value


class Listing(tables.Table):  # type: ignore[misc]
    """Base of the lists. ``search_fields`` are what ``q`` looks in where the rows are a query set.

    ``fields`` are bound form fields that narrow the rows instead of ``q``; ``command`` prints the same on a
    command line, where there is such a command. ``read_for_file`` is what a file's columns read of a row of
    a query set, where that is not all of it.
    """

    title = ""
    search_fields: Sequence[str] = ()
    read_for_file: Sequence[str] = ()

    def __init__(
        self,
        rows: Any,
        request: HttpRequest,
        *,
        title: str = "",
        command: str = "",
        fields: Iterable[Any] = (),
        per_page: int = PER_PAGE,
        **more: Any,
    ) -> None:
        prefix = more.get("prefix") or self._meta.prefix or ""
        self.fields = tuple(fields)
        self.q = "" if self.fields else request.GET.get(f"{prefix}q", "").strip()
        is_query = isinstance(rows, QuerySet)
        if is_query and self.q:
            rows = rows.filter(_any_contains(self.search_fields, self.q))
        self.title, self.command, self.per_page = title or self.title, command, per_page
        super().__init__(rows, attrs={"aria-label": self.title}, **more)
        if self.q and not is_query:
            self.data.data = [row for row in self.data.data if self._has(row)]
        self._choose_columns(request.GET.getlist(f"{prefix}column"))
        RequestConfig(request, paginate=False).configure(self)
        self._turn_to(request.GET.get(self.prefixed_page_field))

    @property
    def count(self) -> int:
        return int(self.paginator.count)

    @property
    def can_search(self) -> bool:
        return bool(self.search_fields) or not isinstance(self.data, tables.data.TableQuerysetData)

    def export_table(self) -> LongTable:
        """All rows as they are searched and sorted, in the columns that are shown."""
        shown = [bound for bound in self.columns.itervisible() if not bound.column.exclude_from_export]
        tellers = [_Teller.of(bound, self) for bound in shown]

        def rows_of(rows: Iterable[Any]) -> Rows:
            return tuple(tuple(tell.cell(row) for tell in tellers) for row in rows)

        parts = self._parts()
        table = Table(self.title, tuple(map(_column, shown)), rows_of(parts[0]))
        return LongTable(table, tuple(partial(rows_of, rows) for rows in parts[1:]))

    def _parts(self) -> Sequence[Iterable[Any]]:
        """The rows; where they are many of a query set, so that each part is read by itself: those that there
        are now.
        """
        rows = self.data.data
        if not isinstance(rows, QuerySet) or self.count <= PART or rows.query.is_sliced:
            return [rows]
        found = rows.only(*self.read_for_file) if self.read_for_file else rows
        return [found.filter(among("pk", part)) for part in in_parts(list(rows.values_list("pk", flat=True)))]

    def _turn_to(self, page: str | None) -> None:
        """The page that the address asks for, the nearest that there is; how long one is, is not asked."""
        self.paginator = Paginator(self.rows, self.per_page)
        self.page = self.paginator.get_page(page)

    def _has(self, row: Any) -> bool:
        cells = (bound.accessor.resolve(row, quiet=True) for bound in self.columns.iterall())
        return any(self.q.lower() in str(cell).lower() for cell in cells if cell is not None)

    def _choose_columns(self, chosen: Sequence[str]) -> None:
        known = {bound.name for bound in self.columns.iterall()}
        if not known.intersection(chosen):
            return
        for name in known:
            (self.columns.show if name in chosen else self.columns.hide)(name)


def _any_contains(fields: Sequence[str], text: str) -> Q:
    found = Q()
    for field in fields:
        found |= Q(**{f"{field}__icontains": text})
    return found


def _column(bound: Any) -> Column:
    is_figure = isinstance(bound.column, FigureColumn)
    return Column(str(bound.header), bound.column.unit if is_figure else "", is_figure)


@dataclass(frozen=True)
class _Teller:
    """What a column says of a row in a file.

    The cells of ``as_values`` look for what a column reads and which arguments it takes each time anew, most
    of what a file of 10,000 rows takes.
    """

    read: Callable[[Any], Any]
    tell: Callable[..., Any]
    names: tuple[str, ...]
    empty: Sequence[Any]

    @classmethod
    def of(cls, bound: Any, table: Listing) -> _Teller:
        is_plain = getattr(bound.value, "__func__", None) is tables.Column.value  # calls the column's render
        tell = bound.column.render if is_plain else bound.value
        names = tuple(inspect.signature(tell).parameters)
        same = {"column": bound.column, "bound_column": bound, "table": table}
        tell = partial(tell, **{name: one for name, one in same.items() if name in names})
        names = tuple(name for name in names if name not in same)
        return cls(_reader(bound, table), tell, names, bound.column.empty_values)

    def cell(self, record: Any) -> Cell:
        value = self.read(record)
        if value in self.empty:
            return None
        known = {"value": value, "record": record}
        told = self.tell(**{name: known[name] for name in self.names})
        return told if told is None or isinstance(told, int | float) else str(told)


def _reader(bound: Any, table: Listing) -> Callable[[Any], Any]:
    """What a column reads of a row: of a model's choices their words."""
    accessor = tables.A(bound.accessor)
    model = getattr(table.data, "model", None)
    field = accessor.get_field(model) if model else None
    if getattr(field, "choices", None):
        *path, name = accessor.bits
        accessor = tables.A(accessor.SEPARATOR.join([*path, f"get_{name}_display"]))
    find = attrgetter(".".join(accessor.bits))

    def read(record: Any) -> Any:
        """Slowly, where it is no attribute."""
        try:
            found = find(record)
        except AttributeError:
            return accessor.resolve(record, quiet=True)
        return accessor.resolve(record, quiet=True) if callable(found) else found

    return read


class Leaving(Protocol):
    """What can leave as a file: a ``Listing``, or a ``Fixed`` table."""

    @property
    def prefix(self) -> str: ...
    def export_table(self) -> Table | LongTable: ...


@dataclass(frozen=True)
class Fixed:
    """A table that a page draws in its own way."""

    table: Table
    prefix: str = ""

    def export_table(self) -> Table:
        return self.table


def asked_export(request: HttpRequest, *listings: Leaving) -> HttpResponseBase | None:
    """The file that ``?export=<format>&table=<prefix>`` asks for; ``None`` where no file is asked for.

    A page with one table needs no ``table``; 404 for a table that the page does not have.
    """
    if "export" not in request.GET:
        return None
    wanted = request.GET.get("table", listings[0].prefix or "")
    found = next((listing for listing in listings if (listing.prefix or "") == wanted), None)
    if found is None:
        raise Http404(f"this page has no table {wanted!r:.40}")
    return download(found.export_table(), request.GET["export"])
