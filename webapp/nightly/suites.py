"""A suite of ``experiments/suites``, or a preset, as trials of a project."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.core.errors import BadInput
from experiments.core.suites import Suite, is_users
from webapp.accounts.models import Project, User
from webapp.runs import references
from webapp.runs.grid import Trial
from webapp.runs.models import Experiment, Preset, Run
from webapp.runs.node_lists import WHERE, named_list
from webapp.runs.presets import titles_of, trials_of_preset
from webapp.runs.services import submit_experiment
from webapp.runs.specs import Submission, identity, spec_of

#: Makes the runs that go along with a night's, from those with their titles.
Beside = Callable[[Submission, list[tuple[str, Trial]]], list[tuple[str, Trial]]]


def submit(
    suite: Suite, project: Project, user: User | None, name: str, beside: Beside | None = None
) -> Experiment:
    """The suite's runs as an experiment that remembers the title of each. ``BadInput`` says which run is
    wrong.
    """
    trials = trials_of(suite, project, user)
    return _submit(trials, project, user, name, {"suite": suite.name}, beside)


def submit_preset(preset: Preset, user: User | None, name: str, beside: Beside | None = None) -> Experiment:
    """The runs that the preset now is, each with a title. ``BadInput`` says what of it is gone."""
    trials = trials_of_preset(preset)
    titled = list(zip(titles_of(trials), trials, strict=True))
    return _submit(titled, preset.project, user, name, {"preset": preset.pk}, beside)


def _submit(
    titled: list[tuple[str, Trial]],
    project: Project,
    user: User | None,
    name: str,
    of: dict[str, Any],
    beside: Beside | None,
) -> Experiment:
    titled = [*titled, *(beside(Submission(project, user), titled) if beside else ())]
    titles = {identity(spec_of(trial)): title for title, trial in titled}
    return submit_experiment(
        project,
        user,  # type: ignore[arg-type]  # whoever made the schedule may have left
        name=name,
        trials=[trial for _, trial in titled],
        request={**of, "titles": titles},
    )


def title_of(run: Run) -> str:
    """The title that the suite gave the run; its policy where the suite's run is not known any more."""
    titles = run.experiment.request.get("titles", {}) if run.experiment else {}
    try:
        return str(titles.get(identity(run.spec), run.policy))
    except BadInput:
        return run.policy


def trials_of(suite: Suite, project: Project, user: User | None) -> list[tuple[str, Trial]]:
    """Every run with its title. ``BadInput`` says which field of a run is wrong."""
    submission = Submission(project, user)
    return [(title, submission.trial(_resolve_source(dict(row), project))) for title, row in suite.runs]


def _resolve_source(row: dict[str, Any], project: Project) -> dict[str, Any]:
    """The run with the project's artifacts in place of the files that the suite's user brings, by name."""
    nodes = named_list(row.get("hardware"))
    if nodes is not None and is_users(nodes):
        row = {**row, "hardware": {"nodes": references.find_upload(project, nodes, WHERE)}}
    if not is_users(row["workload"]["source"]):
        return row
    return {**row, "workload": references.by_file_names(project, row["workload"])}
