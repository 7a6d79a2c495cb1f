"""The form of a new experiment, made from the registry: policies by family, knobs with their meaning and
bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from django import forms

from experiments import hardware
from experiments.core import knobs, registry
from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.policy import MODES
from webapp.accounts.models import Project
from webapp.artifacts import generated
from webapp.artifacts.models import Artifact
from webapp.names import NameField
from webapp.runs import references
from webapp.runs.choices import read_keys, usable_artifacts
from webapp.runs.grid import MOST_RUNS, NETWORKED, ON_CLUSTERS, Expansion, Grid, Trial, expand
from webapp.runs.grid_fields import GridField, QuantitiesField, SeedsField, prefill
from webapp.runs.node_lists import FAMILY, hardware_of, named_list, node_lists_of

OVERRIDE_HELP = {
    "bytes": "for example 12 GiB",
    "bandwidth": "for example 12 GB/s",
    "latency": "for example 10 us",
}
#: A cluster of two kinds of nodes.
MIXED_NODES = (
    '[{"nodes": 2, "devices_per_node": 4, "device": "v100-16g"},'
    ' {"nodes": 2, "devices_per_node": 4, "device": "t4-16g"}]'
)


class ArtifactsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Artifacts of ``project`` that can be run on; one that is not ready is named with its state."""

    project: Project

    def clean(self, value: Any) -> Any:
        asked = Artifact.objects.of(self.project).filter(pk__in=read_keys(value or ()))
        unread = asked.exclude(state=Artifact.State.READY).first()
        if unread is not None:
            is_waiting = unread.state == Artifact.State.WAITING
            said = (
                "has yet to be read: it can be run in a moment."
                if is_waiting
                else "was rejected: see its page."
            )
            raise forms.ValidationError(f"{unread.name} {said}")
        return super().clean(value)

    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} · {obj.kind} ({obj.format})"


