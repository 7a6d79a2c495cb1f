"""An artifact's summary (``experiments.summaries``) as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.core.units import DTYPE_BYTES
from experiments.estimates import estimate_llm
from webapp.artifacts.models import Artifact


@dataclass(frozen=True)
class Comparison:
    """A rule of thumb next to the captured figure it estimates; ``ratio`` is rule / captured."""

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


#: The labels under which a configuration or a captured step tells the sizes of a transformer.
SHAPE: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden size", "n embd"),
    "layers": ("num hidden layers", "n layer"),
    "heads": ("num attention heads", "n head"),
    "vocab": ("vocab size",),
    "sequence": ("sequence",),
    "batch": ("batch",),
}


def card_of(artifact: Artifact) -> Card:
    """Cards, estimates and plots; for a model the captured figures of its newest captured step are added."""
    summary, step = artifact.summary, _captured_step(artifact)
    captured = step.summary if step is not None else {}
    truth = {row["label"]: row["value"] for row in [*summary.get("cards", ()), *captured.get("cards", ())]}
    counted = sum(one["parameters"] for one in summary.get("parameters") or ())
    rules = _estimates_of_captured(truth, captured, counted)
    estimates = rules or summary.get("estimates") or captured.get("estimates")
    own = [row for row in summary.get("cards", ()) if row["value"] != artifact.blob_id]
    return Card(
        (*own, *captured.get("cards", ())),
        tuple(_beside(row, truth.get(CAPTURED_AS.get(row["name"], ""))) for row in estimates or ()),
        (*summary.get("plots", ()), *captured.get("plots", ())),
        bool(captured) or artifact.kind == "step",
    )


def _estimates_of_captured(
    truth: Mapping[str, Any], captured: Mapping[str, Any], counted: int
) -> list[dict[str, Any]]:
    """The rules of a transformer at the batch and sequence that were captured, so that like stands beside
    like; from its ``counted`` parameters where these are known.
    """
    sizes = {
        name: next((truth[label] for label in labels if label in truth), None)
        for name, labels in SHAPE.items()
    }
    dtype = captured.get("facts", {}).get("dtype")
    if dtype not in DTYPE_BYTES or not all(isinstance(size, int) for size in sizes.values()):
        return []
    rows = estimate_llm(**sizes, dtype_bytes=DTYPE_BYTES[dtype], counted=counted or None)  # type: ignore[arg-type]
    return [row.to_json() for row in rows]


def _captured_step(artifact: Artifact) -> Artifact | None:
    return artifact.derived.filter(state=Artifact.State.READY, kind="step", trashed_at=None).first()


def _beside(estimate: Mapping[str, Any], captured: Any) -> Comparison:
    if not isinstance(captured, int | float) or not captured:
        return Comparison(estimate, None, None)
    return Comparison(estimate, captured, estimate["value"] / captured)
