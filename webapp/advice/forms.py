"""The question to the advisor: model, machines, sizes and goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from experiments import hardware
from experiments.advisor import GOALS
from experiments.core.errors import BadInput
from experiments.core.precision import PRECISIONS
from webapp.accounts.models import Project
from webapp.advice.models import Advice
from webapp.artifacts.models import Artifact

#: What is asked about until something is chosen.
USUAL_HARDWARE = "dgx-h100"
#: Shares of memory that may be kept free, in per cent; the first that is asked for is the advisor's own.
MARGINS = (10, 5, 0, 20)
PRECISION_WORDS = [("", "the usual"), *((name, name) for name in PRECISIONS)]


class AskForm(forms.Form):
    """One line of fields; the address of an answer has them all."""

    artifact = forms.ModelChoiceField(label="Train", queryset=Artifact.objects.none(), empty_label=None)
    hardware = forms.ChoiceField(label="On", initial=USUAL_HARDWARE)
    nodes = forms.IntegerField(label="How many", min_value=1, max_value=4096, initial=1)
    batch = forms.IntegerField(label="Batch", min_value=1, max_value=2**24, required=False)
    sequence = forms.IntegerField(label="Sequence", min_value=1, max_value=2**22, required=False)
    precision = forms.ChoiceField(label="Precision", choices=PRECISION_WORDS, required=False)
    margin = forms.TypedChoiceField(
        label="Keep free", coerce=int, choices=[(share, f"{share} %") for share in MARGINS], initial=10
    )
    goal = forms.ChoiceField(
        label="Goal", choices=[(goal, goal) for goal in GOALS], initial=GOALS[0], widget=forms.RadioSelect
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models = Artifact.objects.of(project).ready().filter(kind="model", parent=None).order_by("name", "id")
        self.fields["artifact"].queryset = models  # type: ignore[attr-defined]
        self.fields["hardware"].choices = [  # type: ignore[attr-defined]
            ("nodes of", [(name, name) for name in hardware.names("node")]),
            ("one device", [(name, name) for name in hardware.names()]),
        ]
        for name in ("batch", "sequence"):
            self.fields[name].widget.attrs["placeholder"] = "usual"

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not self.errors:
            try:
                hardware.resolve(machines(data["hardware"], data["nodes"]))
            except BadInput as error:
                self.add_error("nodes", str(error))
        return data

    @property
    def question(self) -> dict[str, Any]:
        """What is asked, without the model, in the advisor's own words."""
        data = self.cleaned_data
        sizes = {name: data[name] for name in ("batch", "sequence", "precision") if data.get(name)}
        where = machines(data["hardware"], data["nodes"])
        margin = data["margin"] / 100
        return {"hardware": where, "goal": data["goal"], "margin": margin, "options": sizes}

    @property
    def address(self) -> Mapping[str, Any]:
        """The question as an address has it; what was left open is left out."""
        data = self.cleaned_data
        given = {name: data[name] for name in self.fields if data.get(name) not in ("", None)}
        return {**given, "artifact": data["artifact"].pk}


def address_of(advice: Advice) -> dict[str, Any]:
    """The address of a question that was asked, in the fields of the form."""
    question = advice.question
    where, margin = question["hardware"], round(100 * question["margin"])
    row = where["cluster"] if isinstance(where, dict) else {"node": where, "nodes": 1}
    sheet = {"hardware": row.get("node") or row["device"]}
    count = {"nodes": row["nodes"] * row.get("devices_per_node", 1)}
    return {
        "artifact": advice.artifact_id,
        **sheet,
        **count,
        **question["options"],
        "margin": margin,
        "goal": question["goal"],
    }


def machines(sheet: str, count: int) -> Any:
    """Return the hardware of a spec: one device, or ``count`` of a node's sheet or of a device's."""
    if sheet in hardware.names("node"):
        return {"cluster": {"node": sheet, "nodes": count}}
    return sheet if count == 1 else {"cluster": {"device": sheet, "nodes": 1, "devices_per_node": count}}
