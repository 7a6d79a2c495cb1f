"""What fills the form of a new experiment: a preset on artifacts, or one run's spec turned back
into fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import QueryDict

from experiments.core.options import TRAINING_FORMS
from experiments.core.policy import FAMILIES
from webapp.artifacts.fit import TRAINED, USUAL_DEVICE
from webapp.runs.grid import LOCAL, ON_CLUSTERS
from webapp.runs.grid_fields import prefill
from webapp.runs.models import Experiment, Run
from webapp.runs.node_lists import named_list
from webapp.runs.offers import SIMULATED, Told, try_all

#: What a form starts with where nothing else is asked for.
USUAL: Mapping[str, str] = {
    "devices": USUAL_DEVICE,
    "modes": SIMULATED[0],
    "needs": "cpu",
    "seeds": "0",
    "nodes": "4",
    "devices_per_node": "4",
    "cluster_device": "a100-40g",
}


def preset(
    artifacts: Sequence[int],
    family: str,
    policies: Sequence[str] = (),
    kinds: Sequence[str] = (),
    told: Sequence[Told] = (),
) -> dict[str, Any]:
    """The artifacts, of these ``kinds`` and with what their summaries have ``told``, with the named policies
    or what *Try all* means of the family.
    """
    if family not in FAMILIES:
        return {"artifacts": list(artifacts), "policies": list(policies)}
    devices = [] if family in ON_CLUSTERS else [USUAL_DEVICE]
    return {"artifacts": list(artifacts), "policies": try_all(family, kinds, told=told), "devices": devices}


def everything(
    family: str, asked: QueryDict, kinds: Sequence[str] = (), told: Sequence[Told] = ()
) -> QueryDict:
    """The form ``asked`` with all that *Try all* means of the family, simulated once."""
    filled = preset([], family, kinds=kinds, told=told)
    changed = asked.copy()
    changed.setlist("policies", filled["policies"])
    if not asked.getlist("devices"):
        changed.setlist("devices", filled["devices"])
    changed.setlist("modes", [*SIMULATED])
    for name, value in USUAL.items():
        changed.setdefault(name, value)
    for name, value in TRAINING_FORMS.get(asked.get(TRAINED, ""), {}).items():
        changed[f"option:{name}"] = value
    return changed


def from_experiment(experiment: Experiment) -> dict[str, Any]:
    """What its form was filled with. One that came otherwise (from a suite or the API) has the fields of its
    first run, with the workloads and policies of all.
    """
    runs = list(experiment.runs.order_by("queued_at", "id"))
    if "artifacts" in experiment.request or not runs:
        return dict(experiment.request)
    artifacts = dict.fromkeys(run.artifact_id for run in runs if run.artifact_id)
    policies = dict.fromkeys(f"{run.family}/{run.policy}" for run in runs)
    return {**from_run(runs[0]), "artifacts": [*artifacts], "policies": [*policies]}


def from_run(run: Run) -> dict[str, Any]:
    """The fields that would give exactly this run."""
    spec = run.spec
    key = f"{run.family}/{run.policy}"
    fields: dict[str, Any] = {
        "artifacts": [run.artifact_id],
        "policies": [key],
        "modes": [run.mode],
        "needs": run.needs or "cpu",
        "seeds": str(run.seed),
    }
    fields |= {f"knob:{key}:{name}": prefill(value) for name, value in spec.get("knobs", {}).items()}
    options = spec.get("workload", {}).get("options", {})
    fields |= {f"option:{name}": prefill(value) for name, value in options.items() if value is not None}
    return fields | hardware_fields(spec.get("hardware"))


#: Parts of a cluster by the field of the form that chooses them.
CLUSTER_FIELDS = {
    "nodes": "nodes",
    "node": "node",
    "devices_per_node": "devices_per_node",
    "device": "cluster_device",
    "node_link": "node_link",
    "network": "network",
}


def hardware_fields(hardware: Any) -> dict[str, Any]:
    """Devices and a plain cluster have fields of their own; all else is told as it stands in the spec."""
    if isinstance(hardware, str):
        return _device_field(hardware)
    if not isinstance(hardware, Mapping):
        return {"described": json.dumps(hardware)} if hardware else {}
    if set(hardware) <= {"device", "overrides"}:
        return _device_field(hardware["device"]) | _override_fields(hardware)
    if (nodes := named_list(hardware)) is not None:
        return {"node_list": nodes.removeprefix("artifact:")}
    cluster = hardware.get("cluster")
    if not isinstance(cluster, Mapping) or not _has_fields(cluster):
        return {"described": json.dumps(hardware)}
    fields = {field: cluster[name] for name, field in CLUSTER_FIELDS.items() if name in cluster}
    return fields | _override_fields(cluster)


def _has_fields(cluster: Mapping[str, Any]) -> bool:
    """Every part of it can be chosen in the form, where a node brings its devices."""
    brought = {"device", "devices_per_node"} if "node" in cluster else set()
    known = set(cluster) <= {*CLUSTER_FIELDS, "overrides"} - brought
    return known and not any(isinstance(cluster.get(name), Mapping) for name in ("node_link", "network"))


def _device_field(device: str) -> dict[str, Any]:
    """The host of a measured run is no choice of the form."""
    return {} if device == LOCAL else {"devices": [device]}


def _override_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"override:{name}": repr(value) for name, value in row.get("overrides", {}).items()}
