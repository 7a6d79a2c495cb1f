"""The form of a new schedule."""

from __future__ import annotations

from typing import Any

from django import forms

from experiments.core.suites import load_suite, suite_names


class ScheduleForm(forms.Form):
    suite = forms.ChoiceField(label="Suite")
    at = forms.TimeField(
        label="Every day at (UTC)",
        initial="02:00",
        input_formats=["%H:%M"],
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        suites = [load_suite(name) for name in suite_names()]
        self.fields["suite"].choices = [  # type: ignore[attr-defined]
            (suite.name, f"{suite.title} ({len(suite.runs)} runs)") for suite in suites
        ]
