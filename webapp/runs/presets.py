"""Named choices of a project: a new experiment that is kept, opened by a link, and run at night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import ProtectedError
from django.http import QueryDict

from experiments.core.errors import BadInput
from webapp.accounts.models import Project, User
from webapp.presentation import pretty
from webapp.runs.choices import Choices
from webapp.runs.forms import ExperimentForm
from webapp.runs.grid import Trial
from webapp.runs.models import Preset
from webapp.runs.services import label_in


def save_preset(project: Project, user: User, name: str, choices: Choices) -> Preset:
    """Keep what was chosen; where just that is kept already, by whatever name, that one is the answer.

    ``BadInput`` where the name is another choice's: nobody's preset is overwritten.
    """
    address = _without_name(choices)
    same = project.presets.filter(address=address).first()
    if same:
        return same
    if project.presets.filter(name=name).exists():
        raise BadInput(f"another preset of this project is called {name!r}", "name", "a name of its own")
    return Preset.objects.create(project=project, name=name, address=address, created_by=user)


def remove_preset(preset: Preset) -> None:
    """Forget it; ``BadInput`` while it is run at night."""
    try:
        preset.delete()
    except ProtectedError:
        raise BadInput(f"{preset} is run at night", "preset", "no schedule of it") from None


def trials_of_preset(preset: Preset) -> Sequence[Trial]:
    """The runs that it is now; ``BadInput`` where a workload or policy of it is gone."""
    form = ExperimentForm(preset.project, QueryDict(preset.address))
    if not form.is_valid():
        wrong = "; ".join(f"{name}: {error}" for name, found in form.errors.items() for error in found)
        raise BadInput(wrong, f"preset {preset}", "what can still be run")
    trials: Sequence[Trial] = form.cleaned_data["expansion"].trials
    return trials


def titles_of(trials: Sequence[Trial]) -> list[str]:
    """A name for each: the policy, and what its runs of one policy differ in."""
    facts = [_facts(trial) for trial in trials]
    return [_title(one, [other for other in facts if other["policy"] == one["policy"]]) for one in facts]


def _title(one: Mapping[str, str], alike: Sequence[Mapping[str, str]]) -> str:
    telling = [words for key, words in one.items() if any(other.get(key) != words for other in alike)]
    return ", ".join([one["policy"], *telling])


def _facts(trial: Trial) -> dict[str, str]:
    """What may tell a run from another, each in words that say what it is."""
    spec = trial.spec
    named = {**spec["workload"]["options"], **spec["knobs"], "seed": spec["seed"]}
    return {
        "policy": spec["policy"],
        "workload": str(trial.artifact),
        "hardware": label_in(trial.artifact.project, spec["hardware"]),
        "mode": spec["mode"],
        **{f"{name}=": f"{name.replace('_', ' ')} {pretty(value)}" for name, value in named.items()},
    }


def _without_name(choices: Choices) -> str:
    query = QueryDict(choices.address, mutable=True)
    query.pop("name", None)
    return query.urlencode(safe="/:")