class DescribedField(forms.JSONField):
    """JSON that may be left empty, and then is shown so."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class ExperimentForm(forms.Form):
    """Cleans to an ``Expansion`` under ``expansion``; every error stands at its field."""

    name = NameField(
        required=False,
        max_length=160,
        label="Name",
        widget=forms.TextInput(attrs={"placeholder": "named after what it runs"}),
    )
    artifacts = ArtifactsField(
        queryset=Artifact.objects.none(),
        label="Workloads",
        error_messages={"required": "Choose a model or a trace."},
    )
    policies = forms.MultipleChoiceField(
        label="Policies",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one."},
    )
    devices = forms.MultipleChoiceField(required=False, label="Devices", widget=forms.CheckboxSelectMultiple)
    modes = forms.MultipleChoiceField(
        label="Mode",
        choices=[(mode, mode) for mode in MODES],
        initial=["simulated"],
        widget=forms.CheckboxSelectMultiple,
    )
    needs = forms.ChoiceField(
        label="Measured on a host with", choices=(("cpu", "CPU"), ("cuda", "CUDA GPU")), required=False
    )
    seeds = SeedsField(label="Seeds", initial="0", help_text="0, or 0, 1, 2, or 0-4: repeats of every run")
    nodes = forms.IntegerField(required=False, min_value=1, max_value=100_000, initial=4, label="Nodes")
    node = forms.ChoiceField(
        required=False,
        label="Kind of node",
        help_text="a published machine with its devices, adapters, links and host",
    )
    devices_per_node = forms.IntegerField(
        required=False, min_value=1, max_value=4096, initial=4, label="Devices per node"
    )
    node_list = forms.ModelMultipleChoiceField(
        queryset=Artifact.objects.none(),
        required=False,
        label="Node lists",
        help_text="uploaded lists of nodes, each a cluster instead of the one described here",
        widget=forms.CheckboxSelectMultiple,
    )
    cluster_device = forms.ChoiceField(required=False, label="Device", initial="a100-40g")
    node_link = forms.ChoiceField(required=False, label="Link inside a node")
    network = forms.ChoiceField(required=False, label="Network between nodes")
    described = DescribedField(
        required=False,
        label="Hardware as JSON",
        help_text="instead of devices and cluster: rails, switches, stragglers, links of your own, "
        f"mixed nodes, as in {MIXED_NODES}",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "class": "mono"}),
    )

    def __init__(self, project: Project, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.project = project
        #: What is assumed of the chosen hardware, known once the form is clean.
        self.warnings: tuple[str, ...] = ()
        artifacts = cast(ArtifactsField, self.fields["artifacts"])
        artifacts.project, artifacts.queryset = project, usable_artifacts(project)
        self.fields["node_list"].queryset = node_lists_of(project)  # type: ignore[attr-defined]
        self._choices("policies", [f"{p.family}/{p.name}" for p in registry.all_policies()])
        self._choices("devices", hardware.names())
        self._choices("cluster_device", hardware.names())
        self.fields["node"].choices = [("", "as described here"), *_machines()]  # type: ignore[attr-defined]
        links = hardware.names("link")
        for name in ("node_link", "network"):
            self.fields[name].choices = [("", "the usual"), *((n, n) for n in links)]  # type: ignore[attr-defined]
        self._grid_fields()

    def _choices(self, name: str, values: Any) -> None:
        self.fields[name].choices = [(value, value) for value in values]  # type: ignore[attr-defined]

    def _grid_fields(self) -> None:
        for option in knobs.describe(WorkloadOptions):
            self.fields[f"option:{option.name}"] = GridField(option)
        for name in hardware.OVERRIDES:
            help = next(
                (text for end, text in OVERRIDE_HELP.items() if end in name), "for example 100 TFLOP/s"
            )
            self.fields[f"override:{name}"] = QuantitiesField(label=name.replace("_", " "), help_text=help)
        for policy in registry.all_policies():
            for knob in knobs.describe(policy):
                self.fields[f"knob:{policy.family}/{policy.name}:{knob.name}"] = GridField(knob)

    # How the page walks through the fields.

    def bound(self, prefix: str) -> Iterator[forms.BoundField]:
        return (self[name] for name in self.fields if name.startswith(prefix))

    def overrides(self) -> list[forms.BoundField]:
        return list(self.bound("override:"))

    def links(self) -> list[forms.BoundField]:
        return [self[name] for name in ("node_link", "network", "described")]

    def show_defaults(self, options: Mapping[str, Any]) -> None:
        """What an option that is left empty stands for, in its field."""
        for name, value in options.items():
            self.fields[f"option:{name}"].widget.attrs["placeholder"] = prefill(value)

    # What was asked for.

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        policies = data.get("policies", [])
        families = {policy.split("/")[0] for policy in policies}
        simulated = "simulated" in data.get("modes", ()) and not data.get("described")
        if simulated and families - set(ON_CLUSTERS) and not data.get("devices"):
            self.add_error("devices", "Choose at least one device: the chosen policies are simulated on one.")
        if simulated and families & set(ON_CLUSTERS) and not (data.get("node_list") and families == {FAMILY}):
            self._check_cluster(data)
        self._settle_references(data)
        if not self.errors:
            data["expansion"] = self._expansion(data)
        return data

    def _settle_references(self, data: dict[str, Any]) -> None:
        """A file is named as an artifact of the project; what else is typed is refused at its field."""
        for option in references.NAMING:
            field = f"option:{option}"
            try:
                values = [
                    references.settle_references(self.project, {option: v})[option]
                    for v in data.get(field, ())
                ]
            except BadInput as error:
                self.add_error(field, f"{error.what} (expected {error.expected})")
            else:
                data[field] = values

    def clean_described(self) -> Any:
        """What the sheets refuse is said at the field."""
        described = self.cleaned_data.get("described")
        if described:
            try:
                hardware.resolve(described)
            except BadInput as error:
                raise forms.ValidationError(str(error)) from error
        return described or None

    def _check_cluster(self, data: Mapping[str, Any]) -> None:
        parts = () if data.get("node") else ("devices_per_node", "cluster_device")
        for name in ("nodes", *parts):
            if name not in self.errors and not data.get(name):
                self.add_error(name, "Needed: the chosen policies run on a cluster.")

    def _expansion(self, data: Mapping[str, Any]) -> Expansion:
        try:
            found = expand(self._grid(data))
        except BadInput as error:
            option = (error.where or "").replace("options.", "option:")
            self.add_error(option if option in self.fields else "policies", str(error))
            return Expansion((), ())
        if not found.trials:
            self.add_error("policies", "No combination makes sense: " + "; ".join(found.left_out))
        elif len(found.trials) > MOST_RUNS:
            self.add_error(None, f"More than {MOST_RUNS} runs: take some values out of the grid.")
        else:
            self._check_hardware(found)
        return found

    def _check_hardware(self, found: Expansion) -> None:
        """What the sheets refuse is said here, not by a worker later, and what they assume of a cluster."""
        warnings: dict[str, None] = {}
        try:
            for trial in found.trials:
                if named_list(trial.spec["hardware"]) is not None:
                    continue
                known = hardware.resolve(trial.spec["hardware"])
                self._check_speeds(trial, known)
                if trial.spec["family"] in NETWORKED:
                    warnings |= dict.fromkeys(known.warnings)
        except BadInput as error:
            self.add_error("devices", str(error))
        self.warnings = tuple(warnings)

    def _check_speeds(self, trial: Trial, known: hardware.Hardware) -> None:
        """A drawn trace tells how fast its models run on some types of devices alone."""
        is_drawn = trial.artifact.source == Artifact.Source.GENERATED and trial.artifact.kind == "jobs"
        if is_drawn and "cluster_device" not in self.errors:
            extra = trial.spec["workload"]["options"]["extra"]
            lack = generated.lack_of_speeds(trial.artifact.name, extra, known)
            if lack:
                self.add_error("cluster_device", f"{trial.artifact}: {lack}")

    def _grid(self, data: Mapping[str, Any]) -> Grid:
        return Grid(
            artifacts=list(data["artifacts"]),
            policies=data["policies"],
            devices=data["devices"],
            overrides=_under(data, "override:"),
            cluster=_cluster(data),
            described=data["described"],
            node_lists=[hardware_of(nodes) for nodes in data["node_list"]],
            knobs={policy: _under(data, f"knob:{policy}:") for policy in data["policies"]},
            options=_under(data, "option:"),
            modes=data["modes"],
            needs=data["needs"] or "cpu",
            seeds=data["seeds"],
        )

    def request_json(self) -> dict[str, Any]:
        """What was typed, for "again with changes"."""
        return {name: value for name in self.fields if (value := self[name].value()) not in (None, "", [])}


def _machines() -> Iterator[tuple[str, str]]:
    """Each published machine and what it has: ``dgx-a100: 8 a100-80g``."""
    for row in hardware.catalog():
        if row["kind"] == "node":
            yield row["name"], f"{row['name']}: {row['devices_per_node']} {row['device']}"


def _under(data: Mapping[str, Any], prefix: str) -> dict[str, list[Any]]:
    found = {name.removeprefix(prefix): value for name, value in data.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if value}


def _cluster(data: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster object of the RunSpec; what was left empty is the node's or the device's usual.

    A node brings its devices: those fields are then not asked.
    """
    devices = {"devices_per_node": data.get("devices_per_node"), "device": data.get("cluster_device")}
    fields = {
        "nodes": data.get("nodes"),
        **({"node": data["node"]} if data.get("node") else devices),
        "node_link": data.get("node_link"),
        "network": data.get("network"),
    }
    overrides = {name: values[0] for name, values in _under(data, "override:").items()}
    return {
        **{name: value for name, value in fields.items() if value},
        **({"overrides": overrides} if overrides else {}),
    }
