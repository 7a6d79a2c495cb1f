"""Pollux' folder of measurements: what is read, and every complaint with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.readers.job_profiles import open_profiles
from experiments.run import run

GOOD = {
    "placements": "placement,local_bsz,step_time,sync_time\n21,64,2,1\n21,32,1,.5\n1,32,.5,0\n",
    "scalability": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,8,32,3,2\n",
    "validation-128": "progress,iteration,metric,grad_sqr,grad_var\n10,9,.5,2,1\n20,18,.6,1,2\n",
}


def folder(place: Path, **files: str) -> Path:
    (place / "traces/ncf").mkdir(parents=True)
    for name, text in {**GOOD, **files}.items():
        if text:
            (place / "traces/ncf" / f"{name}.csv").write_text(text)
    return place / "traces"


def test_steps_by_placement_and_curves_by_batch(tmp_path: Path) -> None:
    found = open_profiles(folder(tmp_path)).applications["ncf"]
    assert found.placed[2, 1].batch.tolist() == [32, 64]
    assert found.placed[2, 1].step.tolist() == [1, 2]
    assert found.scattered[6, 8].sync.tolist() == [2]
    assert found.validated[128].variance.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("placements", "placement,local_bsz,step_time,sync_time\n20,64,2,1\n", "line 2, column placement"),
        ("placements", "placement,local_bsz,step_time,sync_time\n1,64,1,2\n", "line 2, column sync_time"),
        ("placements", "placement,local_bsz,step_time,sync_time\n1,6,1,0\n1,6,1,0\n", "line 3, column local"),
        ("scalability", GOOD["scalability"].replace("6,8", "9,8"), "line 2, column num_nodes"),
        ("scalability", "", "has no scalability.csv"),
        ("validation-128", GOOD["validation-128"].replace("20,18", "10,18"), "line 3, column progress"),
    ],
)
def test_complaints_name_the_place(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    with pytest.raises(BadInput) as error:
        open_profiles(folder(tmp_path, **{file: text}))
    assert complaint in str(error.value)


def test_the_published_measurements(shared_data: Path) -> None:
    runs = open_profiles(shared_data / "cluster/pollux/traces").applications
    assert sorted(runs) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert sorted(runs["cifar10"].validated) == [128, 256, 512, 1024, 2048, 4096]
    assert len(runs["cifar10"].validated[128].progress) == 100


def test_a_run_that_names_the_folder_takes_its_durations_from_it(tmp_path: Path) -> None:
    """20 steps of 128 samples, 64 at once in half a second each."""
    jobs = tmp_path / "workload.csv"
    jobs.write_text("name,time,application,num_replicas,batch_size\nncf-1,0,ncf,1,128\n")
    spec = {
        "family": "cluster",
        "policy": "fifo",
        "workload": {
            "source": str(jobs),
            "format": "pollux",
            "options": {"extra": str(folder(tmp_path))},
        },
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 4, "device": "t4-16g"}},
    }
    outcome = run(load_spec(spec))
    assert outcome.metrics["avg_jct"]["value"] == pytest.approx(20)
    assert outcome.provenance["performance"]["model"] == "goodput"
