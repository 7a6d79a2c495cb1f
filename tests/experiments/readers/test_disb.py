"""``disb``: loads and classes of tasks, and what is refused where."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import open_file
from experiments.workloads.scenario import BEST_EFFORT, CLOSED, REAL_TIME, KernelFile, Scenario


def task(name: str, load: dict[str, Any], model: str = "net", **client: Any) -> dict[str, Any]:
    return {"id": name, "load": load, "client": {"model_name": model, **client}}


def read(folder: Path, *tasks: dict[str, Any], time: float = 2) -> Scenario:
    (folder / "net.json").write_text("{}")
    (folder / "vgg.json").write_text("{}")
    file = folder / "workload.json"
    file.write_text(json.dumps({"time": time, "tasks": list(tasks)}))
    opened = open_file(file, "auto", WorkloadOptions())
    assert opened.reader.format == "disb"
    assert isinstance(opened.reading.value, Scenario)
    return opened.reading.value


def test_loads_of_every_type_are_arrivals(tmp_path: Path) -> None:
    scenario = read(
        tmp_path,
        task("periodic", {"type": "periodic", "priority": 0, "frequency": 2}),
        task("poisson", {"type": "poisson", "frequency": 20}),
        task("recorded", {"type": "trace", "trace": [1500, 100, 2500]}),
        task("again_rt", {"type": "continuous"}, "vgg19-imagenet"),
        task("first", {"type": "continuous", "priority": 0}),
        task("rest_be", {"type": "continuous"}),
    )
    assert [model.service_class for model in scenario.models] == [REAL_TIME] * 5 + [BEST_EFFORT]
    assert [model.arrivals for model in scenario.models[3:5]] == [CLOSED] * 2
    drawn = scenario.draw(0)
    times = [drawn.arrival[drawn.model == place].tolist() for place in range(6)]
    assert times[0] == [0, 0.5, 1, 1.5]
    assert 10 < len(times[1]) < 80
    assert times[2] == pytest.approx([0.1, 1.5]), "milliseconds; what is after the end is left out"
    assert times[3] == times[4] == [0] and times[5] == []
    assert scenario.models[3].cost.name == "vgg.json"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("broken", "where"),
    [
        (task("a", {"type": "periodic"}), r"tasks\[0\].load.frequency"),
        (task("a", {"type": "often"}), r"tasks\[0\].load.type"),
        (task("a", {"type": "trace", "trace": [1, "x"]}), r"tasks\[0\].load.trace\[1\]"),
        (task("a", {"type": "continuous"}, batch_size=4), r"tasks\[0\].client.batch_size"),
        (task("a", {"type": "continuous"}, "unknown"), r"tasks\[0\].client.model_name"),
        (task("", {"type": "continuous"}), r"tasks\[0\].id"),
        ({"id": "a", "load": 3, "client": {}}, r"tasks\[0\].load"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, broken: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput, match=where):
        read(tmp_path, broken)


def test_a_load_that_nobody_would_simulate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="at most 5000000 in its duration"):
        read(tmp_path, task("a", {"type": "periodic", "frequency": 1e6}), time=1e6)


def test_a_name_is_one_tasks(tmp_path: Path) -> None:
    one = task("a", {"type": "continuous"})
    with pytest.raises(BadInput, match=r"tasks\[1\].id"):
        read(tmp_path, one, one)


def test_a_workload_and_its_kernels_come_as_one_archive(tmp_path: Path) -> None:
    """As an upload does, which is stored under its hash with nothing next to it."""
    file = tmp_path / "0f3a"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr(
            "disb/workload.json", json.dumps({"time": 2, "tasks": [task("a", {"type": "continuous"})]})
        )
        packed.writestr("kernels/net.json", "{}")
        packed.writestr("kernels/net.profile.json", '{"a": 1}')
        packed.writestr("LICENSE", "free")
    opened = open_file(file, "auto", WorkloadOptions())
    assert opened.reader.format == "disb"
    assert opened.reading.value.models[0].cost == KernelFile("net.json", b"{}", b'{"a": 1}')
    assert sorted(opened.reading.value.facts["files"]) == ["net.json"]
