"""Gradient accumulation: the fewest micro-batches that fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core.errors import Infeasible
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.memory.planning.batch_parts import divisors
from experiments.memory.policies.gradient_accumulation import GradientAccumulation
from experiments.memory.simulator import Simulator
from experiments.run import run
from tests.experiments.memory.steps import machine, plan_of
from tests.experiments.memory.test_microbatch import STEP as SMALL

STEP = replace(SMALL, facts={"batch": 8})


def test_the_fewest_parts_that_fit() -> None:
    # Shared: w 100, x 40, g 100; a and l take 88 bytes whole, and a share each in parts.
    for room, parts in ((328, 1), (284, 2), (262, 4), (251, 8)):
        on = machine(room)
        plan = plan_of(GradientAccumulation(), STEP, on)
        assert plan.splits == parts, room
        assert Simulator(STEP, on).run(plan).peak_bytes <= room


def test_no_part_is_small_enough() -> None:
    with pytest.raises(Infeasible, match="no number"):
        plan_of(GradientAccumulation(), STEP, machine(240))


def test_equal_parts_only() -> None:
    assert divisors(replace(STEP, facts={"batch": 12})) == [1, 2, 3, 4, 6, 12]
    assert divisors(SMALL)[:4] == [1, 2, 4, 8]


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["simulated", "measured"])
def test_a_model_is_captured_anew_and_says_what_the_parts_changed(mode: str) -> None:
    pytest.importorskip("torch")
    workload = {"source": "zoo:gpt2-tiny", "options": {"batch": 8, "optimizer": "sgd"}}
    spec = {"family": "memory", "policy": "gradient_accumulation", "workload": workload, "mode": mode}
    hardware = "local" if mode == "measured" else "a100-40g"
    whole, parts = (
        run(load_spec({**spec, "hardware": hardware, "knobs": {"parts": count}}), silent) for count in (1, 4)
    )
    peak = [outcome.metrics["peak_memory"]["value"] for outcome in (whole, parts)]
    assert peak[1] < 0.6 * peak[0]
    if mode == "measured":
        assert parts.metrics["max_parameter_difference"]["value"] < 1e-5
        assert parts.provenance["losses"] == pytest.approx(parts.provenance["losses_unplanned"], rel=1e-5)
