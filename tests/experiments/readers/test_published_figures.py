"""Published figures in the lab's own formats: they say where they come from, and are as published."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.published_figures import FIGURE_10, STEPS, TIMES, milliseconds, published_step, times_table
from experiments.commands.inspect import inspection
from experiments.core.errors import BadInput
from experiments.core.package_files import FOLDER
from experiments.core.spec import Workload
from experiments.readers.step_file import ORIGIN
from experiments.sources import load
from experiments.workloads import storage
from experiments.workloads.step import Step

BERT = Workload("package:g10/bert-256.step")


def columns(step: Step) -> dict[str, object]:
    """Every column of a step as plain values; NaN as text, which equals itself."""
    tables = {"ops": step.ops, "tensors": step.tensors, "inputs": step.inputs, "outputs": step.outputs}
    return {
        f"{name}.{field.name}": str(np.asarray(getattr(table, field.name)).tolist())
        if isinstance(getattr(table, field.name), np.ndarray)
        else getattr(table, field.name)
        for name, table in tables.items()
        for field in dataclasses.fields(table)
    }


def test_a_step_says_where_its_figures_come_from_and_what_was_assumed() -> None:
    found = inspection(BERT)
    assert (found["format"], found["kind"]) == ("step", "step")
    assert found["assumed"][0] == "figures of platformxlab/G10 at de2c8c6f (Apache-2.0)"
    assert "locals are free after their last use" in found["assumed"]
    assert len(load(BERT).value.ops) == 1369


def test_what_its_reader_doubted_is_said_although_the_other_batch_sizes_are_not_here() -> None:
    found = inspection(Workload("package:g10/resnet152-1280.step"))
    assert found["warnings"] == [
        "every op's time lies on the line between batch 1024 and batch 1536: interpolated"
    ]


@pytest.mark.parametrize(
    ("origin", "complaint"),
    [
        ([], "origin: .* is not an object"),
        ({"commit": "1", "license": "MIT"}, "origin.project: None is not a text"),
        (
            {"project": "p", "commit": "1", "license": "MIT", "doubts": [1]},
            "origin.doubts: .* no list of lines",
        ),
    ],
)
def test_an_origin_that_is_none_is_refused(tmp_path: Path, origin: object, complaint: str) -> None:
    step = dataclasses.replace(load(BERT).value, facts={ORIGIN: origin})
    storage.save(step, tmp_path / "x.step")
    with pytest.raises(BadInput, match=complaint):
        load(Workload(str(tmp_path / "x.step")))


@pytest.mark.parametrize("name", STEPS)
def test_a_stored_step_has_the_figures_of_the_original(shared_data: Path, name: str) -> None:
    stored = load(Workload(f"package:g10/{name}.step")).value
    original = published_step(shared_data, STEPS[name])
    assert columns(stored) == columns(original)
    assert json.loads(json.dumps(original.facts)) == stored.facts
    assert (stored.name, stored.timing, stored.timed_on) == (
        original.name,
        original.timing,
        original.timed_on,
    )
    for file, digest in stored.facts[ORIGIN]["files"].items():
        assert hashlib.sha256((shared_data / "memory" / file).read_bytes()).hexdigest() == digest


def test_rollers_table_has_the_figures_of_the_original(shared_data: Path) -> None:
    text = (FOLDER / TIMES).read_text()
    assert text == times_table(shared_data)
    original = (shared_data / "compilation/roller_osdi22" / FIGURE_10).read_bytes()
    assert hashlib.sha256(original).hexdigest() in text


def test_a_time_is_written_as_short_as_it_is_read_back_exactly() -> None:
    assert milliseconds(2.747 * 1e-3) == "2.747"
    assert milliseconds(0.539734916 * 1e-3) == "0.539734916"


def test_the_figures_are_small() -> None:
    sizes = [path.stat().st_size for path in (*(FOLDER / "g10").iterdir(), FOLDER / TIMES)]
    assert sum(sizes) < 300_000
