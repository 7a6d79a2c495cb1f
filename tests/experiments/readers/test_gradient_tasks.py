"""Side files of gradient tasks: what is read, and every complaint with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.readers.archive import Member
from experiments.readers.job_profiles import open_profiles
from experiments.readers.job_profiles.gradient_tasks import PROFILES
from experiments.workloads.profiles.gradient_tasks import TaskTimes

HEADER = "model,tasks_per_round,sync_seconds,v100,k80\n"


def opened(tmp_path: Path, rows: str, header: str = HEADER) -> object:
    file = tmp_path / "tasks.csv"
    file.write_text(header + rows)
    return open_profiles(file)


def test_a_model_may_not_run_on_every_type(tmp_path: Path) -> None:
    found = opened(tmp_path, "bert,4,0.5,1.5,\nvgg16,2,0,1,3\n")
    assert found.models == {  # type: ignore[attr-defined]
        "bert": TaskTimes(4, 0.5, {"v100": 1.5}),
        "vgg16": TaskTimes(2, 0.0, {"v100": 1.0, "k80": 3.0}),
    }


@pytest.mark.parametrize(
    ("rows", "fragment"),
    [
        ("bert,0,0,1,1\n", "line 2, column tasks_per_round: '0' is out of range"),
        ("bert,2.5,0,1,1\n", "line 2, column tasks_per_round: '2.5' is not a whole number"),
        ("bert,2,-1,1,1\n", "line 2, column sync_seconds: '-1' is out of range"),
        ("bert,2,0,x,1\n", "line 2, column v100: 'x' is not a number"),
        ("bert,2,0,0,1\n", "line 2, column v100: '0' is out of range"),
        ("bert,2,0,1,1\nbert,2,0,1,1\n", "line 3, column model: 'bert' appears twice"),
        ("bert,2,0,,\n", "line 2, column model: 'bert' runs on no device type"),
    ],
)
def test_a_bad_side_file_is_refused_at_the_place(tmp_path: Path, rows: str, fragment: str) -> None:
    with pytest.raises(BadInput) as refused:
        opened(tmp_path, rows)
    assert fragment in str(refused.value)


def test_a_side_file_without_device_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no column of a device type"):
        opened(tmp_path, "bert,2,0\n", "model,tasks_per_round,sync_seconds\n")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    member = Member("tasks.csv", HEADER.encode() + tail)
    assert PROFILES.recognizes([member])
    try:
        tasks = PROFILES.read([member], "tasks.csv")
    except BadInput:
        return
    assert all(times.seconds for times in tasks.models.values())
