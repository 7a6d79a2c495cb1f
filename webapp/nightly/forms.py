"""The form of a new schedule."""

from __future__ import annotations

from typing import Any

from django import forms

from experiments.core.suites import load_suite, suite_names
from webapp.accounts.models import Project
from webapp.nightly.models import DAYS
from webapp.nightly.services import EVERY_DAY
from webapp.runs.models import Preset

#: How the choice of a preset begins.
PRESET = "preset:"


class ScheduleForm(forms.Form):
    suite = forms.ChoiceField(label="Suite or preset")
    days = forms.MultipleChoiceField(
        label="On",
        choices=[(str(day), name) for day, name in enumerate(DAYS)],
        initial=list(EVERY_DAY),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    at = forms.TimeField(
        label="At (UTC)",
        initial="02:00",
        input_formats=["%H:%M"],
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._presets = {f"{PRESET}{preset.pk}": preset for preset in project.presets.all()}
        suites = [load_suite(name) for name in suite_names()]
        own = [("Presets of this project", [(key, str(preset)) for key, preset in self._presets.items()])]
        shipped = [(suite.name, f"{suite.title} ({len(suite.runs)} runs)") for suite in suites]
        grouped = [*(own if self._presets else []), ("Suites", shipped)]
        self.fields["suite"].choices = grouped  # type: ignore[attr-defined]

    def clean_days(self) -> str:
        """In the order of the week; all of it where none is named, as the API's callers do."""
        return "".join(sorted(self.cleaned_data["days"])) or EVERY_DAY

    def clean_suite(self) -> str | Preset:
        """The name of a suite, or the preset."""
        chosen = str(self.cleaned_data["suite"])
        return self._presets.get(chosen, chosen)
