"""Forms of reports."""

from __future__ import annotations

from django import forms

from webapp.names import validate_name
from webapp.reports.models import LONGEST_TEXT, LONGEST_TITLE


class TitleForm(forms.Form):
    title = forms.CharField(max_length=LONGEST_TITLE, validators=[validate_name], label="Title")


class ReportForm(TitleForm):
    """``opened`` is the revision that was there when the page was opened."""

    text = forms.CharField(max_length=LONGEST_TEXT, required=False, strip=False, label="Text, in Markdown")
    opened = forms.IntegerField()
