"""A project's runs leave as a folder of MLflow, once however often, and come back as they were."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.client import Lab, Server
from labtools import mlflow_store
from labtools.mlflow_export import export
from labtools.mlflow_names import escape_all, unescape, whole_names
from labtools.mlflow_store import StoredRun, read_store
from labtools.problems import Problem
from tests.webapp import cast
from tests.webapp.cast import Place
from tests.webapp.logged.logs import beginning, ending, falling, image, log_lines
from webapp.history.models import RunTag
from webapp.logged.models import LoggedRun
from webapp.runs.models import Experiment, Run, RunDocument

PARAMS = {
    "lr": 1e-3,
    "net": "7",
    "on": True,
    "none": None,
    "a/b": 2,
    "../up": "x\ny",
    "é @ 100 %": "long " * 300,
}
FIGURES = ("train/loss", "train", "..", "../../up", "acc@1", "x" * 60)


@pytest.fixture
def history(ada: Place) -> Place:
    """A run that a policy answered, one that did not fit, one that waits, and one of somebody's program."""
    made = cast.experiment(ada.project)
    run = cast.run(made, "vdnn", {"step_time": 0.5, "peak_memory": 1e9}, family="memory")
    RunTag.objects.create(run=run, name="best")
    RunDocument.objects.create(run=run, outcome={"status": "ok"})
    cast.run(made, "capuchin", state="infeasible", reason="12 GB over", family="memory")
    cast.run(made, "gpipe", state="queued", family="parallel")
    points = [one for name in FIGURES for one in falling(5, name=name)] + [
        [6, 1_790_000_006.0, {"train": "nan"}]
    ]
    begin = beginning("resnet", params=PARAMS, tags=["kept"], seed=7, hardware="h200", experiment="rates")
    log_lines(ada.project, ada.user, begin, *points, image("digits", 3), ending())
    return ada


def by_name(folder: Path) -> dict[str, StoredRun]:
    return {run.name: run for run in read_store(str(folder))}


@pytest.mark.django_db(transaction=True)
def test_every_run_is_written_as_mlflow_has_it(history: Place, server: Server, tmp_path: Path) -> None:
    assert export(tmp_path / "out", server.url) == 0
    found = by_name(tmp_path / "out")
    assert {name: run.status for name, run in found.items()} == {
        "vdnn": "FINISHED", "capuchin": "FAILED", "gpipe": "SCHEDULED", "resnet": "FINISHED",
    }  # fmt: skip
    vdnn = found["vdnn"]
    assert vdnn.id == Run.objects.get(policy="vdnn").pk.hex
    assert {(name, value) for name, value, *_ in vdnn.points} == {("step_time", 0.5), ("peak_memory", 1e9)}
    assert vdnn.params["policy"] == "vdnn" and vdnn.params["family"] == "memory"
    assert vdnn.tags["lab.tag.best"] == "true" and found["capuchin"].tags["lab.reason"] == "12 GB over"
    files = Path(str(found["resnet"].files))
    assert [path.suffix for path in files.iterdir()] == [".png"]
    assert (
        json.loads((Path(str(vdnn.files)) / "spec.json").read_text()) == Run.objects.get(policy="vdnn").spec
    )


@pytest.mark.django_db(transaction=True)
def test_it_comes_back_as_it_was(history: Place, server: Server, tmp_path: Path) -> None:
    """Into a lab that knows nothing of it; a policy's run comes back as one that a program logged."""
    before = LoggedRun.objects.get()
    key, told, tags = before.pk, before.run.spec["knobs"], {tag.name for tag in before.run.tags.all()}
    points = {name: Lab(server.url).points(str(key), name) for name in FIGURES}
    export(tmp_path / "out", server.url)
    Run.objects.all().delete()
    Experiment.objects.all().delete()
    mlflow_store.import_store(str(tmp_path / "out"), server.url)
    assert LoggedRun.objects.count() == 3, "the one that waits has not ended"
    again = LoggedRun.objects.get(pk=key)
    assert again.run.spec["knobs"] == told
    assert {tag.name for tag in again.run.tags.all()} == tags == {"kept"}
    assert (again.run.policy, again.run.seed, again.run.experiment.name) == ("resnet", 7, "rates")
    for name in FIGURES:
        assert repr(Lab(server.url).points(str(key), name)) == repr(points[name])
    assert dict(Run.objects.get(policy="vdnn").metrics.values_list("name", "value"))["step_time"] == 0.5


