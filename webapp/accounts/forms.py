"""Forms of teams, members and projects."""

from __future__ import annotations

from django import forms

from webapp.accounts.models import Role
from webapp.names import NameField


class ProjectForm(forms.Form):
    name = NameField(max_length=80, label="Project name")
    description = forms.CharField(
        required=False, label="What it is about", widget=forms.Textarea(attrs={"rows": 2})
    )


class KeepRunsForm(forms.Form):
    """Days until unmarked runs go into the trash; nothing: they stay."""

    keep_runs_days = forms.IntegerField(required=False, min_value=1, max_value=36_500)


class TeamForm(forms.Form):
    name = NameField(max_length=80, label="Team name")


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices, initial=Role.MEMBER, label="Role")
