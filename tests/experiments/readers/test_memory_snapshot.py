"""Memory snapshots of the CUDA allocator: figures by hand, torch's own converter, and pickles that are more
than data.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers import plain_pickle
from experiments.readers.base import Reading, open_file
from experiments.workloads.step import KINDS, Step
from tests.experiments.readers.snapshots import event, pickled, segment, training


def read(tmp_path: Path, content: bytes, format: str = "auto") -> Reading:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    opened = open_file(path, format, WorkloadOptions())
    assert opened.reader.format == "memory-snapshot"
    return opened.reading


def in_use(step: Step) -> list[int]:
    return [int(value) for value in step.live_bytes]


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_the_peak_is_what_a_hand_finds(tmp_path: Path, protocol: int) -> None:
    step = read(tmp_path, pickled(training(), protocol)).value
    # free 200, x, y, g, free x, free g, the end; what an op frees is in use while it runs
    assert in_use(step) == [1200, 1600, 2000, 3000, 3000, 2400, 1400]
    assert step.live_peak == 3000 == step.facts["peak_bytes"]
    assert step.persistent_bytes == 1000
    assert [step.phase_of(op) for op in range(4)] == ["forward", "forward", "forward", "backward"]
    assert step.phase_of(5) == "optimizer"


def test_ops_are_named_by_the_frame_that_tells_something(tmp_path: Path) -> None:
    step = read(tmp_path, pickled(training())).value
    assert step.ops.name[1] == "1: alloc forward (model.py:12)"
    assert step.ops.name[-1] == "6: snapshot"
    assert step.ops.target == (
        "free_completed",
        "alloc",
        "alloc",
        "alloc",
        "free_completed",
        "free_completed",
        "snapshot",
    )


def test_the_json_form_is_the_same(tmp_path: Path) -> None:
    first = read(tmp_path, pickled(training())).value
    second = read(tmp_path, json.dumps(training()).encode()).value
    assert in_use(first) == in_use(second)
    assert first.facts == second.facts


def test_segments_are_facts(tmp_path: Path) -> None:
    facts = read(tmp_path, pickled(training())).value.facts
    assert (facts["segments"], facts["reserved_bytes"], facts["peak_reserved_bytes"]) == (2, 6144, 6144)
    assert (facts["active_bytes_at_end"], facts["rounding_bytes_at_end"]) == (1024 + 512, 24 + 112)
    assert facts["largest_free_block"] == 2560
    assert facts["one_op_per_event"]


def test_times_are_unknown_unless_events_have_them(tmp_path: Path) -> None:
    silent = read(tmp_path, pickled(training())).value
    assert silent.timing == "none"
    assert np.isnan(silent.ops.seconds).all()
    clocked = read(tmp_path, pickled(training(clock=True))).value
    # events 1, 3, 4, 5, 7 and 9 of ten, 10 microseconds apart
    assert clocked.timing == "trace"
    assert (clocked.ops.seconds * 1e6).round().tolist() == [20, 10, 10, 20, 20, 0, 0]


def test_a_snapshot_without_history_is_what_was_in_use(tmp_path: Path) -> None:
    reading = read(tmp_path, pickled({**training(), "device_traces": [[]]}))
    assert reading.value.ops.name == ("0: snapshot",)
    assert in_use(reading.value) == [1400]
    assert "no history" in reading.warnings[0]


def test_what_did_not_fit_is_told(tmp_path: Path) -> None:
    content = training()
    content["device_traces"][0].append(
        {"action": "oom", "size": 5000, "device_free": 300, "frames": [], "stream": 0}
    )
    reading = read(tmp_path, pickled(content))
    assert reading.value.facts["out_of_memory"] == [{"requested": 5000, "device_free": 300}]
    assert "1 allocations failed: out of memory" in reading.warnings


def test_a_snapshot_made_by_torch_from_a_profile_has_the_profile_s_bytes(tmp_path: Path) -> None:
    """torch's converter writes snapshots of CPU profiles too: the one kind of real snapshot to be had without
    a GPU.
    """
    from torch.cuda._memory_viz import _profile_to_snapshot

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    batch = torch.randn(32, 64)
    options: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    with profile(activities=[ProfilerActivity.CPU], **options) as seen:
        model(batch).sum().backward()
    content = _profile_to_snapshot(seen)
    step = read(tmp_path, pickled(content)).value
    kinds = {KINDS[kind] for kind in step.tensors.kind}
    assert "gradient" in kinds
    gradients = step.tensors.bytes[step.tensors.kind == KINDS.index("gradient")]
    assert sum(p.numel() * 4 for p in model.parameters()) <= int(gradients.sum())
    assert step.live_peak == _peak(content)


def _peak(content: dict[str, Any]) -> int:
    """The most bytes at once, walked from the end back: an independent way to the same figure."""
    now = sum(b["size"] for s in content["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    most = now
    for device in content["device_traces"]:
        for row in reversed(device):
            now += {"alloc": -row["size"], "free_completed": row["size"]}.get(row["action"], 0)
            most = max(most, now)
    return most


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/owned",)


def poisoned(value: Any, protocol: int) -> bytes:
    return pickled({"segments": [], "device_traces": [value]}, protocol)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (poisoned(Evil(), 0), "opcode GLOBAL at byte"),
        (poisoned(Evil(), 4), "opcode STACK_GLOBAL at byte"),
        (poisoned(np.float64, 2), "opcode GLOBAL at byte"),
        (b"\x80\x04}(\x8c\x08segmentsB\x01\x00\x00\x00au.", "opcode BINBYTES at byte 14"),
        (b"\x80\x02}(X\x08\x00\x00\x00segmentsQu.", "opcode BINPERSID at byte 17"),
        (b"\x80\x02}(X\x08\x00\x00\x00segmentsPid\nu.", "opcode PERSID at byte 17"),
        (b"\x80\x02}(X\x08\x00\x00\x00segments\x82\x01u.", "opcode EXT1 at byte 17"),
        (b"\x80\x02}(X\x08\x00\x00\x00segments(ios\nsystem\nu.", "opcode INST at byte 18"),
        (b"\x80\x02}(X\x08\x00\x00\x00segments]}bu.", "opcode BUILD at byte 19"),
        (b"\x80\x04}(\x8c\x08segmentsh\x07u.", "memo 7 is empty at byte 14"),
        (b"\x80\x04}(\x8c\x08segments" + b"]\x94" * 3 + b"aaa.", "at byte"),
        (b"\x80\x04}(\x8c\x08segments", "broken pickle"),
        (b"\x80\x04}(\x8c\x08segments]u.tail", "4 bytes after the end"),
        (b"\x80\x04}(\x8c\x08segments\x8a\x20" + b"\x7f" * 32 + b"u.", "an integer of 255 bits"),
        (b"\x80\x04}(\x8c\x08segments)]u.", "an item for what is no dict"),
        (b"\x80\x04}()\x8c\x08segmentsu.", "a key that is neither text nor integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pickle_of_more_than_data_is_refused_at_its_byte(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, content, "memory-snapshot")
    assert complaint in str(refused.value)
    assert not Path("/tmp/owned").exists()


def test_deep_nesting_is_refused_however_it_is_written() -> None:
    by_marks = b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b"."
    by_memo = b"\x80\x04]" + b"\x94]h\x00a" * 3
    by_tuples = b"\x80\x04)" + b"\x85" * 200_000 + b"."
    for content in (by_marks, by_tuples):
        with pytest.raises(BadInput, match="nested more than 64 levels"):
            plain_pickle.loads(content, "deep")
    with pytest.raises(BadInput):
        plain_pickle.loads(by_memo, "memo")


def test_a_memo_bomb_stays_as_small_as_its_bytes(tmp_path: Path) -> None:
    """Forty lists, each ten times the one before: 10^40 items if anybody walked them; nobody does."""
    steps = b"".join(b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"e\x94" for level in range(40))
    bomb = b"\x80\x04]\x94" + steps
    wrapped = b"\x80\x04}(\x8c\x08segments" + bomb[2:] + b"u."
    with pytest.raises(BadInput):
        read(tmp_path, wrapped)


def test_plain_data_of_any_protocol_comes_back_whole() -> None:
    value = {
        "a": [1, -2, 2**63, 1.5, None, True, "é", (0, 1), (), (1,), (1, 2, 3, 4), {}],
        7: {"b": ["x"] * 5000},
    }
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert plain_pickle.loads(pickle.dumps(value, protocol), "plain") == value


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"segments": [segment(0, -1)], "device_traces": []}, "segment 0: total_size = -1"),
        ({"segments": {}, "device_traces": []}, "segments: is dict"),
        ({"segments": [], "device_traces": [[event("alloc", -4, 1)]]}, "device 0, event 0: addr = -4"),
        ({"segments": [], "device_traces": [[event("alloc", 4, 2**60)]]}, "event 0: size"),
        ({"segments": [], "device_traces": [[7]]}, "device 0, event 0: is int"),
        ({"segments": [], "device_traces": [[event("alloc", 4, 1, "frame")]]}, "event 0: is str"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_snapshot_is_refused_at_its_entry(tmp_path: Path, content: Any, complaint: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, pickled(content))
    assert complaint in str(refused.value)
