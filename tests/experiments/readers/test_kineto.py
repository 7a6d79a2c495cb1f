"""PyTorch profiler traces: hand-made ones with figures to work out, and real ones against the
captured step.
"""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Reading, open_file, timelines_of
from experiments.workloads.step import KINDS, Step
from tests.experiments.readers.kineto_traces import (
    BEFORE,
    HIDDEN,
    call,
    kernel,
    memory,
    note,
    on_a_cpu,
    on_a_gpu,
    trace,
)


def read(tmp_path: Path, content: bytes, name: str = "trace.json") -> Reading:
    path = tmp_path / name
    path.write_bytes(content)
    opened = open_file(path, "auto", WorkloadOptions())
    assert opened.reader.format == "kineto"
    return opened.reading


def named(step: Step, op: int) -> tuple[list[str], list[str]]:
    """Kinds of what an op reads and of what it writes."""
    kind = [KINDS[kind] for kind in step.tensors.kind]
    return [kind[tensor] for tensor in step.inputs[op]], [kind[tensor] for tensor in step.outputs[op]]


def test_kernels_give_their_time_to_the_op_that_launched_them(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_gpu()).value
    microseconds = dict(zip(step.ops.name, np.round(step.ops.seconds * 1e6, 6).tolist(), strict=True))
    assert microseconds == {
        "aten::t": 0.0,
        "aten::addmm": 100.0,
        "aten::relu": 20.0,
        "aten::sum": 10.0,
        "aten::threshold_backward": 30.0,
        "aten::mm": 120.0,
        "aten::sum.1": 15.0,
        "replayed": 5.0,
        "aten::_foreach_add_": 25.0,
    }
    assert step.timed_on == "Imaginary GPU"
    assert step.facts["device_seconds"] == pytest.approx(325e-6)
    assert step.facts["device_busy_seconds"] == pytest.approx(285e-6)  # 40 on the other stream were hidden
    assert (step.facts["streams"], step.facts["kernels_without_op"], step.facts["steps_in_trace"]) == (
        2,
        1,
        2,
    )


def test_phases_follow_autograd_and_the_optimizer(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_gpu()).value
    phases = [step.phase_of(op) for op in range(len(step.ops))]
    assert phases == ["forward"] * 4 + ["backward"] * 4 + ["optimizer"]
    assert step.facts["optimizer"] == "SGD"


def test_what_was_there_before_the_step_is_found(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_gpu()).value
    sizes: dict[str, list[int]] = {}
    for kind, size in zip(step.tensors.kind, step.tensors.bytes.tolist(), strict=True):
        sizes.setdefault(KINDS[kind], []).append(size)
    assert sizes == {
        "parameter": [131_072, 1_024],
        "gradient": [131_072, 1_024],
        "input": [32_768],
        "buffer": [4_096],
        "activation": [HIDDEN, HIDDEN, 512],
        "temporary": [HIDDEN],
    }
    assert step.persistent_bytes == BEFORE == step.facts["allocator_before_bytes"]
    # the sum's backward: the weight's and the bias's gradient beside the ReLU's; the loss is held, not used
    assert step.live_peak == BEFORE + HIDDEN + 131_072 + 1_024 == step.facts["allocator_peak_bytes"] - 512
    assert step.facts["parameters"] == 256 * 128 + 256


def test_ops_read_what_fits_their_shapes(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_gpu()).value
    assert named(step, 1) == (["parameter", "input", "parameter"], ["activation"])
    assert named(step, 2) == (["activation"], ["activation"])
    assert named(step, 4) == (["activation"], ["temporary"])  # the gradient of a sum is one number, expanded
    assert named(step, 5) == (["temporary", "input"], ["gradient"])
    assert sorted(named(step, 8)[0]) == ["gradient", "gradient", "parameter", "parameter"]
    assert step.ops.flops.tolist()[1] == 2 * 64 * 128 * 256


def test_on_a_cpu_times_add_up_to_the_outermost_calls(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_cpu()).value
    assert step.ops.name == ("aten::addmm", "aten::relu", "aten::mm")
    # 2 before the first op, 1 between, 2 after the last; each op takes what came before it
    assert (step.ops.seconds * 1e6).tolist() == pytest.approx([12, 5, 23])
    assert step.seconds == pytest.approx(40e-6)
    assert step.facts["seconds_between_ops"] == pytest.approx(5e-6)


