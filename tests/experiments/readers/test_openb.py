"""Pods and node lists of Alibaba's openb traces, and the lab's own node lists."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file
from experiments.readers.node_list import NodeList, parse_node_list, read_node_list

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def opened(folder: Path, content: str) -> Opened:
    file = folder / "pods.csv.gz"
    file.write_bytes(gzip.compress(content.encode()))
    return open_file(file, "auto", WorkloadOptions())


class TestPods:
    def test_units_shares_types_and_times(self, tmp_path: Path) -> None:
        rows = "b,6500,1024,1,460,T4|P100,LS,10,100,20\na,4000,2048,0,0,,BE,5,,\n"
        found = opened(tmp_path, PODS + rows)
        trace = found.reading.value
        assert found.reader.format == "openb"
        assert (trace.job, trace.gpus.tolist()) == (("a", "b"), [0, 1])
        assert trace.traits["gpu_share"].tolist() == [1, 0.46]
        assert trace.traits["cpu"].tolist() == [4, 6.5]
        assert trace.traits["memory"].tolist() == [2**31, 2**30]
        assert trace.traits["gpu_type"] == ("", "T4|P100")
        assert trace.tenant == ("BE", "LS")
        assert (trace.submit.tolist(), trace.service.tolist()) == ([5, 10], [95, 80])
        assert "1 pods without an end run until the last end in the file" in found.reading.assumed

    def test_a_file_without_times_says_what_it_assumed(self, tmp_path: Path) -> None:
        found = opened(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,500\n")
        assert "the file has no times: all pods come at 0 s and run 3600 s" in found.reading.assumed

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("a,1,1,1.5,500,,,0,1,0", r"line 2, column num_gpu: '1\.5' is not a whole number"),
            ("a,1,1,1,1001,,,0,1,0", "line 2, column gpu_milli: '1001' is out of range .*0 to 1000"),
            ("a,1,1,1,0,,,0,1,0", "line 2, column gpu_milli: '0' is no part of a GPU"),
            ("a,-1,1,1,10,,,0,1,0", "line 2, column cpu_milli: '-1' is out of range"),
            ("a,1,nan,1,10,,,0,1,0", "line 2, column memory_mib: 'nan' is not a number"),
            ("a,1,1,1,10,,,5,1,5", "line 2, column deletion_time: '1' is before the pod starts"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, row: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            opened(tmp_path, PODS + row + "\n")


def test_machines_of_the_pai_trace_have_no_header_line() -> None:
    rows = "82e5,T4,96,512,2\nf00d,CPU,64,256.0,0\n"
    for text in (rows, "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n" + rows):
        found = parsed(text)
        assert (found.name, found.type) == (("82e5", "f00d"), ("T4", "CPU"))
        assert (found.gpus.tolist(), found.cpus.tolist()) == ([2, 0], [96, 64])
        assert found.memory.tolist() == [512 * 2**30, 256 * 2**30]


def parsed(text: str) -> NodeList:
    return parse_node_list(text.encode(), "nodes.csv")


class TestNodes:
    def test_openb(self) -> None:
        found = parsed(NODES + "x,96500,1024,8,G2\ny,8000,2048,0,\n")
        assert (found.name, found.gpus.tolist(), found.type) == (("x", "y"), [8, 0], ("G2", ""))
        assert (found.cpus.tolist(), found.memory.tolist()) == ([96.5, 8], [2**30, 2**31])

    def test_own_columns_without_hosts(self) -> None:
        found = parsed("name,gpus,type\nx,4,t4-16g\n")
        assert found.cpus.tolist() == found.memory.tolist() == [float("inf")]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (NODES + "x,1,1,2.5,G2\n", r"nodes.csv, line 2, column gpu: '2\.5' is not a whole number"),
            (NODES + "x,1,1,2,\n", "line 2, column model: '' names no type of devices"),
            (NODES + "x,1,1,2,G2\nx,1,1,2,G2\n", "line 3, column sn: 'x' appears twice"),
            ("name,gpus,type,cpus\nx,1,t4,-4\n", "line 2, column cpus: '-4' is out of range"),
            ("name,gpus\nx,1\n", "line 1: column 'type' is missing from name, gpus"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str, message: str) -> None:
        with pytest.raises(BadInput, match=message):
            parsed(text)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match=r"none\.csv: No such file"):
            read_node_list(tmp_path / "none.csv")


def test_the_cluster_of_the_traces(shared_data: Path) -> None:
    found = read_node_list(shared_data / "cluster/openb_fgd/openb_node_list_gpu_node.csv.gz")
    assert (len(found.name), found.gpus.sum()) == (1213, 6212)
