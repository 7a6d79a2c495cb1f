"""An artifact's summary (``experiments.summaries``) as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.artifacts.models import Artifact


@dataclass(frozen=True)
class Comparison:
    """A rule of thumb beside the captured figure it estimates; ``ratio`` is rule / captured."""

    estimate: Mapping[str, Any]
    captured: float | None
    ratio: float | None


@dataclass(frozen=True)
class Card:
    cards: tuple[Mapping[str, Any], ...]
    estimates: tuple[Comparison, ...]
    plots: tuple[Mapping[str, Any], ...]
    is_captured: bool


#: Which captured figure of the card a rule of thumb estimates.
CAPTURED_AS: Mapping[str, str] = {
    "parameters": "parameters",
    "training step": "FLOPs of a step",
    "training step with attention": "FLOPs of a step",
}


def card_of(artifact: Artifact) -> Card:
    """Cards, estimates and plots; for a model the captured figures of its newest captured step are added."""
    summary, step = artifact.summary, _captured_step(artifact)
    captured = step.summary if step is not None else {}
    truth = {row["label"]: row["value"] for row in [*summary.get("cards", ()), *captured.get("cards", ())]}
    estimates = summary.get("estimates") or captured.get("estimates") or ()
    return Card(
        (*summary.get("cards", ()), *captured.get("cards", ())),
        tuple(_beside(row, truth.get(CAPTURED_AS.get(row["name"], ""))) for row in estimates),
        (*summary.get("plots", ()), *captured.get("plots", ())),
        bool(captured) or artifact.kind == "step",
    )


def _captured_step(artifact: Artifact) -> Artifact | None:
    return artifact.derived.filter(state=Artifact.State.READY, kind="step", trashed_at=None).first()


def _beside(estimate: Mapping[str, Any], captured: Any) -> Comparison:
    if not isinstance(captured, int | float) or not captured:
        return Comparison(estimate, None, None)
    return Comparison(estimate, captured, estimate["value"] / captured)