def test_scratch_inside_an_op_is_its_workspace(tmp_path: Path) -> None:
    step = read(tmp_path, on_a_cpu()).value
    assert step.ops.workspace.tolist() == [64, 0, 0]
    # bias 64, batch 128 and weight 256 come from before; addmm: 512 + scratch, relu: two of 512, mm: 512 + 64
    before = 64 + 128 + 256 + 128
    assert step.persistent_bytes == before
    assert (step.live_bytes - before).tolist() == [576, 1024, 576]


def test_without_memory_events_or_shapes_it_says_so(tmp_path: Path) -> None:
    reading = read(tmp_path, on_a_cpu(memory_events=False, shapes=False))
    assert len(reading.value.tensors) == 0
    assert np.isnan(reading.value.ops.flops).all()
    assert [warning.split(":")[0] for warning in reading.warnings] == ["no memory events", "no shapes"]
    without_shapes = read(tmp_path, on_a_cpu(shapes=False)).value
    assert sorted(without_shapes.tensors.bytes.tolist()) == [64, 512, 512]


def test_a_free_without_its_allocation_is_a_tensor_from_before(tmp_path: Path) -> None:
    rows = [note("x", 0, 40), call("aten::relu", 2, 10), call("aten::relu", 20, 10)]
    rows += [memory(3, 1, 256, 256, cuda=False), memory(25, 77, -1000, 0, cuda=False)]
    reading = read(tmp_path, trace(rows))
    assert sorted(reading.value.tensors.bytes.tolist()) == [256, 1000]
    assert "1 tensors were freed that were allocated before the trace began" in reading.warnings


def test_a_packed_trace_is_read(tmp_path: Path) -> None:
    step = read(tmp_path, gzip.compress(on_a_cpu()), "trace.pt.trace.json.gz").value
    assert len(step.ops) == 3


@pytest.mark.parametrize(
    ("event", "complaint"),
    [
        ({"ph": "X", "cat": "cpu_op", "name": "a", "ts": -1, "dur": 1}, "event 0: ts = -1"),
        ({"ph": "X", "cat": "cpu_op", "name": "a", "ts": "0", "dur": 1}, "event 0: ts = '0'"),
        ({"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1e300, "dur": 1}, "event 0: ts"),
        ({"ph": "X", "cat": "cpu_op", "name": 7, "ts": 0, "dur": 1}, "event 0: name = 7"),
        (memory(0, 1, 2**60, 0), "event 0: Bytes"),
        ({"ph": "M", "name": "process_name"}, "no operators"),
    ],
)
def test_a_bad_trace_is_refused_at_its_event(tmp_path: Path, event: object, complaint: str) -> None:
    content = json.dumps({"schemaVersion": 1, "traceEvents": [event]}).encode()
    with pytest.raises(BadInput, match=r"trace\.json") as refused:
        read(tmp_path, content)
    assert complaint in str(refused.value)


def test_a_kernel_counts_in_the_step_that_launched_it(tmp_path: Path) -> None:
    """The device runs behind: the old step's kernel runs in the new one. An extension launches one from no
    operator.
    """
    content = trace(
        note("ProfilerStep#1", 0, 100),
        call("aten::add", 10, 20, dims=[[4], [4]], **{"External id": 1}),
        note("ProfilerStep#2", 100, 100),
        call("aten::mul", 110, 20, dims=[[4], [4]], **{"External id": 2}),
        kernel("late", 115, 50, **{"External id": 1}),
        kernel("mul", 165, 7, **{"External id": 2}),
        {**note("fused attention", 140, 10), "args": {"External id": 3}},
        kernel("attention", 260, 9, **{"External id": 3}),
    )
    step = read(tmp_path, content).value
    assert step.ops.name == ("aten::mul", "attention")
    assert (step.ops.seconds * 1e6).tolist() == pytest.approx([7, 9])


def test_an_archive_of_ranks_is_the_step_of_the_first_and_the_profile_of_all(tmp_path: Path) -> None:
    """License files between them are none."""
    path = tmp_path / "ranks.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for rank in (1, 0):
            archive.writestr(f"rank{rank}.json", trace(call("aten::mm", 0, 10 + rank)))
        archive.writestr("LICENSE", "MIT")
    opened = open_file(path, "auto", WorkloadOptions())
    assert opened.reading.value.seconds == pytest.approx(10e-6)
    assert "the step is that of rank0, one of 2 traces in ranks.zip" in opened.reading.assumed
    assert [len(one.calls) for one in timelines_of(path, "kineto")] == [1, 1]
    assert timelines_of(path, "jobs-csv") == ()
