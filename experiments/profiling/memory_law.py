"""Captures of a model at two other sizes, from which its memory at any size follows, and with any update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.precision import WITH_FP32_GRADS
from experiments.core.progress import Progress, part
from experiments.models.step_options import defaults_of, spell_out
from experiments.profiling.capture import capture
from experiments.profiling.update_memory import measure_updates
from experiments.summaries.composed_law import COMPOSED, ComposedLaw, updates_to_json
from experiments.summaries.memory_law import StepLaws, laws_of
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

#: Options with which gradients or update have another form than ``single``.
OTHER_FORMS = {"update", "accumulate", "autocast"}


def capture_laws(source: ModelSource, step: Step, progress: Progress) -> StepLaws:
    """Return the memory of ``source``'s training at any batch and sequence; ``step`` is its captured step.

    The batch is doubled, since some models cannot run one of 1, and the sequence halved, since most have a
    longest. ``BadInput`` for what does not train or whose ops change with its sizes.
    """
    usual = defaults_of(source)
    options = spell_out(source.options, usual)
    if not options.training:
        raise BadInput("a forward pass keeps nothing", source.name, "a training step")
    even = (options.sequence or 0) // 2 * 2
    if even != (options.sequence or 0):
        options = replace(options, sequence=even)
        step = capture(replace(source, options=options))
    doubled = replace(options, batch=2 * (options.batch or usual.batch))
    whole = capture(replace(source, options=doubled), progress=part(progress, 0.0, 0.5))
    half = None
    if even:
        halved = replace(doubled, sequence=even // 2)
        half = capture(replace(source, options=halved), progress=part(progress, 0.5, 1.0))
    return laws_of(whole, step, half)


def tell_law(source: ModelSource, step: Step, progress: Progress) -> dict[str, Any]:
    """Return the law of ``step``'s memory as JSON, and of its passes where updates go with them."""
    laws = capture_laws(source, step, progress)
    passes = {COMPOSED: ComposedLaw(laws.passes, laws.always, {}).to_json()}
    return {**laws.whole.to_json(), **(passes if _is_composable(source, step) else {})}


def tell_updates(source: ModelSource, step: Step) -> dict[str, Any]:
    """Return the memory of the updates that ``step`` may have, as JSON by precision and optimizer."""
    return updates_to_json(measure_updates(source, step)) if _is_composable(source, step) else {}


def _is_composable(source: ModelSource, step: Step) -> bool:
    """Whether ``step`` trains, and its gradients and update are those of the form ``single``."""
    if not step.facts["training"]:
        return False
    return step.facts["precision"] not in WITH_FP32_GRADS and not OTHER_FORMS & set(source.options.changes)
