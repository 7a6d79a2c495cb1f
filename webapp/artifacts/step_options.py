"""Options of a run on an artifact with nothing left open, so that pages, tables and repeats can tell them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.core import knobs
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload
from experiments.models.catalog import ZOO, ZooModel
from experiments.models.step_options import OPEN, spell_out
from experiments.sources import complete_options, load
from experiments.workloads.fixed_options import refuse_other_options
from experiments.workloads.published import OF_PUBLISHED
from webapp.artifacts import generated
from webapp.artifacts.models import Artifact
from webapp.artifacts.workloads.requests import usual_model

#: Options that name another file, which is the worker's to open.
FILES = ("model", "extra")
#: What a reading (``experiments.summaries``) tells of the step that a model has by default.
USUAL = "usual_step"


def spell_out_options(
    artifact: Artifact, given: Mapping[str, Any], fp32_gradients: bool = False
) -> dict[str, Any]:
    """``given`` with what is left open filled in: of a model's step, of a drawn trace, and the model that
    serves requests.

    ``BadInput`` names the option that contradicts another, or what a stored step was captured with.
    """
    if artifact.kind == "requests":
        given = {**given, "model": given.get("model") or usual_model(artifact)}
    if artifact.source == Artifact.Source.GENERATED:
        return generated.settle_options(artifact.kind, given)
    if artifact.kind == "requests":
        return dict(given)
    if artifact.kind == "step":
        refuse_other_options(artifact.summary.get("facts", {}), given, artifact.name)
    plain = {name: value for name, value in given.items() if name not in FILES}
    options = knobs.load(WorkloadOptions, plain, "options")
    filled = _filled(artifact, options, fp32_gradients)
    told = {name: getattr(filled, name) for name in (*OPEN, *OF_PUBLISHED)}
    said = {name: value for name, value in told.items() if value != getattr(options, name)}
    return {**given, **said}


def _filled(artifact: Artifact, options: WorkloadOptions, fp32_gradients: bool) -> WorkloadOptions:
    if artifact.zoo in ZOO:
        workload = Workload(f"zoo:{artifact.zoo}", options=options)
        return complete_options(workload, load(workload), fp32_gradients).options
    usual = _usual_step(artifact)
    return spell_out(options, usual, fp32_gradients) if usual else options


def _usual_step(artifact: Artifact) -> ZooModel | None:
    """As the sandboxed reading tells it, checked like any other input; ``None`` where it tells nothing."""
    told = artifact.summary.get(USUAL)
    if not isinstance(told, Mapping):
        return None
    usual = knobs.load(WorkloadOptions, {**told}, USUAL)
    named = ZooModel(artifact.name, "", "", sequence=usual.sequence, image=usual.image)
    return replace(
        named,
        batch=usual.batch or named.batch,
        optimizer=usual.optimizer or named.optimizer,
        dtype=usual.dtype or named.dtype,
    )
