"""The captured and profiled steps of a model, as its page lists them: with which options, and for which runs
each is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.artifacts.models import Artifact
from webapp.runs import derivation


@dataclass(frozen=True)
class StepRow:
    """``timed_on`` and ``sheet`` (of the device) are empty for a step that was not timed."""

    step: Artifact
    options: str
    timed_on: str
    sheet: str
    is_used: bool


def steps_of(model: Artifact) -> list[StepRow]:
    """Newest first. Of several profiles with the same options for one device the newest is used."""
    rows: list[StepRow] = []
    taken: set[tuple[str, str]] = set()
    for step in model.derived.filter(trashed_at=None, kind="step").order_by("-id"):
        row = _row(step, taken)
        taken.add((row.options, row.sheet))
        rows.append(row)
    return rows


def _row(step: Artifact, taken: set[tuple[str, str]]) -> StepRow:
    facts: Mapping[str, Any] = step.summary.get("facts", {})
    is_timed = facts.get("timing") == "measured"
    timed_on = str(facts.get("timed_on", "")) if is_timed else ""
    options = spell_options(step.summary.get("options", {}))
    sheet = derivation.device_name(timed_on)
    return StepRow(step, options, timed_on, sheet, bool(sheet) and (options, sheet) not in taken)


def spell_options(options: Mapping[str, Any]) -> str:
    """``batch 8, sequence 256``; what was left open is the default."""
    return ", ".join(f"{name} {value}" for name, value in sorted(options.items())) or "default options"
