"""What the page of a new experiment shows, and what of it moves when something is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from webapp.accounts.models import Project
from webapp.artifacts import generated
from webapp.runs.chips import policy_step
from webapp.runs.choices import Choices, usable_artifacts
from webapp.runs.devices import device_choices
from webapp.runs.durations import past_durations
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Run
from webapp.runs.proposal import Proposal, propose
from webapp.runs.services import label_in
from webapp.runs.step_fields import describe_models, option_fields, served_models, taken_by_default

SHOWN_IN_PREVIEW = 30
#: Workloads that a list offers; older ones are reached from their own pages.
MOST_WORKLOADS = 200


def page_of(project: Project, choices: Choices, form: ExperimentForm) -> dict[str, Any]:
    """The context of the page's templates, for a bound form."""
    past = past_durations(project, choices.artifacts)
    options = option_fields(form, choices.artifacts)
    proposal = propose(form, past)
    return {
        "form": form,
        "choices": choices,
        "proposal": proposal,
        "options": options,
        "described": describe_models(choices.artifacts),
        "defaults": taken_by_default(form, choices.artifacts),
        "served": served_models(choices.artifacts),
        "steps": policy_step(form, choices, past, _find_failed(project, proposal)),
        "workloads": usable_artifacts(project)[:MOST_WORKLOADS],
        "presets": project.presets.select_related("created_by"),
        "devices": partial(device_choices, form),  # a choice is answered without them
        "drawn": generated.TRACES,
        "shown": proposal.trials[:SHOWN_IN_PREVIEW],
    }


def _find_failed(project: Project, proposal: Proposal) -> set[str]:
    """Policies whose plan for the first of the simulated runs' questions did not fit before."""
    for trial in proposal.trials:
        if trial.spec["mode"] == "simulated":
            options: Mapping[str, Any] = trial.spec["workload"]["options"]
            label = label_in(project, trial.spec["hardware"])
            runs = Run.objects.policies_by_answer(trial.artifact, trial.spec["family"], label, options)
            return runs[Run.State.INFEASIBLE] - runs[Run.State.SUCCEEDED]
    return set()
