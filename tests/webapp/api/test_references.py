"""What a submission may name: artifacts of its own project and the lab's names. A path of a worker's host
opens nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.webapp import cast
from tests.webapp.api.calls import Caller
from tests.webapp.cast import Cast, Place, ready
from webapp.artifacts.models import Artifact, Blob
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db

PATHS = [
    "/etc/passwd",
    "../../etc/passwd",
    "config.json",
    "/var/lib/lab/files/secret.json",
    "file:///etc/passwd",
    "http://192.0.2.1/config.json",
    "zoo:../../etc/passwd",
    "package:../../../etc/passwd",
    "package:/etc/passwd",
    "package:no-such-list.txt",
    "artifact:../1",
    "artifact:99999999",
    "sha256:" + "0" * 64,
    "config.json@" + "0" * 64,
    " ",
]


def stored(place: Place, name: str, **more: Any) -> Artifact:
    """An uploaded artifact whose content is its own name."""
    content = name.encode()
    sha256 = hashlib.sha256(content).hexdigest()
    blob, _ = Blob.objects.get_or_create(sha256=sha256, defaults={"size": len(content)})
    return ready(place.project, name=name, zoo="", source="upload", blob=blob, **more)


def serving(source: str, **options: Any) -> dict[str, Any]:
    workload = {"source": source, "options": options}
    cluster = {"cluster": {"nodes": 1, "devices_per_node": 1, "device": "a100-40g"}}
    return {"family": "serving", "policy": "orca", "workload": workload, "hardware": cluster}


@pytest.fixture
def trace(ada: Place) -> Artifact:
    return stored(ada, "trace.csv", kind="requests")


@pytest.mark.parametrize("value", PATHS)
@pytest.mark.parametrize("field", ["source", "options.model", "options.extra"])
def test_a_path_is_refused_with_the_field_and_what_may_stand_there(
    caller: Caller, trace: Artifact, field: str, value: str
) -> None:
    spec = serving(f"artifact:{trace.pk}")
    place = spec["workload"]["options"] if "." in field else spec["workload"]
    place[field.rpartition(".")[2]] = value
    answer = caller.post("/runs", spec)
    assert (caller.last, answer["field"], answer["value"]) == (422, f"workload.{field}", value)
    assert "/etc/passwd" not in answer["expected"]
    assert not Run.objects.filter(kind="policy").exists()


def test_a_side_file_that_is_no_workload_and_a_model_are_named_by_number_or_hash(
    caller: Caller, ada: Place, trace: Artifact
) -> None:
    model = stored(ada, "tiny.json")
    side = stored(ada, "cycles.json", kind="", state="rejected", reason="not a format that can be read")
    by_hash = {"model": f"sha256:{model.blob_id}", "extra": f"cycles.json@{side.blob_id}"}
    by_number = {"model": f"artifact:{model.pk}", "extra": f"artifact:{side.pk}"}
    for source, options in (
        (f"artifact:{trace.pk}", by_number),
        (f"sha256:{trace.blob_id}", by_hash),
        (f"trace.csv@{trace.blob_id}", by_hash),
    ):
        made = caller.post("/runs", serving(source, **options))
        assert caller.last == 201, made
        run = Run.objects.get(pk=made["id"])
        assert run.artifact == trace
        assert run.spec["workload"]["options"] == by_number


@pytest.mark.parametrize("model", ["llama2-7b", "zoo:gpt2"])
def test_models_that_the_lab_knows_are_named_as_they_are_called(
    caller: Caller, trace: Artifact, model: str
) -> None:
    made = caller.post("/runs", serving(f"artifact:{trace.pk}", model=model))
    assert caller.last == 201
    assert Run.objects.get(pk=made["id"]).spec["workload"]["options"] == {"model": model}


def test_files_that_the_lab_brings_are_named_as_it_names_them(caller: Caller, ada: Place) -> None:
    """The list becomes an artifact of the project; its side file is read where the trial runs."""
    spec = {
        "family": "compilation",
        "policy": "roller",
        "workload": {
            "source": "package:roller-operators.txt",
            "options": {"extra": "package:roller-times-v100.txt"},
        },
        "hardware": "v100-16g",
    }
    runs = [Run.objects.get(pk=caller.post("/runs", spec)["id"]) for _ in range(2)]
    assert runs[0].artifact == runs[1].artifact
    assert (runs[0].artifact.name, runs[0].artifact.source) == ("roller-operators.txt", "sample")
    assert runs[0].spec["workload"]["options"] == {"extra": "package:roller-times-v100.txt"}


def test_a_rejected_file_serves_no_requests(caller: Caller, ada: Place, trace: Artifact) -> None:
    broken = stored(ada, "broken.json", state="rejected", reason="line 1: a comma is missing")
    answer = caller.post("/runs", serving(f"artifact:{trace.pk}", model=f"artifact:{broken.pk}"))
    assert caller.last == 422
    assert "line 1: a comma is missing" in answer["detail"]


def test_another_teams_files_cannot_be_named(caller: Caller, trace: Artifact) -> None:
    theirs = stored(cast.place("bob"), "secret.json")
    for reference in (f"artifact:{theirs.pk}", f"sha256:{theirs.blob_id}"):
        for spec in (serving(reference), serving(f"artifact:{trace.pk}", model=reference)):
            answer = caller.post("/runs", spec)
            assert caller.last == 422
            assert answer["detail"].count("is not there") == 1


def test_one_bad_name_refuses_a_whole_experiment(caller: Caller, trace: Artifact) -> None:
    good = serving(f"artifact:{trace.pk}")
    bad = serving(f"artifact:{trace.pk}", extra="/etc/passwd")
    answer = caller.post("/experiments", {"name": "two", "runs": [good, bad]})
    assert (caller.last, answer["field"]) == (422, "runs[1].workload.options.extra")
    assert not Run.objects.filter(kind="policy").exists()


def asked(trace: Artifact, **options: str) -> dict[str, Any]:
    cluster = {"nodes": "1", "devices_per_node": "1", "cluster_device": "a100-40g"}
    chosen = {"artifacts": [trace.pk], "policies": ["serving/orca"], "devices": ["a100-40g"]}
    fields = {f"option:{name}": value for name, value in options.items()}
    return chosen | cluster | {"modes": ["simulated"], "seeds": "0"} | fields


@pytest.mark.parametrize("value", ["/etc/passwd", "config.json", "artifact:99999999"])
@pytest.mark.parametrize("option", ["model", "extra"])
def test_the_form_refuses_a_path_at_its_field(cast: Cast, option: str, value: str) -> None:
    trace = ready(cast.project, "requests", "trace")
    form = ExperimentForm(cast.project, asked(trace, **{option: value}))
    assert not form.is_valid()
    [error] = form.errors[f"option:{option}"]
    assert error.startswith(f"'{value}' is not there (expected ")
    assert "a path is not taken" in error


def test_the_form_takes_several_models_by_name_and_by_number(cast: Cast) -> None:
    trace, model = ready(cast.project, "requests", "trace"), ready(cast.project)
    form = ExperimentForm(cast.project, asked(trace, model=f"llama2-7b, artifact:{model.pk}"))
    assert form.is_valid(), form.errors
    options = [trial.spec["workload"]["options"] for trial in form.cleaned_data["expansion"].trials]
    assert options == [{"model": "llama2-7b"}, {"model": f"artifact:{model.pk}"}]
