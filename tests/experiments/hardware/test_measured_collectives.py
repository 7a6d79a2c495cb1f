"""A link that made the times is found again; real tables are read; what is no table is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.hardware import Link, resolve
from experiments.hardware.collectives import ring_all_reduce
from experiments.hardware.measured_collectives import Measurement, fit, read_measurements
from tests.experiments.hardware.closed_forms import pairwise_all_to_all

LINK = Link("true", 50e9, 4e-6, True, "test")
OUTPUT = """# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824
# Collective test starting: all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.00   26.21   45.87      0    41.00   25.57   44.75      0
  1073741824     268435456     float     sum      -1   8000.0  134.22  234.88      0   8010.0  134.05  234.59      0
# Avg bus bandwidth    : 140.0
"""


def test_the_link_that_made_the_times_is_found() -> None:
    rows = [
        Measurement(kind, size, closed(LINK, 8, size))
        for kind, closed in (("all_reduce", ring_all_reduce), ("all_to_all", pairwise_all_to_all))
        for size in (1e3, 1e5, 1e7, 1e9)
    ]
    found = fit(rows, 8)
    assert found.latency == pytest.approx(4e-6)
    assert found.bandwidth == pytest.approx(50e9)
    assert found.largest_error < 1e-9


def test_what_nccl_tests_print_is_read(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(OUTPUT)
    rows = read_measurements(tmp_path / "out.txt")
    assert [(row.kind, row.size) for row in rows] == [("all_reduce", 2**20), ("all_reduce", 2**30)]
    assert [row.seconds for row in rows] == pytest.approx([40e-6, 8e-3])
    (tmp_path / "out.txt").write_text(OUTPUT.replace("all_reduce_perf", "alltoall_perf"))
    assert {row.kind for row in read_measurements(tmp_path / "out.txt")} == {"all_to_all"}


def test_measured_collectives_of_sixteen_devices(shared_data: Path) -> None:
    rows = read_measurements(shared_data / "parallel/nnscaler_comm_mi200/intra_16.json")
    assert {row.kind for row in rows} == {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}
    found = fit([row for row in rows if row.kind == "all_reduce"], 16)
    assert found.bandwidth == pytest.approx(187e9, rel=0.1) and found.median_error < 0.25


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"gossip": [[1], [1]]}',
        '{"all reduce": [[1, 2], [1]]}',
        '{"all reduce": [[1, 2], [0, 1]]}',
        "no rows",
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "table").write_text(content)
    with pytest.raises(BadInput):
        read_measurements(tmp_path / "table")


def test_a_link_may_be_described_in_the_cluster() -> None:
    row = {
        "nodes": 2,
        "devices_per_node": 4,
        "device": "a100-80g",
        "network": {"bandwidth": 1e9, "latency": 1e-5},
    }
    assert resolve({"cluster": row}).network.bandwidth == 1e9
    json.dumps(resolve({"cluster": row}).to_json())
    for wrong in (
        {"bandwidth": 0, "latency": 0},
        {"bandwidth": 1e9},
        {"bandwidth": 1e9, "latency": 0, "color": 1},
    ):
        with pytest.raises(BadInput, match="network"):
            resolve({"cluster": {**row, "network": wrong}})
