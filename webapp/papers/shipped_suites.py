"""Results of suites that ship with a release: stored at set-up, and read as entries of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from django.db import transaction
from django.utils.dateparse import parse_datetime

from experiments.core.suite_evidence import suite_evidence_of
from experiments.core.suites import Suite, load_suite, suite_names
from webapp.compare.entries import Entry, estimates_of
from webapp.compare.parameters import WORKLOAD, parameters_of
from webapp.papers.models import ShippedSuite
from webapp.runs.lifecycle import STATES
from webapp.runs.models import Run
from webapp.runs.services import hardware_label


@transaction.atomic
def import_suites(data: Any, where: str) -> bool:
    """Store every suite of a file of evidence; ``False`` where nothing in it is newer than what is there.

    ``BadInput`` where it is no such file.
    """
    evidence = suite_evidence_of(data, where)
    known = {one.suite: one for one in ShippedSuite.objects.defer("runs")}
    rows = [_stored(row, evidence.about) for row in evidence.rows.values()]
    fresh = [row for row in rows if _is_newer(row, known.get(row.suite))]
    for row in fresh:
        row.pk = known[row.suite].pk if row.suite in known else None
        row.save()
    return bool(fresh)


def _stored(row: Mapping[str, Any], about: Mapping[str, Any]) -> ShippedSuite:
    same = ("suite", "digest", "revision", "seconds", "left_out", "runs")
    return ShippedSuite(
        ended_at=parse_datetime(str(row["at"])),
        host=about.get("host", {}),
        versions=about.get("versions", {}),
        **{name: row[name] for name in same},
    )


def _is_newer(row: ShippedSuite, old: ShippedSuite | None) -> bool:
    if old is None or old.ended_at is None or row.ended_at is None:
        return old is None or old.digest != row.digest
    return row.ended_at > old.ended_at


def shipped_suites() -> dict[str, ShippedSuite]:
    """What shipped of the suites as they now are, by name, without their runs."""
    now = {name: load_suite(name).digest for name in suite_names()}
    return {one.suite: one for one in ShippedSuite.objects.defer("runs") if now.get(one.suite) == one.digest}


def shipped_suite(suite: Suite) -> ShippedSuite | None:
    """What shipped of the suite; ``None`` where its runs have changed since."""
    return ShippedSuite.objects.filter(suite=suite.name, digest=suite.digest).first()


def shipped_entries(shipped: ShippedSuite) -> Iterator[Entry]:
    """What a comparison reads of each run, under the suite's titles. There are no pages of these runs."""
    for row in shipped.runs:
        run = _run(shipped, row)
        values = {name: [float(value)] for name, value in row["metrics"].items()}
        workload = row["spec"]["workload"]["source"].split(":")[-1]
        yield Entry((run,), parameters_of(run) | {WORKLOAD: workload}, estimates_of(values), row["title"])


def _run(shipped: ShippedSuite, row: Mapping[str, Any]) -> Run:
    """A run that is not stored; its id is the same in every request, so that addresses can name it."""
    spec = row["spec"]
    return Run(
        id=uuid5(NAMESPACE_URL, f"shipped:{shipped.suite}:{row['title']}"),
        spec=spec,
        family=spec["family"],
        policy=spec["policy"],
        hardware=hardware_label(spec["hardware"]),
        mode=spec.get("mode", "simulated"),
        seed=spec.get("seed", 0),
        state=STATES[row["status"]],
        outcome_status=row["status"],
        reason=row["reason"],
        model_states=row.get("states", ""),
        dashboard_status=row.get("dashboard", ""),
    )
