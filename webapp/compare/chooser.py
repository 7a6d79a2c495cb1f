"""Choosing runs to compare: newest first, searched and narrowed, page by page, with what is ticked kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django import forms
from django.http import QueryDict

from experiments.core.policy import FAMILIES
from webapp.accounts.models import Project
from webapp.artifacts.models import Artifact
from webapp.compare.filters import named_runs
from webapp.runs.models import Experiment, Run, RunQuerySet

PREFIX = "find"
PER_PAGE = 50
#: So many experiments and workloads can be chosen from; older ones are found by typing.
MOST_CHOICES = 200


class ChooserForm(forms.Form):
    """What narrows the list; the names of its fields begin with ``PREFIX``, the comparison's own do not."""

    q = forms.CharField(
        label="Policy, workload or experiment contains",
        required=False,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "policy, workload or experiment"}),
    )
    family = forms.ChoiceField(label="Family", required=False)
    experiment = forms.ChoiceField(label="Experiment", required=False)
    workload = forms.ChoiceField(label="Workload", required=False)

    def __init__(self, data: QueryDict, project: Project) -> None:
        super().__init__(data, prefix=PREFIX)
        made = Experiment.objects.filter(project=project).not_trashed()[:MOST_CHOICES]
        files = Artifact.objects.of(project).order_by("name", "pk")[:MOST_CHOICES]
        self._offer("family", "any family", [(family, family) for family in FAMILIES])
        self._offer("experiment", "any experiment", [(str(one.pk), one.name) for one in made])
        self._offer("workload", "any workload", [(str(one.pk), one.name) for one in files])

    def _offer(self, name: str, anything: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", anything), *choices]

    def narrow(self, runs: RunQuerySet, project: Project) -> RunQuerySet:
        """The runs that the valid fields leave; what is no choice leaves all."""
        self.is_valid()
        chosen = self.cleaned_data
        by = {"family": "family", "experiment": "experiment", "workload": "artifact"}
        runs = runs.filter(**{column: chosen[name] for name, column in by.items() if chosen.get(name)})
        text = (chosen.get("q") or "").strip()
        return runs.containing(text, project) if text else runs


@dataclass(frozen=True)
class Chooser:
    """``rows`` are the runs of this page, ``chosen`` those ticked so far; ``following`` is the last of a full
    page.
    """

    form: ChooserForm
    rows: Sequence[Run]
    chosen: Sequence[Run]
    following: UUID | None


def is_choosing(query: QueryDict) -> bool:
    """Whether the address asks for the chooser: it names no runs, or it comes from the chooser's own form."""
    return not named_runs(query) or (f"{PREFIX}-q" in query and "compare" not in query)


def chooser(project: Project, query: QueryDict) -> Chooser:
    runs = Run.objects.filter(project=project, kind=Run.Kind.POLICY, experiment__trashed_at=None)
    listed = (
        runs.select_related("artifact", "experiment").defer("log_tail", "spec").order_by("-queued_at", "-id")
    )
    chosen = list(listed.filter(pk__in=named_runs(query)))
    form = ChooserForm(query, project)
    found = form.narrow(listed, project).exclude(pk__in=[run.pk for run in chosen])
    after = runs.filter(pk__in=named_runs(query, f"{PREFIX}-after")).first()
    rows = list((found.older_than(after) if after else found)[: PER_PAGE + 1])
    following = rows[PER_PAGE - 1].pk if len(rows) > PER_PAGE else None
    return Chooser(form, rows[:PER_PAGE], chosen, following)
