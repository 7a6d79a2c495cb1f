"""Which runs are compared: those of an experiment, or any runs of the project named in the address."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from webapp.accounts.models import Project
from webapp.runs.models import Run
from webapp.runs.trashing import leave_out_trashed_experiments

MOST_RUNS = 2000


def comparable(project: Project) -> QuerySet[Run]:
    """Policy runs of the project with what a comparison reads of them, in the order asked for."""
    policies = Run.objects.filter(project=project, kind=Run.Kind.POLICY)
    runs = leave_out_trashed_experiments(policies, [project])
    wanted = runs.select_related("artifact", "host").with_figures().defer("log_tail")
    return wanted.order_by("queued_at", "id")


def named_runs(query: QueryDict, name: str = "run") -> list[UUID]:
    """The runs that ``?run=`` names, given several times or with commas; what is no id is passed over."""
    words = [word.strip() for text in query.getlist(name) for word in text.split(",")]
    found = [_uuid(word) for word in words[:MOST_RUNS]]
    return list(dict.fromkeys(run for run in found if run))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


class RunFilter(django_filters.FilterSet):  # type: ignore[misc]
    """``?q=vdnn&policy=vdnn-all&hardware=a100-40g&mode=simulated&status=infeasible``; choices are what is
    there.
    """

    q = django_filters.CharFilter(method="filter_text", label="Policy or workload contains")
    policy = django_filters.ChoiceFilter(empty_label="any policy")
    hardware = django_filters.ChoiceFilter(empty_label="any hardware")
    mode = django_filters.ChoiceFilter(empty_label="measured and simulated")
    status = django_filters.ChoiceFilter(
        method="filter_status", label="How it ended", empty_label="however it ended"
    )

    class Meta:
        model = Run
        fields: list[str] = []

    def __init__(self, data: QueryDict, queryset: QuerySet[Run], **kwargs: Any) -> None:
        super().__init__(data, queryset, **kwargs)
        plain = queryset.select_related(None).order_by()
        for name in ("policy", "hardware", "mode"):
            values = sorted(plain.values_list(name, flat=True).distinct())
            self.filters[name].extra["choices"] = [(value, value) for value in values if value]
        self.filters["q"].extra["widget"] = forms.TextInput(attrs={"placeholder": "policy or workload"})
        ended = sorted({outcome or state for outcome, state in plain.values_list("outcome_status", "state")})
        self.filters["status"].extra["choices"] = [(value, value) for value in ended]

    def filter_text(self, runs: QuerySet[Run], name: str, value: str) -> QuerySet[Run]:
        return runs.filter(policy__icontains=value) | runs.filter(artifact__name__icontains=value)

    def filter_status(self, runs: QuerySet[Run], name: str, value: str) -> QuerySet[Run]:
        return runs.filter(outcome_status=value) | runs.filter(outcome_status="", state=value)

    @property
    def is_narrowed(self) -> bool:
        """Whether any choice leaves runs out."""
        return any(self.data.get(name) for name in self.filters)

    @property
    def fields_shown(self) -> list[forms.BoundField]:
        """Search, and every choice that leaves anything to choose."""
        return [self.form["q"], *(self.form[n] for n in self.filters if n != "q" and self._choices(n))]

    def _choices(self, name: str) -> bool:
        return len(self.filters[name].extra["choices"]) > 1
