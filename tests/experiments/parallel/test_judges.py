"""Who says which plan is best: the costs of a planner's paper by default, the simulator where it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.knobs import describe
from experiments.hardware import Link
from experiments.parallel.planning.judges import COSTS, JUDGES, SIMULATOR, choose_best
from experiments.parallel.policies.data_parallel import DataParallel
from experiments.parallel.policies.gpipe import GPipe
from experiments.parallel.policies.optcnn import OptCnn
from experiments.parallel.policies.unity import Unity
from experiments.parallel.simulator import simulate
from tests.experiments.parallel.builders import chain, cluster, estimate

#: Bytes of a bucket of gradients: larger layers are reduced one by one.
BUCKET = 2.0**25


def judged() -> list[type[Any]]:
    """Every policy that lets its plans be judged."""
    every = registry.family_policies("parallel").values()
    return [policy for policy in every if any(knob.name == "judge" for knob in describe(policy))]


def test_the_paper_judges_by_default() -> None:
    found = judged()
    assert len(found) >= 5
    for policy in found:
        judge = next(knob for knob in describe(policy) if knob.name == "judge")
        assert (judge.default, judge.choices) == (COSTS, JUDGES)


@pytest.mark.parametrize("policy", [OptCnn, Unity])
def test_gradients_that_the_simulator_hides_and_a_sum_does_not(policy: type[Any]) -> None:
    """Four layers of 12 s; an all-reduce of one among four devices takes 9.75 s. Added up, one device takes
    4 x 12 s, less than four with 4 x 12.75; beside the backward pass four take 4 + 2 + 4 x 9.75 = 45 s.
    """
    model = chain(4, parameter_bytes=6.5 * BUCKET)
    hardware = cluster(1, 4, link=Link("link", BUCKET, 0.0, True, "test"))
    asked = estimate(model, hardware)
    steps = [
        simulate(policy(**knobs).place(model, hardware, 4, asked), asked).step_time
        for knobs in ({}, {"judge": SIMULATOR})
    ]
    assert steps == pytest.approx([48.0, 45.0])


def test_what_costs_least_must_also_fit() -> None:
    """Two layers keep 16 bytes: a device with both in one pass lacks memory, a stage of one does not."""
    model, hardware = chain(2, stash_bytes=4.0), cluster(1, 2, memory=8)
    asked = estimate(model, hardware)
    plans = {
        "whole": DataParallel().place(model, hardware, 4, asked),
        "stages": GPipe(micro_batches=2).place(model, hardware, 2, asked),
    }
    assert choose_best(COSTS, asked, plans, {"whole": 1.0, "stages": 2.0})[0] == "stages"
    roomy = estimate(model, cluster(1, 2))
    assert choose_best(COSTS, roomy, plans, {"whole": 1.0, "stages": 2.0})[0] == "whole"


def test_dapples_knob_of_before_says_what_to_write_instead() -> None:
    with pytest.raises(BadInput, match="judge"):
        registry.create("parallel", "dapple", {"simulated": False})
