"""The steps of a model as it is usually trained: all of it, or adapters of one that is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.options import TRAINING_FORMS, WorkloadOptions
from experiments.core.progress import Progress
from experiments.profiling.cache import capture_cached
from experiments.workloads.model import ModelSource
from experiments.workloads.step import Step

OF_ADAPTERS = ("adapter", "base")


def capture_forms(source: ModelSource, step: Step, progress: Progress) -> dict[str, Step]:
    """Return the step of each of ``TRAINING_FORMS`` that the model can have; ``step`` is one of them."""
    found: dict[str, Step] = {}
    for name, changes in TRAINING_FORMS.items() if source.options.training else ():
        options = in_form(source.options, changes)
        try:
            same = options == source.options
            asked = replace(source, options=options)
            found[name] = step if same else capture_cached(asked, progress)
        except BadInput:  # no layer of it can have an adapter, or be stored in fewer bits
            continue
    return found


def in_form(options: WorkloadOptions, changes: Mapping[str, Any]) -> WorkloadOptions:
    """Return ``options`` with the ``changes`` of a form; without any, all of the model is trained."""
    plain = {field.name: field.default for field in fields(options) if field.name.startswith(OF_ADAPTERS)}
    if options.adapter != "none" and changes:
        plain = {}
    if changes.get("base", "plain") != "plain" != options.base:
        changes = {**changes, "base": options.base}
    return replace(options, **{**plain, **changes})
