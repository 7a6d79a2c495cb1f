"""A step's seconds by part: closed forms, and that they add up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.core.options import WorkloadOptions
from experiments.core.spec import RunSpec, Workload
from experiments.hardware import Link
from experiments.parallel.experiment.simulated import simulated_metrics
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.simulator import simulate
from experiments.parallel.simulator.step_parts import NEEDED, parts_of_step
from tests.experiments.parallel.builders import chain, cluster, estimate

SLOW = Link("slow", 1.0, 0.0, True, "test")


def test_the_parts_of_a_step_have_closed_forms_and_add_up_to_it() -> None:
    """Two stages, one sample: F = 1 s, B = 2 s and F once more, messages of 5 bytes at 1 B/s, an update of
    5 s; each layer has 0.5 FLOP forward and 1 backward on a device of 1 FLOP/s.
    """
    model = chain(2, output_bytes=5.0, parameter_bytes=4.0, flops=0.5)
    hardware = cluster(1, 2, link=SLOW)
    asked = replace(estimate(model, hardware), updates=(5.0, 5.0))
    plan = GPipe(recompute=True).place(model, hardware, 1, asked)
    spec = RunSpec("parallel", "gpipe", Workload("chain", options=WorkloadOptions()), "unit")
    figures = simulated_metrics(spec, plan, asked, simulate(plan, asked))
    parts = parts_of_step(figures)
    assert parts == pytest.approx({
        "ideal": 1.5,  # 2 layers of 1.5 FLOP on 2 devices
        "kernels below peak": 1.5,  # 3 s without recomputing, half of it ideal
        "exposed communication": 10.0,  # one message each way
        "bubble": 4.0,  # each waits for the other's F and B
        "recompute": 1.0,
        "optimizer": 5.0,
    })  # fmt: skip
    assert sum(parts.values()) == pytest.approx(figures["step_time"]) == pytest.approx(23.0)
    assert parts_of_step({name: figures[name] for name in NEEDED[1:]}) == {}
    earlier = parts_of_step({name: figures[name] for name in NEEDED})
    assert earlier["recompute"] == pytest.approx(0.5) and sum(earlier.values()) == pytest.approx(23.0)
