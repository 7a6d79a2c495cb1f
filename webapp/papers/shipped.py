"""Verdicts that ship with a release: the newest file of claims takes the place of what was there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils.dateparse import parse_datetime

from experiments.core.claim_evidence import evidence_of
from experiments.core.verdicts import NOT_RUN
from webapp.papers.models import ShippedVerdict


@transaction.atomic
def import_verdicts(data: Any, where: str) -> bool:
    """Store every verdict of a claims file; ``False`` where nothing in it is newer than what is there.

    ``BadInput`` where it is no such file.
    """
    rows = [_row(row) for row in evidence_of(data, where).rows.values() if row["verdict"] != NOT_RUN]
    known = {(row.family, row.policy, row.claim): row for row in ShippedVerdict.objects.all()}
    fresh = [row for row in rows if _is_newer(row, known.get((row.family, row.policy, row.claim)))]
    for row in fresh:
        old = known.get((row.family, row.policy, row.claim))
        row.pk = old.pk if old else None
        row.save()
    return bool(fresh)


def _is_newer(row: ShippedVerdict, old: ShippedVerdict | None) -> bool:
    if old is None or old.checked_at is None or row.checked_at is None:
        return old is None or old.digest != row.digest
    return row.checked_at > old.checked_at


def _row(row: Mapping[str, Any]) -> ShippedVerdict:
    return ShippedVerdict(
        family=row["family"],
        policy=row["policy"],
        claim=row["claim"],
        digest=row["digest"],
        ours=row.get("ours"),
        low=row.get("low"),
        high=row.get("high"),
        verdict=row["verdict"],
        reason=row.get("reason") or "",
        revision=row.get("revision") or "",
        checked_at=parse_datetime(str(row.get("at"))),
    )
