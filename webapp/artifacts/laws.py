"""What is known of the memory of a model's training at any size and with any options: by captured steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from experiments.core.errors import BadInput
from experiments.core.options import NOT_OF_THE_STEP
from experiments.summaries.composed_law import ComposedLaw
from experiments.summaries.memory_law import MemoryLaw
from webapp.artifacts.models import Artifact
from webapp.runs.derivation import LIVING, captures_of
from webapp.runs.turns import FORMS

#: The options in which the memory of a step is known at every value.
SCALED = ("batch", "sequence")
#: Those that change its update alone, where its type stays.
OF_THE_UPDATE = ("precision", "optimizer")

Law = TypeVar("Law", MemoryLaw, ComposedLaw)


@dataclass(frozen=True)
class Known:
    """The law of a step, or why there is none.

    ``is_composed``: of the passes of a captured step with another update. ``is_awaited``: its capture is
    queued or runs.
    """

    law: MemoryLaw | None = None
    is_composed: bool = False
    reason: str = ""
    is_awaited: bool = False


def law_for(model: Artifact, options: Mapping[str, Any]) -> Known:
    """What is known of the step with these options, which leave nothing open."""
    own = _find(model, options, SCALED)
    if own and "peaks" in own:
        return Known(_read(MemoryLaw, own))
    base = _find(model, options, (*SCALED, *OF_THE_UPDATE), "composed")
    composed = _read(ComposedLaw, base["composed"]) if base else None
    law = composed.law(str(options.get("precision")), str(options.get("optimizer"))) if composed else None
    if law is not None:
        return Known(law, is_composed=True)
    if composed and not composed.updates and _measures_forms(model):
        return Known(is_awaited=True)
    return Known(reason=str(own.get("reason", ""))) if own else _why_unknown(model, options)


def _measures_forms(model: Artifact) -> bool:
    """Whether the updates of a captured step are being measured."""
    return captures_of(model).filter(state__in=LIVING, spec__has_key=FORMS).exists()


def lacks_law(model: Artifact, options: Mapping[str, Any]) -> bool:
    """Whether no captured step says what the model needs with these options at other sizes."""
    return not _find(model, options, SCALED)


def _find(
    model: Artifact, options: Mapping[str, Any], free: tuple[str, ...], part: str = ""
) -> dict[str, Any]:
    """The newest law of a captured step that differs in ``free`` options alone, and has the ``part``."""
    held = {"summary__law__has_key": part} if part else {"summary__has_key": "law"}
    steps = model.derived.filter(state=Artifact.State.READY, trashed_at=None, kind="step", **held)
    wanted = _without(options, free)
    for pk, told in steps.order_by("-id").values_list("pk", "summary__options"):
        if _without(told or {}, free) == wanted:
            law: dict[str, Any] = steps.values_list("summary__law", flat=True).get(pk=pk)
            return law
    return {}


def _without(options: Mapping[str, Any], free: Sequence[str]) -> dict[str, Any]:
    """The options that decide a step, but those that are ``free``."""
    left_out = (*free, *NOT_OF_THE_STEP)
    return {name: value for name, value in options.items() if name not in left_out and value is not None}


def _read(kind: type[Law], told: Mapping[str, Any]) -> Law | None:
    try:
        return kind.from_json(told)
    except BadInput:
        return None


def _why_unknown(model: Artifact, options: Mapping[str, Any]) -> Known:
    """By the newest capture that was asked for with these options at any size."""
    wanted = _without(options, SCALED)
    for run in captures_of(model).order_by("-queued_at"):
        if _without(run.spec.get("workload", {}).get("options", {}), SCALED) == wanted:
            if run.state in LIVING:
                return Known(is_awaited=True)
            return Known(reason=run.reason)
    return Known()
