"""The form of a host that is to join."""

from __future__ import annotations

from django import forms

from webapp.hosts.joining import is_gone
from webapp.hosts.models import Host


class HostForm(forms.Form):
    name = forms.RegexField(
        r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=80,
        label="Name",
        help_text="what its runs say they ran on; letters, digits, . _ -",
    )

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        had = Host.objects.filter(name=name).first()
        if had is not None and not is_gone(had):
            raise forms.ValidationError(f"There is a host named {name}; revoke it, or take another name.")
        return name
