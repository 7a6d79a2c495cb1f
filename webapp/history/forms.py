"""Forms of tags and saved views."""

from __future__ import annotations

import re

from django import forms
from django.core.exceptions import ValidationError

from webapp.names import validate_name

#: A tag is a word that a search can name without quotes.
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class TagForm(forms.Form):
    name = forms.CharField(label="Tag", max_length=40)

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        if not WORD.fullmatch(name):
            raise ValidationError("a tag is letters, digits, dots, dashes and underscores, at most 40")
        return name


class ViewForm(forms.Form):
    name = forms.CharField(max_length=80, validators=[validate_name])
    query = forms.CharField(max_length=4000, required=False)
    columns = forms.CharField(max_length=1000, required=False)
    shared = forms.BooleanField(required=False)
