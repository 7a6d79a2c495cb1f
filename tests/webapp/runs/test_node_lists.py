"""Clusters that are uploaded lists of nodes: read, chosen, refused, handed to a worker, and in suites."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.http import QueryDict

from experiments.commands.inspect import inspection
from experiments.core.errors import BadInput
from experiments.core.spec import Workload, load_spec
from experiments.run import run as carry_out
from tests.variants import variants
from tests.webapp.browser import browser_page, enter, serious, serving
from tests.webapp.cast import Cast, make_cast, ready, signed_in
from webapp.artifacts.models import Artifact
from webapp.artifacts.services import add_generated, store_file
from webapp.runs.again import hardware_fields
from webapp.runs.as_command import commands_of
from webapp.runs.choices import asked_by, settle, usable_artifacts
from webapp.runs.forms import ExperimentForm
from webapp.runs.models import Experiment, Run
from webapp.runs.proposal import propose
from webapp.runs.services import submit_experiment
from webapp.runs.specs import Submission
from workers.assignment import Assignment, assign
from workers.sources import Unusable

LIST = b"name,gpus,type\na,4,v100\nb,2,v100\nc,2,p100\n"


def listed(cast: Cast, folder: Path, content: bytes = LIST, name: str = "nodes.csv") -> Artifact:
    """An uploaded node list as a worker leaves it."""
    path = folder / name
    path.write_bytes(content)
    found = inspection(Workload(str(path)))
    told = {key: found[key] for key in ("kind", "format", "summary", "assumed", "warnings")}
    made = ready(cast.project, told.pop("kind"), name, zoo="", source="upload", **told)
    made.blob = store_file(ContentFile(content, name))
    made.save()
    return made


def form_of(cast: Cast, nodes: list[Artifact], **more: Any) -> ExperimentForm:
    drawn = add_generated(cast.project, cast.max, "generated:philly")
    fields = {"artifacts": [drawn.pk], "policies": ["cluster/fifo"], "modes": ["simulated"], "seeds": "0"}
    options = {"option:limit": "20", "option:rate": "0.001"}
    return ExperimentForm(cast.project, {**fields, **options, "node_list": [one.pk for one in nodes], **more})


def test_a_list_tells_its_devices_and_what_it_leaves_open(cast: Cast, tmp_path: Path) -> None:
    openb = b"sn,cpu_milli,memory_mib,gpu,model\nx,64000,262144,2,T4\ny,96000,786432,0,\n"
    theirs = listed(cast, tmp_path, gzip.compress(openb), "openb_nodes.csv.gz")
    assert theirs.summary["node_list"] == {"nodes": 2, "devices": [("T4", 2)]}
    pai = listed(cast, tmp_path, b"a1,V100,96,512,8\nb2,T4,96,512,2\n", "pai_machine_spec.csv")
    assert pai.summary["node_list"] == {"nodes": 2, "devices": [("V100", 8), ("T4", 2)]}
    ours = listed(cast, tmp_path)
    assert ours.summary["node_list"] == {"nodes": 3, "devices": [("v100", 6), ("p100", 2)]}
    assert ours.assumed[0] == "the processors of hosts are not told: as much as any job asks for"
    page = signed_in(cast.vera).get(cast.url(f"artifacts/{ours.pk}/")).content.decode()
    assert "GPUs by type" in page
    assert "Choose it as the cluster of an experiment" in page
    assert ours not in usable_artifacts(cast.project)


def test_several_lists_and_no_parts_are_a_grid_of_clusters(cast: Cast, tmp_path: Path) -> None:
    """Eight and two GPUs for jobs that want 15.6 on average: the smaller is told."""
    many, few = listed(cast, tmp_path), listed(cast, tmp_path, b"name,gpus,type\na,2,v100\n", "two.csv")
    form = form_of(cast, [many, few])
    assert form.is_valid(), form.errors
    found = [trial.spec["hardware"] for trial in form.cleaned_data["expansion"].trials]
    assert found == [{"nodes": f"artifact:{one.pk}"} for one in (few, many)]
    told = propose(form_of(cast, [many]), {})
    assert told.sentence is not None and told.load is not None
    assert told.sentence.hardware == "3 nodes of nodes.csv with 8 GPUs"
    assert (told.load.gpus, propose(form_of(cast, [many, few]), {}).load.gpus) == (8, 2)  # type: ignore[union-attr]
    again = settle(cast.project, asked_by(cast.project, QueryDict(f"node_list={many.pk}")))
    page = signed_in(cast.max).get(cast.url(f"experiments/new?{again.address}")).content.decode()
    assert f'name="node_list" value="{many.pk}"' in page
    assert hardware_fields({"nodes": f"artifact:{many.pk}"}) == {"node_list": str(many.pk)}


def test_a_run_on_a_list_is_carried_out_on_its_nodes_and_names_it_by_hash(
    cast: Cast, tmp_path: Path, settings: Any
) -> None:
    """A worker's trial is given the file; the outcome of the same spec has its eight devices."""
    settings.BLOB_CACHE = tmp_path / "cache"
    nodes = listed(cast, tmp_path)
    form = form_of(cast, [nodes])
    assert form.is_valid(), form.errors
    trials = form.cleaned_data["expansion"].trials
    made = submit_experiment(cast.project, cast.max, name="x", trials=trials, request={})
    run = made.runs.get()
    assert run.hardware == "nodes.csv (3 nodes)"
    work = tmp_path / "work"
    work.mkdir()
    given = assign(run, work, 2**30)
    assert isinstance(given, Assignment)
    spec = json.loads((work / "spec.json").read_text())
    assert Path(spec["hardware"]["nodes"]).read_bytes() == LIST
    assert Path(spec["hardware"]["nodes"]).resolve() in [path.resolve() for path in given.inputs]
    outcome = carry_out(load_spec(spec))
    assert outcome.provenance["cluster"] == {"nodes": 3, "devices": 8}
    assert outcome.provenance["hardware"]["devices"] == {"v100": 6, "p100": 2}
    commands = commands_of(cast.project, "x", trials, "http://lab")
    assert f"files/{nodes.blob_id}" in commands.local and '"nodes": "./nodes.csv"' in commands.local
    page = signed_in(cast.vera).get(cast.url(f"runs/{run.pk}/"))
    assert page.status_code == 200
    Artifact.objects.filter(pk=nodes.pk).delete()
    with pytest.raises(Unusable, match="is not an artifact of this project"):
        assign(run, work, 2**30)


