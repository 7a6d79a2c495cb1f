"""The fields of a workload's options, those that its kind is mostly asked for first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from experiments.core import knobs
from experiments.core.errors import BadInput
from experiments.core.options import FineTuning
from experiments.models.served import SERVED
from webapp.artifacts.fit import describe_model
from webapp.artifacts.models import Artifact
from webapp.artifacts.step_options import spell_out_options
from webapp.runs.forms import ExperimentForm
from webapp.runs.grid_fields import USUAL_OPTIONS, prefill

FINE_TUNING = tuple(option.name for option in knobs.describe(FineTuning))
#: The options that come first, by kind of workload; all others are folded.
FIRST: Mapping[str, tuple[str, ...]] = {
    "jobs": ("limit", "rate"),
    "requests": ("model", "rate", "limit"),
    "layers": ("batch",),
}


#: What these stand for while nothing is said of them.
LEFT_EMPTY = {"limit": "all", "rate": "as recorded"}


@dataclass(frozen=True)
class OptionFields:
    first: tuple[forms.BoundField, ...]
    fine_tuning: tuple[forms.BoundField, ...]
    more: tuple[forms.BoundField, ...]

    @property
    def fine_tuning_is_said(self) -> bool:
        return _is_said(self.fine_tuning)

    @property
    def more_is_said(self) -> bool:
        return _is_said(self.more)


def _is_said(fields: Sequence[forms.BoundField]) -> bool:
    return any(field.value() or field.errors for field in fields)


def option_fields(form: ExperimentForm, artifacts: Sequence[Artifact]) -> OptionFields:
    """All options, in three groups; an option that is left empty shows what it stands for."""
    defaults = usual_options(artifacts)
    form.show_defaults({**LEFT_EMPTY, **defaults})
    first = list(_first(artifacts, defaults))
    is_model = any(artifact.kind in ("model", "step") for artifact in artifacts)
    tuning = [name for name in FINE_TUNING if is_model and name not in first]
    names = [name.removeprefix("option:") for name in form.fields if name.startswith("option:")]
    more = [name for name in names if name not in (*first, *tuning)]
    groups = (tuple(form[f"option:{name}"] for name in found) for found in (first, tuning, more))
    return OptionFields(*groups)


def _first(artifacts: Sequence[Artifact], defaults: Mapping[str, Any]) -> Iterator[str]:
    kinds = dict.fromkeys(artifact.kind for artifact in artifacts)
    wanted = dict.fromkeys(name for kind in kinds for name in FIRST.get(kind, USUAL_OPTIONS))
    for name in wanted:
        if name == "sequence" and defaults.get("image") and not defaults.get("sequence"):
            yield "image"
        else:
            yield name


def usual_options(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """What the workloads' steps have unless they are told otherwise, where it is the same in all."""
    found = [_usual(artifact) for artifact in artifacts]
    same = {name: value for name, value in (found[0] if found else {}).items() if value is not None}
    return {name: value for name, value in same.items() if all(one.get(name) == value for one in found)}


def _usual(artifact: Artifact) -> dict[str, Any]:
    try:
        return spell_out_options(artifact, {})
    except BadInput:
        return {}


def taken_by_default(form: ExperimentForm, artifacts: Sequence[Artifact]) -> list[tuple[str, str]]:
    """The options that nobody said, with what they come to."""
    usual = usual_options(artifacts).items()
    return [(name, prefill(value)) for name, value in usual if not form[f"option:{name}"].value()]


def describe_models(artifacts: Sequence[Artifact]) -> list[tuple[Artifact, str]]:
    """Each with a model in words; empty for what its cards tell."""
    return [(artifact, describe_model(artifact)) for artifact in artifacts]


def served_models(artifacts: Sequence[Artifact]) -> list[tuple[str, str]]:
    """What may serve a request trace: models of the lab by name, and the project's own."""
    if not any(artifact.kind == "requests" for artifact in artifacts):
        return []
    project = artifacts[0].project
    own = Artifact.objects.of(project).ready().filter(kind="model")
    return [(name, name) for name in SERVED] + [(f"artifact:{one.pk}", one.name) for one in own]
