"""AntMan by hand: a guaranteed step of 60 ms every 100 ms, opportunistic operators of 15 ms."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.spec import load_spec
from experiments.run import run as run_spec
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel
from experiments.serving.simulator.sharing import SharingPlan, share

DEVICE = SharedDevice(units=80, memory=16e9, bandwidth=16e9)
MODELS = [
    SharedModel("guaranteed", "real_time", (Operator(0.06),)),
    SharedModel("rest", "best_effort", (Operator(0.015),) * 1000),
]


def run(gate: bool) -> SharingPlan:
    policy = registry.create("serving", "antman_inference", {"gate": gate})
    asked = [(0.1 * step, 0) for step in range(20)]
    return share(DEVICE, MODELS, [True, True], policy.begin(DEVICE, MODELS), asked, 1.95)


def per_step(plan: SharingPlan, step: int) -> int:
    return sum(span.model == 1 and 0.1 * step <= span.start < 0.1 * (step + 1) for span in plan.spans)


def test_two_operators_fit_each_gap_and_nobody_waits() -> None:
    plan = run(gate=True)
    settled = plan.requests[3:]
    assert [per_step(plan, step) for step in range(3, 19)] == [2] * 16
    assert [one.answered - one.arrival for one in settled] == pytest.approx([0.06] * len(settled))


def test_without_the_gate_a_third_makes_the_step_last_105_ms() -> None:
    plan = run(gate=False)
    second = plan.requests[1]
    assert second.answered - plan.requests[0].answered == pytest.approx(0.105, abs=1e-9)


GB = 1e9
#: The guaranteed job's passes need 10 GB, then 12; the other has 6 GB, and operators of 15 ms.
GROWING = [
    SharedModel("guaranteed", "real_time", (Operator(0.06),), peaks=(10 * GB, 10 * GB, 12 * GB)),
    SharedModel("rest", "best_effort", (Operator(0.015),) * 1000, peaks=(6 * GB,)),
]


def serve(models: list[SharedModel], asked: list[tuple[float, int]], duration: float) -> SharingPlan:
    policy = registry.create("serving", "antman_inference", {})
    plan = share(DEVICE, models, [True] * len(models), policy.begin(DEVICE, models), asked, duration)
    assert plan.fault == "", "no event lacks memory"
    return plan


def test_two_gigabytes_leave_in_125_ms_when_the_guaranteed_job_grows_and_its_own_come_back() -> None:
    """At 1 s the third pass needs 12 GB, where 10 are free: 2 GB of it are on the host and cost that pass 125
    ms; the other's 2 GB leave until 1.125 s, its own are back by 1.25 s, and the fourth pass is as ever.
    """
    asked = [(0.0, 0), (0.5, 0), (1.0, 0), (1.5, 0)]
    plan = serve(GROWING, asked, 1.9)
    passes = [one.answered - one.started for one in plan.requests]
    assert passes == pytest.approx([0.06, 0.06, 0.185, 0.06])
    moves = [(copy.model, copy.start, copy.end, copy.bytes / GB) for copy in plan.copies]
    assert moves == [(1, 1.0, pytest.approx(1.125), 2), (0, pytest.approx(1.125), pytest.approx(1.25), 2)]
    after = [span for span in plan.spans if span.model == 1 and 1.3 < span.start]
    slower = 0.015 * (1 + 2 / 16 / 15)
    assert [span.end - span.start for span in after[:3]] == pytest.approx([slower] * 3)


def test_a_job_that_shrinks_gives_the_other_its_memory_back() -> None:
    """The other begins after the second pass, with 2 of its 6 GB on the host until the third needs less."""
    peaks = (12 * GB, 12 * GB, 10 * GB)
    shrinking = [SharedModel("guaranteed", "real_time", (Operator(0.06),), peaks=peaks), GROWING[1]]
    plan = serve(shrinking, [(0.0, 0), (0.5, 0), (1.0, 0), (1.5, 0)], 1.9)
    assert [(copy.model, copy.start, copy.bytes / GB) for copy in plan.copies] == [(1, 1.0, 2)]
    rest = [span.end - span.start for span in plan.spans if span.model == 1]
    assert rest[0] == pytest.approx(0.015 * (1 + 2 / 16 / 15)) and rest[-2] == pytest.approx(0.015)


@settings(max_examples=60)
@given(
    guaranteed=st.lists(st.floats(0, 16), min_size=1, max_size=5),
    rest=st.lists(st.floats(0, 16), min_size=1, max_size=5),
    gaps=st.lists(st.floats(0.01, 0.5), min_size=1, max_size=8),
)
def test_no_event_lacks_memory(guaranteed: list[float], rest: list[float], gaps: list[float]) -> None:
    """``serve`` asks the executor; every request is answered, however much of it lies on the host."""
    models = [
        SharedModel(
            "guaranteed", "real_time", (Operator(0.06),), peaks=tuple(GB * one for one in guaranteed)
        ),
        SharedModel("rest", "best_effort", (Operator(0.015),) * 5, peaks=tuple(GB * one for one in rest)),
    ]
    times = np.cumsum(gaps).tolist()
    plan = serve(models, [(time, 0) for time in times], times[-1] + 0.5)
    assert all(one.answered is not None for one in plan.requests) and len(plan.requests) == len(gaps)


def test_a_scenario_tells_peaks_and_others_refuse_what_does_not_fit(tmp_path: Path) -> None:
    layers = [{"seconds": 0.01, "bytes": 1e9}]
    asked = {"name": "a", "slo": 1, "rate": 5, "layers": layers, "peaks": [8e9, 12e9]}
    rest = {"name": "b", "class": "best_effort", "arrivals": "closed", "layers": layers, "peaks": [6e9]}
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"duration": 2, "models": [asked, rest]}))
    found = {}
    for policy in ("antman_inference", "reef"):
        spec = {"family": "serving", "policy": policy, "workload": {"source": str(file)}}
        found[policy] = run_spec(load_spec({**spec, "hardware": "v100-16g"}))
    assert found["antman_inference"].status == "ok"
    assert len(found["antman_inference"].plan["copies"]["rows"]) >= 2
    assert found["reef"].status == "infeasible"
    assert "weights and passes of 18.6 GiB at once" in str(found["reef"].reason)