def test_the_api_takes_a_list_of_the_project_alone(cast: Cast, tmp_path: Path) -> None:
    nodes = listed(cast, tmp_path)
    workload = {"source": "generated:philly", "options": {"limit": 20}}
    asked = {"family": "cluster", "policy": "fifo", "workload": workload}
    submission = Submission(cast.project, cast.max)
    by_hash = submission.trial({**asked, "hardware": {"nodes": f"sha256:{nodes.blob_id}"}})
    assert by_hash.spec["hardware"] == {"nodes": f"artifact:{nodes.pk}"}
    other = ready(cast.foreign, "nodes", "theirs.csv", zoo="")
    jobs = ready(cast.project, "jobs", "jobs.csv", zoo="")
    for reference, complaint in (
        ("/etc/passwd", "a path is not taken"),
        (f"artifact:{other.pk}", "is not there"),
        (f"artifact:{jobs.pk}", "is no node list"),
    ):
        with pytest.raises(BadInput, match=complaint):
            submission.trial({**asked, "hardware": {"nodes": reference}})
    form = form_of(cast, [other])
    assert not form.is_valid() and "node_list" in form.errors
    assert not Experiment.objects.exists() and not Run.objects.filter(kind="policy").exists()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("theme", variants("light", "dark"))
def test_a_list_is_chosen_by_keyboard(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, theme: str
) -> None:
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    cast = make_cast()
    drawn = add_generated(cast.project, cast.max, "generated:gavel")
    listed(cast, tmp_path)
    with serving() as address, browser_page(theme=theme) as page:
        enter(page, address, cast.max)
        page.goto(address + cast.url(f"experiments/new?artifact={drawn.pk}&policy=cluster/fifo"))
        page.locator("#summary", has_text="is not told, only on k80, p100, v100").wait_for()
        page.get_by_label("nodes.csv").press("Space")
        page.locator("#asked", has_text="3 nodes of nodes.csv with 8 GPUs").wait_for()
        page.locator("#drawn", has_text="3 nodes; 6 v100, 2 p100").wait_for()
        page.reload()
        assert page.get_by_label("nodes.csv").is_checked()
        assert serious(page) == []
