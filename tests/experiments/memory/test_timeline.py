"""What a run page and a trace are drawn from: when ops ran, why compute stood still, what lay there at the
peak.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from experiments.core.trace_events import trace
from experiments.memory.interface import (
    Compress,
    Decompress,
    DemandPaging,
    Drop,
    MemoryPlan,
    MemoryPool,
    Offload,
    PlaceTensor,
    Prefetch,
    Recompute,
)
from experiments.memory.interface.release import PagingRelease, Release, TwoEndedRelease, WaitingRelease
from experiments.memory.simulator import MemorySimulation, Simulator, curves, lanes, run_shared
from experiments.memory.simulator import timeline as told
from experiments.memory.simulator.recorder import StepRecorder, StepRecording
from experiments.memory.simulator.run import StepRun
from experiments.memory.simulator.timeline import timeline
from tests.experiments.memory.steps import MS, five_layers, machine, make_step

STEP = make_step(
    [
        ("make", "forward", 3.0, [], ["t"]),
        ("work", "forward", 3.0, [], ["u"]),
        ("more", "backward", 3.0, ["u"], ["v"]),
        ("read", "backward", 3.0, ["t", "v"], []),
    ],
    {"t": 4, "u": 2, "v": 2},
)
#: ``t`` leaves in 3..7, is asked for when ``read`` is to begin at 9, and is back at 13.
AWAY = MemoryPlan((Offload(1, 0, 0), Prefetch(3, 0)))


def recorded(plan: MemoryPlan, step=STEP, on=None) -> tuple[MemorySimulation, StepRecording]:
    on = on or machine(bandwidth=1.0)
    recorder = StepRecorder()
    simulation = Simulator(step, on).steady(plan, recorder=recorder)
    return simulation, recorder.recording


def end_of(recording: StepRecording) -> float:
    return recording.busy[-1][3]


def test_ops_stand_where_they_ran_and_stalls_where_compute_waited():
    simulation, recording = recorded(AWAY)
    assert recording.busy == (
        ("op", 0, 0.0, 3.0),
        ("op", 1, 3.0, 6.0),
        ("op", 2, 6.0, 9.0),
        ("op", 3, 13.0, 16.0),
    )
    assert recording.stalls == {"transfer": [(9.0, 13.0)]}
    assert simulation.stalls["transfer"] == 4.0


def test_a_tensor_still_on_its_way_out_counts_at_the_peak():
    """The surprise: ``t`` was sent away at 3, but its copy ends at 7, so it takes its bytes beside ``u`` and
    ``v``.
    """
    _, recording = recorded(AWAY)
    assert recording.fullest is not None
    assert (recording.fullest.time, recording.fullest.op) == (6.0, 2)
    assert recording.fullest.held == {0: 4, 1: 2, 2: 2}


def test_a_copy_that_leaves_from_the_fullest_device_is_a_tensor_there_and_no_scratch():
    """At 3 ``a`` is gone and ``p`` takes its bytes beside ``b``, which leaves until 7: 8 bytes, no op has
    scratch.
    """
    rows = [
        ("make", "forward", 1.0, [], ["a", "b"]),
        ("work", "forward", 10.0, [], []),
        ("use", "optimizer", 1.0, ["p"], []),
        ("read", "backward", 1.0, ["a", "b"], []),
    ]
    step = make_step(rows, {"a": 2, "b": 4, "p": 4}, persistent=["p"])
    away = (Offload(1, 0, 0), Offload(1, 1, 0), Prefetch(3, 0), Prefetch(3, 1))
    plan = MemoryPlan((PlaceTensor(0, 2), *away, Prefetch(1, 2), Offload(3, 2, 2)))
    _, recording = recorded(plan, step, machine(capacity=9, bandwidth=1.0))
    assert recording.fullest is not None
    assert (recording.fullest.op, recording.fullest.held, recording.fullest.scratch) == (1, {1: 4, 2: 4}, 0)


def test_a_codecs_input_is_its_scratch():
    """``t`` of 4 bytes becomes 2: while the codec runs both forms are there; the old one is no tensor any
    more.
    """
    plan = MemoryPlan((Compress(1, 0, 2.0, 0.5), Decompress(3, 0, 0.25)))
    _, recording = recorded(plan)
    full = recording.fullest
    assert full is not None and (full.time, full.held, full.scratch) == (9.5, {0: 4, 2: 2}, 2)


@pytest.mark.parametrize(
    "plan",
    [
        AWAY,
        MemoryPlan((Drop(1, 0), Recompute(3, (0,), (0,)))),
        replace(AWAY, space=MemoryPool("first_fit", 1)),
        MemoryPlan(space=DemandPaging(block_bytes=1)),
    ],
)
def test_a_step_is_simulated_the_same_watched_or_not(plan: MemoryPlan):
    on = machine(capacity=9, bandwidth=1.0)
    simulator = Simulator(STEP, on)
    assert simulator.run(plan, recorder=StepRecorder()) == simulator.run(plan)


def test_a_step_that_is_drawn_is_simulated_once(monkeypatch: pytest.MonkeyPatch):
    walks = []
    monkeypatch.setattr(StepRun, "walk", lambda run, iterations: walks.append(iterations) or iter(()))
    Simulator(STEP, machine()).steady(AWAY, recorder=StepRecorder())
    assert walks == [1]


def test_a_recorder_that_watched_one_step_begins_anew_with_the_next():
    recorder = StepRecorder()
    for _ in range(2):
        Simulator(STEP, machine(bandwidth=1.0)).run(AWAY, recorder=recorder)
    assert recorder.recording == recorded(AWAY)[1]


def test_waiting_for_space_is_told_apart():
    """6 bytes: ``v`` must wait at 6 until ``t`` is gone at 7."""
    _, recording = recorded(AWAY, on=machine(capacity=6, bandwidth=1.0))
    assert recording.stalls["space"] == [(6.0, 7.0)]


def test_reruns_and_their_ops_are_spans_of_their_own():
    _, recording = recorded(MemoryPlan((Drop(1, 0), Recompute(3, (0,), (0,)))))
    assert [(what, which, start) for what, which, start, _ in recording.busy] == [
        ("op", 0, 0.0),
        ("op", 1, 3.0),
        ("op", 2, 6.0),
        ("recompute", 0, 9.0),
        ("op", 3, 12.0),
    ]


@pytest.mark.parametrize("capacity", [None, 20])
def test_a_recording_is_of_the_very_simulation(capacity: int | None):
    """Also where copies go on over the end of the step, so that one step among many is reported."""
    step = five_layers()
    plan = MemoryPlan((Offload(4, 2, 3), Prefetch(8, 2)))
    on = machine() if capacity is None else machine(capacity=capacity)
    simulation, recording = recorded(plan, step, on)
    assert end_of(recording) == pytest.approx(simulation.step_time)
    assert sum(end - start for spans in recording.stalls.values() for start, end in spans) == pytest.approx(
        simulation.stall_time
    )
    assert recording.fullest is not None
    assert sum(recording.fullest.held.values()) + recording.fullest.scratch == simulation.peak_bytes


def test_ops_of_a_paged_device_are_laid_out_around_its_faults():
    on = machine(capacity=6, bandwidth=1000.0)
    plan = MemoryPlan(space=DemandPaging(block_bytes=1, iterations=1))
    simulation, recording = recorded(plan, on=on)
    full = recording.fullest
    assert full is not None
    assert sum(full.held.values()) + full.scratch + full.unused == simulation.peak_bytes == 6
    busy = sum(end - start for _, _, start, end in recording.busy)
    assert end_of(recording) == pytest.approx(simulation.step_time)
    assert busy >= 12.0


def test_pages_at_the_peak_are_those_of_tensors_and_of_nothing():
    plan = MemoryPlan(space=DemandPaging(block_bytes=512, iterations=1))
    simulation, recording = recorded(plan, on=machine(capacity=2048, bandwidth=1000.0))
    full = recording.fullest
    assert full is not None
    # A block each for t, u and v when v is made: 4, 2 and 2 bytes in 512 each.
    assert (full.op, full.held, full.unused) == (2, {0: 4, 1: 2, 2: 2}, 3 * 512 - 8)
    told_of = timeline(recording, STEP, plan)["fullest"]["held"]
    assert [(row["name"], row["bytes"]) for row in told_of] == [
        ("t", 4),
        ("u", 2),
        ("v", 2),
        ("pages without a tensor that is needed", 1528),
    ]
    assert simulation.peak_bytes == 1536


@pytest.mark.parametrize("release", [TwoEndedRelease(), WaitingRelease(), PagingRelease()])
def test_an_artifacts_rules_tell_the_tensors_at_the_peak(release: Release):
    step = five_layers()
    plan = MemoryPlan(space=release)
    simulation, recording = recorded(plan, step, machine(capacity=2**30))
    full = recording.fullest
    assert full is not None and full.held
    assert sum(full.held.values()) + full.scratch + full.unused == simulation.peak_bytes


def test_a_device_on_a_shared_link_is_recorded_as_one_alone_is():
    on = machine(bandwidth=1.0)
    _, recording = recorded(AWAY, on=on)
    single = StepRecorder()
    run_shared(STEP, [AWAY], on, recorders=[single])
    assert single.recording == recording
    watching = [StepRecorder(), StepRecorder()]
    pair = run_shared(STEP, [AWAY, AWAY], on, recorders=watching)
    first, second = (recorder.recording for recorder in watching)
    assert first.busy == second.busy and end_of(first) == pair[0].step_time
    assert sum(end - start for start, end in first.stalls["transfer"]) == pair[0].stalls["transfer"] > 4


def test_of_many_spans_the_longest_are_kept_and_all_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(told, "MOST_BUSY", 2)
    spans = (
        ("op", 0, 0.0, 1.0),
        ("op", 1, 1.0, 4.0),
        ("op", 2, 4.0, 4.5),
        ("op", 3, 4.5, 9.0),
    )
    found = told.compute(spans, STEP)
    assert (found["of"], found["index"], found["start"]) == (4, [1, 3], [1.0, 4.5])


def outcome(plan: MemoryPlan) -> dict:
    simulation, recording = recorded(plan)
    series = curves(simulation, 100) | lanes(simulation)
    return {
        "spec": {"policy": "by hand", "hardware": "nothing"},
        "series": {name: curve.to_json() for name, curve in series.items()},
        "plan": plan.to_json(),
        "provenance": {"timeline": timeline(recording, STEP, plan)},
    }


def test_a_trace_read_back_has_every_op_copy_stall_and_byte():
    """4 ops, one copy each way, one stall of 4 s, one tensor away from 3 to 13 s."""
    read = json.loads(json.dumps(trace(outcome(AWAY))))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in read if e["ph"] == "M" and e["name"] == "thread_name"}
    slices = [(names[e["tid"]], e["name"], e["ts"], e["dur"]) for e in read if e["ph"] == "X"]
    assert slices == [
        ("compute", "make", 0.0, 3e6),
        ("compute", "work", 3e6, 3e6),
        ("device to host", "device to host", 3e6, 4e6),
        ("compute", "more", 6e6, 3e6),
        ("host to device", "host to device", 9e6, 4e6),
        ("stall: transfer", "stall: transfer", 9e6, 4e6),
        ("compute", "read", 13e6, 3e6),
    ]
    away = [(e["ph"], e["name"], e["ts"]) for e in read if e["ph"] in "be"]
    assert away == [("b", "t", 3e6), ("e", "t", 13e6)]
    counted = [e for e in read if e["ph"] == "C" and e["name"] == "device bytes"]
    assert max(sum(e["args"].values()) for e in counted) == 8
    times = [e["ts"] for e in read if "ts" in e]
    assert times == sorted(times)
    assert times[-1] == 16e6


def test_an_outcome_without_a_timeline_gives_its_curves():
    read = trace({"series": {"queue": {"unit": "jobs", "x": [0.0, 2.0], "y": [1, 3]}}})["traceEvents"]
    assert [(e["name"], e["ts"], e["args"]) for e in read if e["ph"] == "C"] == [
        ("queue", 0.0, {"jobs": 1}),
        ("queue", 2e6, {"jobs": 3}),
    ]


def test_slots_of_a_parallel_plan_are_slices_of_their_devices():
    plan = {"timeline": {"lanes": [{"devices": [0, 1], "events": [[0.0, 0.5, "F0.0"]]}]}}
    read = trace({"plan": plan})["traceEvents"]
    assert [(e["name"], e["dur"]) for e in read if e["ph"] == "X"] == [("F0.0", 0.5e6)]
    assert "devices 0 to 1" in [e["args"]["name"] for e in read if e["ph"] == "M"]


def test_milliseconds_stay_exact_to_the_nanosecond():
    step = five_layers()
    plan = MemoryPlan()
    _, recording = recorded(plan, step, machine())
    found = timeline(recording, step, plan)
    assert found["compute"]["end"][0] == 4 * MS
