"""What runs were asked for and what belongs to them: a few queries for all runs of a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Model, Q

from webapp.history.table import tags_of
from webapp.logged.models import LoggedImage, LoggedRun, LoggedTable, Series
from webapp.runs.among import among
from webapp.runs.models import Run


def details_of(runs: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """By run what ``schemas.RunDetails`` has."""
    columns = {
        "experiment_name": F("experiment__name"),
        "by": F("owner__username"),
        "written": F("note__text"),
    }
    found = Run.objects.filter(among("id", runs)).order_by()
    rows: Any = found.values("id", "kind", "spec", "revision", **columns)
    tags, logged = tags_of(runs), _details_of_logs(runs)
    return {
        row["id"]: {
            **{name: value for name, value in row.items() if name not in ("id", "written")},
            "note": row["written"] or "",
            "tags": tags.get(row["id"], ()),
            "logged": logged.get(row["id"]),
        }
        for row in rows
    }


def _by_run(model: type[Model], run: str, runs: Sequence[UUID]) -> dict[UUID, list[str]]:
    """Names of what runs have, in their order."""
    rows = model._default_manager.filter(among(run, runs)).order_by("name")
    found: dict[UUID, list[str]] = defaultdict(list)
    for key, name in rows.values_list(run, "name"):
        found[key].append(name)
    return found


def _details_of_logs(runs: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
    """By run what its program said, for those that programs log."""
    rows = LoggedRun.objects.filter(among("run", runs)).order_by()
    found = rows.annotate(has_diff=~Q(diff="")).values("run", "environment", "has_diff")
    known = {row["run"]: {name: row[name] for name in ("environment", "has_diff")} for row in found}
    logged = list(known)
    series = _by_run(Series, "logged", logged)
    tables, images = (_count(model, logged) for model in (LoggedTable, LoggedImage))
    files = _count(LoggedRun.files.through, logged, "loggedrun")
    for run, told in known.items():
        counts = {"tables": tables.get(run, 0), "images": images.get(run, 0), "files": files.get(run, 0)}
        told |= {"series": series[run], **counts}
    return known


def _count(model: type[Model], runs: Sequence[UUID], run: str = "logged") -> dict[UUID, int]:
    rows = model._default_manager.filter(among(run, runs)).order_by().values(run)
    return dict(rows.annotate(count=Count("pk")).values_list(run, "count"))
