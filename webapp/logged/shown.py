"""Tables and pictures that programs log: stored with their step, and chosen for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Sum
from django.db.models.functions import Length

from experiments.core.errors import BadInput
from webapp.logged.models import LoggedImage, LoggedRun, LoggedTable
from webapp.logged.pictures import Picture

#: Of one run.
MOST_TABLES, MOST_IMAGES, MOST_IMAGE_BYTES = 500, 500, 2**26
#: Pictures of one name on the page, rows of a table, and steps to choose from.
IMAGES_SHOWN, ROWS_SHOWN, STEPS_SHOWN = 12, 20, 12

At = tuple[str, int]


@dataclass(frozen=True)
class Shown:
    """A table of one name: that of a step, and the steps that there are others of, the last first."""

    table: LoggedTable
    rows: Sequence[Sequence[Any]]
    others: Sequence[LoggedTable]

    @property
    def more(self) -> int:
        return len(self.table.rows) - len(self.rows)


def store(run: UUID, tables: Mapping[At, tuple[list[str], list[Any]]], images: Mapping[At, Picture]) -> None:
    """What was logged of a name at a step last is what stands there."""
    if tables:
        made = [
            LoggedTable(logged_id=run, name=name, step=step, columns=columns, rows=rows)
            for (name, step), (columns, rows) in tables.items()
        ]
        LoggedTable.objects.bulk_create(
            made,
            update_conflicts=True,
            unique_fields=["logged", "name", "step"],
            update_fields=["columns", "rows"],
        )
        if LoggedTable.objects.filter(logged=run).count() > MOST_TABLES:
            raise BadInput("the run has too many tables", "body", f"at most {MOST_TABLES}")
    if images:
        pictures = [
            LoggedImage(
                logged_id=run,
                name=name,
                step=step,
                kind=one.kind,
                width=one.width,
                height=one.height,
                data=one.data,
            )
            for (name, step), one in images.items()
        ]
        LoggedImage.objects.bulk_create(
            pictures,
            update_conflicts=True,
            unique_fields=["logged", "name", "step"],
            update_fields=["kind", "width", "height", "data"],
        )
        _refuse_too_many(run)


def _refuse_too_many(run: UUID) -> None:
    kept = LoggedImage.objects.filter(logged=run)
    size = kept.aggregate(bytes=Sum(Length("data")))["bytes"] or 0
    if kept.count() > MOST_IMAGES or size > MOST_IMAGE_BYTES:
        raise BadInput(
            "the run has too many pictures", "body", f"at most {MOST_IMAGES}, of {MOST_IMAGE_BYTES:,} bytes"
        )


def tables_of(logged: LoggedRun, chosen: str = "") -> list[Shown]:
    """The last table of each name, or the one of the id ``chosen``."""
    by_name: dict[str, list[LoggedTable]] = {}
    for one in logged.tables.order_by("name", "-step").defer("rows"):
        by_name.setdefault(one.name, []).append(one)
    found = []
    for tables in by_name.values():
        table = next((one for one in tables if str(one.pk) == chosen), tables[0])
        found.append(Shown(table, table.rows[:ROWS_SHOWN], tables[:STEPS_SHOWN]))
    return found


def images_of(logged: LoggedRun) -> dict[str, list[LoggedImage]]:
    """The last pictures of each name, in the order of their steps."""
    by_name: dict[str, list[LoggedImage]] = {}
    for one in logged.images.order_by("name", "-step").defer("data"):
        by_name.setdefault(one.name, []).append(one)
    return {name: images[:IMAGES_SHOWN][::-1] for name, images in by_name.items()}
