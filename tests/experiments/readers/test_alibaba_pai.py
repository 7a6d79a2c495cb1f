"""Alibaba's GPU trace of 2020: tables without headers joined to jobs, and the lists of its simulator."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file

#: Two workers on halves and a server without GPU; two times two whole GPUs; a CPU job; one still running.
TASKS = (
    "b,worker,2.0,Terminated,110.0,210.0,400.0,29.296875,50.0,T4\n"
    "b,ps,1.0,Terminated,100.0,215.0,600.0,29.296875,0.0,\n"
    "a,tensorflow,2.0,Failed,50.0,60.0,800.0,10.0,200.0,V100\n"
    "c,evaluator,1.0,Terminated,1.0,2.0,100.0,1.0,,\n"
    "d,worker,1.0,Running,300.0,,600.0,10.0,100.0,MISC\n"
)
JOBS = (
    "a,i-a,anna,Failed,40.0,60.0\n"
    "b,i-b,ben,Terminated,90.0,215.0\n"
    "c,i-c,ben,Terminated,0.0,2.0\n"
    "d,i-d,anna,Running,299.0,\n"
)
GROUPS = "i-a,anna,V100,g1,bert\ni-b,ben,,g2,\n"
INSTANCES = (
    "b,worker,x0,w0,i-b,Terminated,112.0,205.0,m1\n"
    "b,worker,x1,w1,i-b,Terminated,115.0,208.0,m2\n"
    "b,ps,x2,w2,i-b,Terminated,101.0,214.0,m2\n"
    "a,tensorflow,x3,w3,i-a,Failed,50.0,59.0,m3\n"
    "d,worker,x4,w4,i-d,Running,300.0,,m3\n"
)
HEADER = "job_name,inst_id,user,status,start_time,end_time\n"
LIST = "job_id,user,num_inst,num_cpu,num_gpu,submit_time,duration,gpu_type\n"


def opened(folder: Path, **tables: str) -> Opened:
    """One file as it is, several as a tar.gz with what its download has next to them."""
    if len(tables) == 1:
        ((name, content),) = tables.items()
        file = folder / f"{name}.csv"
        file.write_text(content)
        return open_file(file, "auto", WorkloadOptions())
    file = folder / "pai.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name, content in tables.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    return open_file(file, "auto", WorkloadOptions())


def test_tasks_alone_tell_who_wants_which_part_of_what(tmp_path: Path) -> None:
    found = opened(tmp_path, pai_task_table=TASKS)
    trace = found.reading.value
    assert found.reader.format == "alibaba-pai"
    assert (trace.job, trace.gpus.tolist()) == (("a", "b"), [4, 2])
    assert trace.traits["gpu_share"].tolist() == [1.0, 0.5]
    assert trace.traits["cpu"].tolist() == [16.0, 14.0]
    assert trace.traits["memory"].tolist() == [20 * 2**30, 3 * 30000 * 2**20]
    assert (trace.submit.tolist(), trace.service.tolist()) == ([50, 110], [10, 100])
    assert "2 jobs left out: 1 ask for no GPU, 1 have not ended" in found.reading.assumed
    assert trace.facts["left out"] == {"ask for no GPU": 1, "have not ended": 1}
    assert any(text.startswith("no table of jobs") for text in found.reading.assumed)


def test_jobs_groups_and_instances_add_what_they_know(tmp_path: Path) -> None:
    tables = {
        "t/pai_task_table__csv": TASKS,
        "t/pai_job_table__csv": JOBS,
        "t/pai_group_tag_table__csv": GROUPS,
    }
    found = opened(tmp_path, **tables, **{"t/pai_job_table__header": HEADER, "README__md": "what it is"})
    trace = found.reading.value
    assert (trace.submit.tolist(), trace.service.tolist()) == ([40, 90], [10, 100])
    assert trace.tenant == trace.traits["user"] == ("anna", "ben")
    assert (trace.traits["group"], trace.traits["gpu_type"]) == (("g1", "g2"), ("V100", ""))
    assert trace.model == ("bert", "")
    with_instances = opened(tmp_path, **tables, **{"t/pai_instance_table__csv": INSTANCES}).reading
    assert with_instances.value.service.tolist() == [9, 208 - 112]
    assert any("instances with GPUs" in text for text in with_instances.assumed)


def test_jobs_that_the_table_of_jobs_does_not_have_are_left_out(tmp_path: Path) -> None:
    found = opened(tmp_path, pai_task_table__csv=TASKS, pai_job_table__csv=JOBS.replace("a,i-a", "z,i-z", 1))
    assert found.reading.value.job == ("b",)
    assert found.reading.value.facts["left out"]["have no time of submission"] == 1


def test_rows_that_belong_to_nothing_are_counted(tmp_path: Path) -> None:
    found = opened(
        tmp_path,
        pai_task_table__csv=TASKS,
        pai_job_table__csv=JOBS + "z,i-z,zoe,Failed,1.0,2.0\n",
        pai_instance_table__csv=INSTANCES + "z,worker,x9,w9,i-z,Failed,1.0,2.0,m1\n",
    ).reading
    assert "1 jobs of the table of jobs have no task, and are left out" in found.assumed
    assert "1 instances are of no task of the table of tasks, and count for nothing" in found.assumed


def test_unlike_parts_in_one_job_are_said(tmp_path: Path) -> None:
    more = TASKS + "b,chief,1.0,Terminated,110.0,211.0,400.0,1.0,25.0,T4\n"
    found = opened(tmp_path, pai_task_table=more).reading
    assert (found.value.gpus.tolist(), found.value.traits["gpu_share"].tolist()) == ([4, 3], [1.0, 0.5])
    assert "1 jobs want unlike parts of GPUs: the largest stands for all of theirs" in found.assumed


def test_a_list_of_the_simulator(tmp_path: Path) -> None:
    found = opened(tmp_path, jobs=LIST + "7,u,2,4,0.5,3,60,T4\n8,v,1,4,2,1,30,V100\n9,v,1,4,0,1,30,\n")
    trace = found.reading.value
    assert found.reader.format == "alibaba-pai"
    assert (trace.job, trace.gpus.tolist(), trace.submit.tolist()) == (("8", "7"), [2, 2], [1, 3])
    assert trace.traits["gpu_share"].tolist() == [1.0, 0.5]
    assert trace.traits["cpu"].tolist() == [4, 8]
    assert trace.traits["gpu_type"] == ("", "")
    assert trace.facts["left out"] == {"ask for no GPU": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("e,w,1.0,Failed,5.0,4.0,1,1,50,T4", r"line 6, column end_time: '4\.0' is before the task starts"),
        ("e,w,1.5,Failed,5.0,6.0,1,1,50,T4", r"line 6, column inst_num: '1\.5' is not a whole number"),
        ("e,w,0,Failed,5.0,6.0,1,1,50,T4", "line 6, column inst_num: '0' is out of range"),
        ("e,w,1,Failed,-5,6.0,1,1,50,T4", "line 6, column start_time: '-5' is out of range"),
        ("e,w,1,Failed,5.0,6.0,1,1,nan,T4", "line 6, column plan_gpu: 'nan' is not a number"),
        (
            "b,ps,1,Failed,5.0,6.0,1,1,50,T4",
            r"line 6, column task_name: 'ps' appears twice in its job \(first",
        ),
        ("e,w,1,Failed,5.0,6.0,1,1,50", "line 6.*9 cells"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        opened(tmp_path, pai_task_table=TASKS + row + "\n")


def test_what_cannot_be_joined_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has jobs and no table of tasks"):
        opened(tmp_path, pai_job_table=JOBS)
    with pytest.raises(BadInput, match="is a second table of tasks"):
        opened(tmp_path, one__csv=TASKS, two__csv=TASKS)
    with pytest.raises(BadInput, match="appears twice"):
        opened(tmp_path, one__csv=TASKS, two__csv=JOBS + JOBS)
    with pytest.raises(BadInput, match="has no job to schedule: 1 jobs left out: 1 ask for no GPU"):
        opened(tmp_path, pai_task_table="c,evaluator,1.0,Terminated,1.0,2.0,100.0,1.0,,\n")


def test_a_header_line_may_be_there(tmp_path: Path) -> None:
    names = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    assert np.array_equal(
        opened(tmp_path, pai_task_table=names + TASKS).reading.value.submit,
        opened(tmp_path, pai_task_table=TASKS).reading.value.submit,
    )
