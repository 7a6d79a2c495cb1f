"""Workloads of Pollux' simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file
from experiments.workloads.jobs import JobTrace

HEADER = "name,time,application,num_replicas,batch_size\n"


def opened(folder: Path, rows: str, header: str = HEADER) -> Opened:
    file = folder / "workload.csv"
    file.write_text(header + rows)
    return open_file(file, "auto", WorkloadOptions())


def test_jobs_are_sorted_and_durations_are_not_told(tmp_path: Path) -> None:
    found = opened(tmp_path, "ncf-1,135,ncf,1,32768\ncifar10-0,107,cifar10,6,2048\n")
    trace: JobTrace = found.reading.value
    assert found.reader.format == "pollux"
    assert (trace.job, trace.model) == (("cifar10-0", "ncf-1"), ("cifar10", "ncf"))
    assert (trace.submit.tolist(), trace.gpus.tolist()) == ([107, 135], [6, 1])
    assert trace.traits["batch"].tolist() == [2048, 32768]
    assert np.isnan(trace.service).all()
    assert np.isnan(trace.deadline).all()
    assert found.reading.assumed[-1] == "no durations: a job trains its application to its end"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("a,0,,1,8", "line 2, column application"),
        ("a,0,ncf,0,8", "line 2, column num_replicas"),
        ("a,0,ncf,1.5,8", "line 2, column num_replicas"),
        ("a,-1,ncf,1,8", "line 2, column time"),
        ("a,nan,ncf,1,8", "line 2, column time"),
        ("a,0,ncf,1,0", "line 2, column batch_size"),
        ("a,0,ncf,1,", "line 2, column batch_size"),
        (",0,ncf,1,8", "line 2, column name"),
        ("a,0,ncf,1,8\na,1,ncf,1,8", "line 3, column name"),
    ],
)
def test_bad_cells_are_named(tmp_path: Path, row: str, complaint: str) -> None:
    with pytest.raises(BadInput) as error:
        opened(tmp_path, row + "\n")
    assert complaint in str(error.value)


def test_the_published_workloads(shared_data: Path) -> None:
    files = sorted((shared_data / "cluster/pollux").glob("workloads*/*.csv"))
    assert files
    for file in files:
        found = open_file(file, "auto", WorkloadOptions())
        assert found.reader.format == "pollux"
        assert len(found.reading.value) == len(file.read_text().splitlines()) - 1
