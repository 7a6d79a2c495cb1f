"""Forms of teams, members and projects."""

from __future__ import annotations

from django import forms

from webapp.accounts.models import Role


class ProjectForm(forms.Form):
    name = forms.CharField(max_length=80, label="Project name")
    description = forms.CharField(
        required=False, label="What it is about", widget=forms.Textarea(attrs={"rows": 2})
    )


class TeamForm(forms.Form):
    name = forms.CharField(max_length=80, label="Team name")


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Role.choices, initial=Role.MEMBER, label="Role")
