"""Traces and tables of speeds of Gavel's simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file
from experiments.readers.job_profiles import open_profiles
from experiments.workloads.jobs import JobTrace

TEN = "ResNet-18 (batch size 32)\tpython3 main.py\timages\t--steps\t1\t{steps}\t{gpus}\t5\t{slo}\t{arrival}\n"
SEVEN = "ResNet-18 (batch size 32)\tcd %s && python3 main.py\t--steps\t1\t1000\t{arrival}\t1\n"
ONE = "('ResNet-18 (batch size 32)', 1)"
TWO = "('ResNet-18 (batch size 32)', 2)"
TABLE: dict[str, Any] = {
    "k80": {ONE: {"null": 2, ONE: [1, 1.5]}, TWO: {"null": 3}},
    "v100": {ONE: {"null": 10, ONE: [6, 6]}, TWO: {"null": 16}},
    "v100_unconsolidated": {TWO: {"null": 12}},
}


def row(steps: str = "1000", gpus: str = "1", slo: str = "-1.000000", arrival: str = "0") -> str:
    return TEN.format(steps=steps, gpus=gpus, slo=slo, arrival=arrival)


def opened(folder: Path, content: str, table: Any = TABLE) -> Opened:
    file, side = folder / "some.trace", folder / "speeds.json"
    file.write_text(content)
    side.write_text(json.dumps(table))
    return open_file(file, "auto", WorkloadOptions(extra=str(side)))


def test_ten_columns_steps_weights_and_deadlines(tmp_path: Path) -> None:
    found = opened(tmp_path, row(arrival="7") + row(steps="3200", gpus="2", slo="1.5"))
    trace: JobTrace = found.reading.value
    assert found.reader.format == "gavel"
    assert (trace.job, trace.submit.tolist(), trace.gpus.tolist()) == (("1", "0"), [0, 7], [2, 1])
    assert trace.service.tolist() == [200, 100]
    assert trace.deadline[0] == 300
    assert np.isnan(trace.deadline[1])
    assert trace.traits["batch"].tolist() == [32, 32]
    assert trace.traits["weight"].tolist() == [5, 5]
    assert "durations are steps over the speed on v100 of speeds.json" in found.reading.assumed[1]


def test_seven_columns(tmp_path: Path) -> None:
    found = opened(tmp_path, SEVEN.format(arrival="2.5") + "\n" + SEVEN.format(arrival="0.000000"))
    trace: JobTrace = found.reading.value
    assert (trace.submit.tolist(), trace.service.tolist()) == ([0, 2.5], [100, 100])
    assert found.reading.assumed[-1] == "no weights and no deadlines in this form"


def test_what_the_table_lacks_is_counted_and_has_no_duration(tmp_path: Path) -> None:
    found = opened(tmp_path, row() + row(gpus="4"))
    assert np.isnan(found.reading.value.service).tolist() == [False, True]
    assert found.reading.warnings[-1] == (
        "1 of 2 jobs train what speeds.json lacks (the first: job 1, ResNet-18 (batch size 32) on 4 devices)"
    )


def test_without_a_table_only_steps_are_known(tmp_path: Path) -> None:
    file = tmp_path / "some.trace"
    file.write_text(row())
    reading = open_file(file, "auto", WorkloadOptions()).reading
    assert np.isnan(reading.value.service).all()
    assert "no durations" in reading.assumed[1]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (row() + row(steps="-5"), "'-5' is out of range.*line 2, column steps.*expected 0"),
        (row() + row(arrival="nan"), "'nan' is not a number.*line 2, column arrival"),
        (row() + row(gpus="0"), "'0' is out of range.*line 2, column gpus"),
        (row() + row(gpus="2.5"), "'2.5' is not a whole number.*column gpus"),
        (row() + row(slo="soon"), "'soon' is not a number.*column slo"),
        (row() + SEVEN.format(arrival="1"), "7 cells between tabs.*line 2.*10 as in the first row"),
        (row() + "\t" + row().split("\t", 1)[1], "'' is empty.*line 2, column model"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(BadInput) as found:
        opened(tmp_path, content)
    place = f"{found.value} "
    for part in complaint.split(".*"):
        assert part in place


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda table: table["k80"].update({"ResNet": {"null": 1}}), "'ResNet' is no model"),
        (lambda table: table["k80"][ONE].update({"null": -1}), "-1 is no speed"),
        (lambda table: table["k80"][ONE].update({"null": "fast"}), "'fast' is no speed"),
        (lambda table: table["k80"][ONE].update({TWO: [1]}), "are no speeds of two"),
        (lambda table: table["v100"].update({TWO: {ONE: [1, 1]}}), "no speed alone"),
        (lambda table: table.update({"t4": []}), "is not an object with entries"),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, change: Callable[[Any], None], complaint: str) -> None:
    table = json.loads(json.dumps(TABLE))
    change(table)
    with pytest.raises(BadInput, match=complaint):
        opened(tmp_path, row(), table)


def test_types_match_by_prefix(tmp_path: Path) -> None:
    (tmp_path / "speeds.json").write_text(json.dumps(TABLE))
    speeds = open_profiles(tmp_path / "speeds.json")
    assert [speeds.kind_of(device) for device in ("v100-16g", "v100", "v1000", "t4-16g")] == [
        *("v100", "v100"),
        *(None, None),
    ]


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("physical_cluster/max_min_fairness.trace", 96),
        ("physical_cluster/minimize_makespan.trace", 100),
        ("msr_seed0/ed69ec.trace.gz", 951),
        ("msr_seed0/103959.trace.gz", 986),
    ],
)
def test_published_traces(shared_data: Path, file: str, rows: int) -> None:
    folder = shared_data / "cluster/gavel"
    side = folder / "simulation_throughputs.json.gz"
    found = open_file(folder / file, "auto", WorkloadOptions(extra=str(side)))
    assert (found.reader.format, len(found.reading.value)) == ("gavel", rows)
    assert np.isfinite(found.reading.value.service).any()
