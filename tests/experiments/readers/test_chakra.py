"""Chakra execution traces in all their forms: by hand, the published samples, and what PyTorch
writes here.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.profiling.capture import trace
from experiments.readers.base import Reading, open_file
from tests.experiments.readers.chakra_traces import COMPUTE, as_graph, delimited, node, number, training
from tests.experiments.readers.test_kineto_round_trip import bytes_of, source, training_loop


def read(path: Path, content: bytes | None = None, format: str = "auto") -> Reading:
    if content is not None:
        path.write_bytes(content)
    opened = open_file(path, format, WorkloadOptions())
    assert opened.reader.format == "chakra"
    return opened.reading


def test_nodes_are_ops_with_the_device_s_times(tmp_path: Path) -> None:
    step = read(tmp_path / "chakra.0.et", training()).value
    assert (step.ops.seconds * 1e6).round().tolist() == [0, 40, 10, 60, 30, 5]
    assert step.seconds == pytest.approx(145e-6)
    assert (step.timing, step.timed_on) == ("trace", "device (from the trace)")
    assert [step.phase_of(op) for op in range(6)] == ["forward"] * 3 + ["backward"] * 3


def test_storages_are_tensors_with_lifetimes(tmp_path: Path) -> None:
    step = read(tmp_path / "chakra.0.et", training()).value
    assert step.tensors.bytes.tolist() == [2000, 4000, 1000, 800, 4000]
    # weights and input were read before anything wrote them; the gradient is reduced while the hidden tensor
    # waits
    assert step.persistent_bytes == 6000
    assert step.live_bytes.tolist() == [6000, 7000, 7800, 10_800, 10_800, 6800]


def test_communication_is_told_with_its_collective_and_bytes(tmp_path: Path) -> None:
    facts = read(tmp_path / "chakra.0.et", training()).value.facts
    assert facts["communication"] == [
        {"op": 4, "collective": "all_reduce", "bytes": 4000, "seconds": pytest.approx(30e-6)},
        {"op": 5, "collective": "send", "bytes": 800, "seconds": pytest.approx(5e-6)},
    ]
    assert (facts["communication_nodes"], facts["communication_bytes"]) == (2, 4800)
    assert facts["schema"] == "1.0.1"


def test_the_graph_form_is_put_in_the_order_of_its_data(tmp_path: Path) -> None:
    reading = read(tmp_path / "chakra.json", as_graph())
    step = reading.value
    assert [name.rsplit("#")[1] for name in step.ops.name] == ["1", "2", "3", "4", "5", "6"]
    assert step.seconds == pytest.approx(145e-6)
    assert [row["collective"] for row in step.facts["communication"]] == ["all_reduce", "send"]
    assert "no tensors: memory is unknown" in reading.warnings


def test_the_published_samples_agree_with_each_other(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "parallel" / "chakra"
    first = read(folder / "feeder_tests_trace.tar.gz").value
    with tarfile.open(folder / "json_trace.tar.gz") as archive:
        member = archive.extractfile("jsonData/chakra.0.json")
        assert member is not None
        second = read(tmp_path / "chakra.0.json", member.read()).value
    assert len(first.ops) == len(second.ops) == 3664
    # microseconds of the nodes that are not on the host, added up from the file by hand
    assert first.seconds == pytest.approx(0.329543) == second.seconds
    assert first.facts["communication_nodes"] == 7
    assert {row["collective"] for row in first.facts["communication"]} == {"broadcast", "all_reduce"}
    # ResNet-50 in float: 25,557,032 gradients are reduced, and 53,120 statistics and 53 counts broadcast
    reduced = sum(r["bytes"] for r in first.facts["communication"] if r["collective"] == "all_reduce")
    assert reduced == 25_557_032 * 4
    assert first.facts["communication_bytes"] == reduced + 53_120 * 4 + 53 * 8


def test_what_the_jsonizer_writes_is_read_too(tmp_path: Path) -> None:
    message = '{"attr": [{"name": "schema", "stringVal": "1.0.1"}]}'
    row = '{"id": "%d", "name": "gemm", "type": "COMP_NODE", "dataDeps": %s, "durationMicros": "%d"}'
    content = message + row % (2, '["1"]', 40) + "\n" + row % (1, "[]", 10)
    step = read(tmp_path / "jsonized.json", content.encode()).value
    assert step.ops.name == ("gemm #1", "gemm #2")
    assert (step.ops.seconds * 1e6).round().tolist() == [10, 40]


def test_an_execution_trace_of_pytorch_agrees_with_the_captured_step(tmp_path: Path) -> None:
    """It names tensors, so this is no inference: every kind of tensor that matters has the captured bytes."""
    from torch.profiler import ExecutionTraceObserver

    traced = trace(source("gpt2-tiny", "adamw", {"batch": 2}))
    step = training_loop(traced)
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    found = read(tmp_path / "et.json")
    for kind in ("parameter", "gradient"):
        assert bytes_of(found.value, kind) == bytes_of(traced.step, kind)
    # It does not say that the loop holds the logits (2 x 64 tokens, 256 words) while the backward pass runs.
    held = 2 * 64 * 256 * 4
    assert traced.step.live_peak - held <= found.value.live_peak * 1.001
    assert found.value.live_peak <= traced.step.live_peak
    assert found.value.flops == traced.step.flops
    assert found.value.timing == "none"
    assert "no times: ops are timed by roofline" in found.warnings


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (training()[:-3], "is cut or broken"),
        (delimited(b"\xff\xff\xff"), "message 1 at byte"),
        (delimited(number(1, 1), number(1, 1)), "a node id appears twice"),
        (
            delimited(node(1, "a", COMPUTE, 1, after=[2]), node(2, "b", COMPUTE, 1, after=[1])),
            "depends on itself",
        ),
        (delimited(node(1, "a", COMPUTE, 2**60)), "message 1 at byte"),
        (delimited(), "no nodes"),
        (b'{"workload_graph": {}}', "workload_graph is no list"),
        (b'{"workload_graph": [{"Id": -1, "NodeType": 4}]}', "node 0: Id = -1"),
        (b'{"workload_graph": [{"Id": 1, "NodeType": 4, "runtime": -2}]}', "node 0: duration -2"),
        (b'{"workload_graph": [{"Id": 1, "NodeType": 4, "data_deps": [1]}]}', "node 1 depends on itself"),
        (b'{"attr": [{"name": "schema"}]}{"id": "1", "type": "NO_NODE"}', "message 1: type = 'NO_NODE'"),
        (b'{"attr": [{"name": "schema"}]}{"id": ', "not valid JSON at offset 30"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_trace_is_refused_at_its_node(tmp_path: Path, content: bytes, complaint: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path / "bad.et", content, "chakra")
    assert complaint in str(refused.value)


def test_protobuf_is_imported_for_protobuf_alone(tmp_path: Path) -> None:
    (tmp_path / "chakra.json").write_bytes(as_graph())
    (tmp_path / "chakra.et").write_bytes(training())
    code = (
        "import sys; from pathlib import Path\n"
        "from experiments.core.options import WorkloadOptions\n"
        "from experiments.readers.base import open_file\n"
        "for name in ('chakra.json', 'chakra.et'):\n"
        "    open_file(Path(sys.argv[1]) / name, 'auto', WorkloadOptions())\n"
        "    print('google.protobuf' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["False False", "True False"]