@pytest.mark.django_db(transaction=True)
def test_into_the_lab_that_it_left_nothing_comes_twice(
    history: Place, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path, server.url)
    before = Run.objects.filter(kind__in=Run.RECORDED).count()
    assert mlflow_store.import_store(str(tmp_path), server.url) == 0
    assert Run.objects.filter(kind__in=Run.RECORDED).count() == before
    assert "vdnn: is in the lab already" in capsys.readouterr().out


@pytest.mark.django_db(transaction=True)
def test_what_is_there_is_not_written_again(
    history: Place, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(tmp_path, server.url, "policy = vdnn or policy = capuchin")
    assert "2 runs written, 0 were there" in capsys.readouterr().out
    RunTag.objects.create(run=Run.objects.get(policy="capuchin"), name="odd")
    left = tmp_path.with_name(f".{tmp_path.name}.lab-export")
    (left / "half").mkdir(parents=True)
    export(tmp_path, server.url)
    assert "3 runs written, 1 were there" in capsys.readouterr().out
    export(tmp_path, server.url)
    assert "0 runs written, 4 were there" in capsys.readouterr().out
    export(tmp_path, server.url, documents=True)
    assert "4 runs written" in capsys.readouterr().out
    files = {
        name: {path.name for path in Path(str(run.files)).iterdir()}
        for name, run in by_name(tmp_path).items()
    }
    assert files["vdnn"] == {"spec.json", "outcome.json"} and files["gpipe"] == {"spec.json"}
    assert "lab.tag.odd" in by_name(tmp_path)["capuchin"].tags
    assert len(by_name(tmp_path)) == 4 and not left.exists()


@pytest.mark.django_db(transaction=True)
def test_a_folder_of_something_else_is_left_alone(history: Place, server: Server, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(Problem, match="has other files"):
        export(tmp_path, server.url)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lab-export.json").write_text('{"server": "https://else", "of": {}}')
    with pytest.raises(Problem, match="has the runs of https://else"):
        export(tmp_path / "out", server.url)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "out"]


@given(st.sets(st.text(min_size=1, max_size=300), max_size=8))
def test_every_name_stays_below_its_folder_and_comes_back(names: set[str]) -> None:
    shown = escape_all(names)
    tags = whole_names(names)
    assert len(set(shown.values())) == len(names)
    for name, told in shown.items():
        assert os.path.normpath(told) == told and not told.startswith(("/", "..")) and len(told) <= 250
        assert unescape(told, tags) == name


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(not os.environ.get("MLFLOW_PYTHON"), reason="MLFLOW_PYTHON names no Python with MLflow")
def test_mlflow_itself_reads_it(history: Place, server: Server, tmp_path: Path) -> None:
    export(tmp_path, server.url)
    script = """
import json, sys
from mlflow.tracking import MlflowClient
client, found = MlflowClient(sys.argv[1]), {}
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id]):
        points = {name: len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics}
        files = [one.path for one in client.list_artifacts(run.info.run_id)]
        found[run.info.run_name] = [run.info.status, points, len(run.data.params), len(files)]
print(json.dumps(found))
"""
    command = [os.environ["MLFLOW_PYTHON"], "-c", script, tmp_path.as_uri()]
    environment = os.environ | {"MLFLOW_ALLOW_FILE_STORE": "true"}
    told = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert told.returncode == 0, told.stderr[-2000:]
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    assert {name: row[0] for name, row in found.items()} == {
        name: run.status for name, run in by_name(tmp_path).items()
    }
    assert sorted(found["resnet"][1].values()) == [5] * (len(FIGURES) - 1) + [6]
    assert found["resnet"][2] == len(PARAMS) and found["resnet"][3] == 1
