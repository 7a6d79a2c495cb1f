"""*Try on my model*: a system and its baseline on the artifact and the device that were last used."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet

from experiments import hardware
from experiments.core import registry
from experiments.core.policy import Policy
from experiments.core.reading import NOUNS
from webapp.accounts.models import Project
from webapp.artifacts.fit import USUAL_DEVICE
from webapp.artifacts.models import Artifact
from webapp.papers.catalog import System
from webapp.runs.grid import NETWORKED, ON_CLUSTERS
from webapp.runs.models import Run

#: So many of the newest artifacts are offered.
MOST = 20


class TrialForm(forms.Form):
    """The fields are those of the form of a new experiment; ``policies`` go with them."""

    artifacts = forms.ModelChoiceField(Artifact.objects.none(), empty_label=None)
    devices = forms.ChoiceField(label="Device")

    def __init__(self, system: System, project: Project) -> None:
        super().__init__(auto_id="try-%s", initial={"devices": last_device(project)})
        self.system = system
        kinds = system.policy.workloads.get("simulated", ())
        self.nouns = " or ".join(NOUNS[kind] for kind in kinds)
        field: Any = self.fields["artifacts"]
        field.label = "Model" if kinds and kinds[0] == "model" else "Workload"
        field.queryset = readable(project, kinds)
        self.policies = [f"{one.family}/{one.name}" for one in _with_baseline(system.policy)]
        if self.needs_more:
            del self.fields["devices"]
        else:
            self.fields["devices"].choices = [(name, name) for name in hardware.names()]  # type: ignore[attr-defined]

    @property
    def needs_more(self) -> bool:
        """Whether its hardware is more than one device, which the form of a new experiment asks for."""
        return self.system.family in (*ON_CLUSTERS, *NETWORKED)

    @property
    def is_possible(self) -> bool:
        return self.fields["artifacts"].queryset.exists()  # type: ignore[attr-defined,no-any-return]


def readable(project: Project, kinds: tuple[str, ...]) -> QuerySet[Artifact]:
    """The newest artifacts of the project that are of these kinds and were not made of others."""
    ready = Artifact.objects.of(project).filter(state=Artifact.State.READY, kind__in=kinds, parent=None)
    newest = ready.order_by("-created_at", "-pk").values_list("pk", flat=True)[:MOST]
    return Artifact.objects.filter(pk__in=list(newest)).order_by("-created_at", "-pk")


def last_device(project: Project) -> str:
    """The device of the newest simulated run on one, or the usual one."""
    runs = Run.objects.filter(project=project, mode="simulated", hardware__in=hardware.names())
    return runs.order_by("-queued_at", "-id").values_list("hardware", flat=True).first() or USUAL_DEVICE


def _with_baseline(policy: type[Policy]) -> list[type[Policy]]:
    known = registry.family_policies(policy.family).values()
    baselines = [one for one in known if one.is_baseline and "simulated" in one.modes]
    return [*(one for one in baselines if one is not policy), policy]
