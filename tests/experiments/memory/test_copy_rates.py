"""Copies on this host: measured, not assumed, and the steps that are compared take turns."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_rates_are_those_of_a_copy_that_takes_time():
    from experiments.memory.live.copy_rates import copy_rates

    for rate in copy_rates():
        assert 0 < rate.latency < 1.0
        assert rate.time(4096) < rate.time(1 << 26), "more bytes take longer"
    assert copy_rates() is copy_rates(), "once for a process"


def test_runners_take_turns_each_with_its_own_random_numbers():
    from experiments.core.progress import silent
    from experiments.memory.live.turns import TimedRunner, seeded_state, take_turns

    order: list[str] = []

    def step(name: str):
        def once(inputs):
            order.append(name)
            return torch.rand(1)

        return once

    runners = [TimedRunner(step(name), [], "cpu", seeded_state(7, "cpu")) for name in ("plain", "planned")]
    take_turns(runners, 3, silent)
    assert order == ["plain", "planned"] * 3
    assert runners[0].losses == runners[1].losses and len(set(runners[0].losses)) == 3
