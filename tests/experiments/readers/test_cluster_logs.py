"""Logs of production clusters: Helios' tables and Philly's attempts, with all that they lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file

HEADER = (
    "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)
LATER = "8,ua,vcx,train,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:42:27,2020-06-09 18:45:36,189,60\n"
FIRST = "7,ub,vcy,eval,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n"


def opened(folder: Path, content: str) -> Opened:
    file = folder / "cluster_log.csv"
    file.write_text(content)
    return open_file(file, "auto", WorkloadOptions())


class TestHelios:
    def test_the_clock_starts_at_the_first_submission(self, tmp_path: Path) -> None:
        found = opened(tmp_path, HEADER + LATER + FIRST)
        trace = found.reading.value
        assert found.reader.format == "helios"
        assert (trace.job, trace.gpus.tolist(), trace.submit.tolist()) == (("7", "8"), [1, 4], [0, 26])
        assert trace.service.tolist() == [36848, 189]
        assert trace.tenant == ("vcy", "vcx")
        assert (trace.traits["user"], trace.traits["name"]) == (("ub", "ua"), ("eval", "train"))
        assert trace.traits["cpu"].tolist() == [1, 16]
        assert "rows were not in the order of submission (1 go back)" in found.reading.assumed

    def test_what_is_missing_is_left_out_and_counted(self, tmp_path: Path) -> None:
        time = "2020-06-09 18:41:27"
        rows = [
            f"1,u,v,n,0,1,1,COMPLETED,{time},{time},{time},0,0",
            f"2,u,v,n,,1,1,COMPLETED,{time},{time},{time},0,0",
            f"3,u,v,n,nan,1,1,COMPLETED,{time},{time},{time},0,0",
            f"4,u,v,n,1,1,1,CANCELLED,{time},None,{time},,0",
            f"5,u,v,n,1,1,1,RUNNING,{time},{time},,,0",
            f"6,u,v,n,1,,1,COMPLETED,{time},{time},,77,0",
        ]
        found = opened(tmp_path, HEADER + FIRST + "\n".join(rows) + "\n").reading
        assert found.value.job == ("7", "6")
        assert found.value.service.tolist() == [36848, 77]
        assert np.isnan(found.value.traits["cpu"]).tolist() == [False, True]
        reasons = "2 do not tell their GPUs, 1 ask for no GPU, 1 never started, 1 have not ended"
        assert f"5 jobs left out: {reasons}" in found.assumed

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (
                "2020-06-09 18:45:36",
                "2020-06-09 18:42:26",
                "line 2, column end_time: .* is before the job starts",
            ),
            ("2020-06-09 18:41:27", "yesterday", "line 2, column submit_time: 'yesterday' is not a time"),
            ("2020-06-09 18:41:27", "2020-13-09 18:41:27", "line 2, column submit_time: .* is not a time"),
            (",4,16,", ",2.5,16,", r"line 2, column gpu_num: '2\.5' is not a whole number"),
            (",4,16,", ",-4,16,", "line 2, column gpu_num: '-4' is out of range"),
            ("8,ua", "7,ua", "column job_id: '7' appears twice"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, old: str, new: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            opened(tmp_path, HEADER + LATER.replace(old, new, 1) + FIRST)


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    servers = [{"ip": f"m{row}", "gpus": [f"gpu{gpu}" for gpu in range(n)]} for row, n in enumerate(gpus)]
    day = "2017-10-07 "
    return {
        "start_time": day + start if start else start,
        "end_time": day + end if end else end,
        "detail": servers,
    }


def job(
    name: str, *attempts: dict[str, Any], submitted: str | None = "2017-10-07 01:00:00"
) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ce2f4c",
    }


def philly(folder: Path, *jobs: Any) -> Opened:
    file = folder / "cluster_job_log"
    file.write_text(json.dumps(list(jobs)))
    return open_file(file, "auto", WorkloadOptions())


class TestPhilly:
    def test_all_attempts_count(self, tmp_path: Path) -> None:
        twice = job("b", attempt("01:10:00", "01:11:00", 8), attempt("01:12:00", "01:14:00", 4, 4))
        found = philly(tmp_path, twice, job("a", attempt("01:00:30", "01:00:40", 1)))
        trace = found.reading.value
        assert found.reader.format == "philly"
        assert (trace.job, trace.gpus.tolist(), trace.service.tolist()) == (("a", "b"), [1, 8], [10, 180])
        assert (trace.tenant, trace.traits["user"]) == (("ee9e8c",) * 2, ("ce2f4c",) * 2)
        assert trace.original["status"] == ("Pass", "Pass")

    def test_what_is_missing_is_left_out_and_counted(self, tmp_path: Path) -> None:
        found = philly(
            tmp_path,
            job("kept", attempt("01:00:00", None, 2), attempt("01:02:00", "01:03:00", 4)),
            job("empty"),
            job("running", attempt("01:00:00", "01:01:00", 1), attempt("01:02:00", None, 1)),
            job("timeless", attempt(None, "01:00:00", 1)),
            job("none", attempt("01:00:00", "01:01:00")),
            job("unsubmitted", attempt("01:00:00", "01:01:00", 1), submitted="None"),
        ).reading
        assert (found.value.job, found.value.service.tolist(), found.value.gpus.tolist()) == (
            ("kept",),
            [60],
            [4],
        )
        assert found.value.facts["left out"] == {
            "have no attempts": 1,
            "have no time of submission": 1,
            "have not ended": 1,
            "have no attempt with both times": 1,
            "had no GPU": 1,
        }
        assert "1 attempts without a start or an end count for nothing" in found.assumed
        assert "1 jobs had unlike numbers of GPUs: the largest counts" in found.assumed

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            (
                job("b", attempt("01:10:00", "01:09:00", 8)),
                r"job 2, attempt 1: end_time .* is before the attempt",
            ),
            (
                job("a", attempt("01:10:00", "01:19:00", 8)),
                r"job 2: jobid 'a' appears twice \(first as job 1\)",
            ),
            (job("b", attempt("1:10", "01:19:00", 8)), "job 2, attempt 1: start_time .* is not a time"),
            (job("b") | {"attempts": None}, "job 2: attempts is None"),
            (job("b") | {"jobid": 7}, "job 2: jobid is 7"),
            (job("b", {"detail": [{"gpus": 3}]}), "job 2, attempt 1: gpus is 3"),
            (7, "job 2: 7 is no job"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, entry: Any, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            philly(tmp_path, job("a", attempt("01:00:30", "01:00:40", 1)), entry)

    def test_a_log_of_nothing_says_why(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="has no job to schedule: 1 jobs left out: 1 have no attempts"):
            philly(tmp_path, job("empty"))
