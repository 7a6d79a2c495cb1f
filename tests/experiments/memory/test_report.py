"""What a simulated step reports adds up, and its lanes show when what was busy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.errors import Infeasible
from experiments.memory.interface import MemoryPlan, Offload, OnHost, PlaceTensor, Prefetch
from experiments.memory.policies.checkpoint import Checkpoint
from experiments.memory.policies.swap_all import SwapAll
from experiments.memory.simulator import Simulator, lanes
from experiments.memory.simulator.lanes import close_gaps
from tests.experiments.memory.steps import machine, plan_of
from tests.experiments.memory.test_host_execution import G, W, training
from tests.experiments.memory.test_simulator import run, steps


def test_stall_overlap_and_execution_are_the_whole_step():
    # Out 3-7 beside compute, back 9-13 while nothing runs, the last op 13-16.
    done = run(Offload(1, 0, 0), Prefetch(3, 0))
    assert (done.stall_time, done.overlap_time, done.execution_time, done.step_time) == (4, 4, 8, 16)


def test_lanes_are_one_while_a_channel_is_busy():
    done = run(Offload(1, 0, 0), Prefetch(3, 0))
    drawn = {name: (curve.x, curve.y) for name, curve in lanes(done).items()}
    assert drawn == {
        "channel.out": ((0, 3, 7, 16), (0, 1, 0, 0)),
        "channel.back": ((0, 9, 13, 16), (0, 1, 0, 0)),
        "channel.stall": ((0, 9, 13, 16), (0, 1, 0, 0)),
    }


def test_the_host_has_a_lane_and_every_tier_a_peak():
    plan = MemoryPlan((PlaceTensor(0, W), Prefetch(0, W, keep=True), Offload(2, G, 1), OnHost(2, 5.0)))
    done = Simulator(training(), machine(bandwidth=1.0)).run(plan)
    assert lanes(done)["channel.cpu"].x == (0, 10, 15, 15) and done.host_time == 5
    assert done.peaks == {"host": 8, "storage": 0, "remote": 0}


def test_a_lane_with_too_many_spans_closes_the_narrowest_gaps():
    rows = np.array([[0.0, 1.0], [1.5, 2.0], [5.0, 6.0], [6.25, 7.0]])
    assert close_gaps(rows, 3).tolist() == [[0, 1], [1.5, 2], [5, 7]]
    assert close_gaps(rows, 1).tolist() == [[0, 7]]
    assert close_gaps(rows, 4) is rows


POLICIES = st.sampled_from([SwapAll(), SwapAll(ahead=3), Checkpoint()])


@settings(max_examples=100)
@given(steps(), POLICIES, st.integers(1, 200), st.sampled_from([0.5, 8.0]), st.integers(1, 3))
def test_execution_is_what_an_observer_sees(step, policy, capacity, bandwidth, iterations):
    on = machine(capacity, bandwidth)
    try:
        done = Simulator(step, on).run(plan_of(policy, step, on), iterations=iterations)
    except Infeasible:
        return
    curves = lanes(done)
    edges = np.unique(np.concatenate([[0.0, done.step_time], *(np.array(c.x) for c in curves.values())]))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)

    def at(name):
        x, y = np.array(curves[name].x), np.array(curves[name].y)
        return y[np.searchsorted(x, middles, side="right") - 1] > 0

    none = np.zeros(len(middles), bool)
    still = at("channel.stall") if "channel.stall" in curves else none
    busy = none
    for name in curves:
        busy = busy | at(name) if name != "channel.stall" else busy
    assert done.execution_time == pytest.approx(widths[~still & ~busy].sum(), abs=1e-9)
    assert done.overlap_time == pytest.approx(widths[~still & busy].sum(), abs=1e-9)
    assert done.stall_time == pytest.approx(widths[still].sum(), abs=1e-9)
