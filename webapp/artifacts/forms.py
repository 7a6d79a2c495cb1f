"""Forms of artifacts: upload, zoo, samples, profiling, and the filter of the list."""

from __future__ import annotations

from typing import Any

import django_filters
from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from experiments import hardware
from experiments.core import knobs
from experiments.core.options import TRAINING_FORMS, WorkloadOptions
from experiments.core.reading import KINDS
from experiments.core.units import human
from experiments.models.catalog import NAMES
from webapp.artifacts.fit import CHOICES, MOST, TRAINED, USUAL_DEVICE
from webapp.artifacts.generated import TRACES
from webapp.artifacts.models import Artifact
from webapp.artifacts.samples import SAMPLES
from webapp.names import NameField
from webapp.runs.grid_fields import USUAL_OPTIONS, GridField


class ManyFilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    """Several files, each held to the size cap."""

    widget = ManyFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        given = data if isinstance(data, list | tuple) else [data]
        return [self._one(entry, initial) for entry in given]

    def _one(self, entry: Any, initial: Any) -> UploadedFile[Any]:
        found: UploadedFile[Any] = super().clean(entry, initial)
        if (found.size or 0) > settings.UPLOAD_MAX_BYTES:
            cap = human(settings.UPLOAD_MAX_BYTES, "bytes")
            raise forms.ValidationError(
                f"{found.name} has {human(found.size or 0, 'bytes')}; at most {cap} are taken"
            )
        return found


class UploadForm(forms.Form):
    files = ManyFilesField(label="Files", allow_empty_file=True)  # type: ignore[assignment]


class BeginUploadForm(forms.Form):
    """What the browser tells of a file before it sends the first chunk."""

    name = NameField(max_length=255)
    size = forms.IntegerField(min_value=1)
    fingerprint = forms.CharField(max_length=400)


class ZooForm(forms.Form):
    zoo = forms.ChoiceField(label="Model of the zoo", choices=())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["zoo"].choices = [(name, name) for name in NAMES]  # type: ignore[attr-defined]


class SampleForm(forms.Form):
    sample = forms.ChoiceField(choices=[(sample.name, sample.title) for sample in SAMPLES.values()])


class GeneratedForm(forms.Form):
    trace = forms.ChoiceField(choices=list(TRACES.items()))


class ProfileForm(forms.Form):
    """The device and the options of the step that is timed: one value each, empty for the default."""

    device = forms.ChoiceField(label="Device", choices=(("cpu", "CPU"), ("cuda", "CUDA GPU")), initial="cpu")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for option in knobs.describe(WorkloadOptions):
            if option.name in USUAL_OPTIONS:
                self.fields[option.name] = GridField(option)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for name in USUAL_OPTIONS:
            if len(data.get(name, ())) > 1:
                self.add_error(name, "One value: a profile is of one step.")
        data["options"] = {name: data[name][0] for name in USUAL_OPTIONS if data.get(name)}
        return data


class TryAllForm(forms.Form):
    """What the preset "all memory policies" is asked for; the fields are those of the form of a new
    experiment.
    """

    devices = forms.ChoiceField(label="On", initial=USUAL_DEVICE)

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["devices"].choices = [(name, name) for name in hardware.names()]  # type: ignore[attr-defined]
        if kind == "model":
            for option in knobs.describe(WorkloadOptions):
                if option.name in MOST:
                    self.fields[f"option:{option.name}"] = GridField(option)
            for name, values in CHOICES.items():
                self.fields[f"option:{name}"] = _choice(name.capitalize(), values)
            self.fields[TRAINED] = _choice("Trained", tuple(TRAINING_FORMS))


def _choice(label: str, values: tuple[str, ...]) -> forms.ChoiceField:
    return forms.ChoiceField(label=label, choices=[(value, value) for value in values], required=False)


class ArtifactFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What the address of the list may ask for: ``?q=gpt&kind=model&state=ready``."""

    q = django_filters.CharFilter(
        field_name="name",
        lookup_expr="icontains",
        label="Name contains",
        widget=forms.TextInput(attrs={"placeholder": "name contains"}),
    )
    kind = django_filters.ChoiceFilter(choices=[(kind, kind) for kind in KINDS], empty_label="any kind")
    state = django_filters.ChoiceFilter(choices=Artifact.State.choices, empty_label="any state")

    class Meta:
        model = Artifact
        fields: list[str] = []
