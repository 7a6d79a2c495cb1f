"""MPS by hand: kernels go in the order of their launch, and each process' weights come in when it starts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.core import registry
from experiments.serving.interface.sharing import Operator, SharedDevice, SharedModel
from experiments.serving.simulator.sharing import SharingPlan, share

DEVICE = SharedDevice(units=10, memory=100.0, bandwidth=1.0)
TRAINED = SharedModel("trained", "training", (Operator(4.0), Operator(4.0)))


def asking(*operators: Operator, name: str = "asked") -> SharedModel:
    return SharedModel(name, "real_time", operators)


def run(models: Sequence[SharedModel], arrivals: Sequence[tuple[float, int]], **knobs: object) -> SharingPlan:
    policy = registry.create("serving", "mps", knobs)
    resident = [policy.starts_resident(model) for model in models]
    return share(DEVICE, models, resident, policy.begin(DEVICE, models), arrivals, 40.0)


def test_each_kernel_of_a_request_waits_for_one_of_training() -> None:
    """Training from 0 to 4, 5 to 9 and 10 to 14; the request's kernels after each."""
    plan = run([asking(Operator(1.0), Operator(1.0), Operator(1.0)), TRAINED], [(1.0, 0)])
    assert plan.requests[0].answered == pytest.approx(15)
    assert [(one.model, one.start) for one in plan.spans[:6]] == [
        (1, 0),
        (0, 4),
        (1, 5),
        (0, 9),
        (1, 10),
        (0, 14),
    ]


def test_the_same_seconds_in_more_kernels_are_answered_later() -> None:
    one, three = (
        run([asking(*[Operator(3.0 / count)] * count), TRAINED], [(1.0, 0)]).requests[0] for count in (1, 3)
    )
    assert (one.answered, three.answered) == pytest.approx((7, 15))


def test_kernels_that_leave_units_run_side_by_side() -> None:
    """Four and five blocks on ten units."""
    small = asking(Operator(1.0, blocks=4, waves=(1.0,)), Operator(1.0, blocks=4, waves=(1.0,)))
    half = SharedModel("trained", "training", (Operator(4.0, blocks=5, waves=(4.0,)),))
    [request] = run([small, half], [(1.0, 0)]).requests
    assert request.answered == pytest.approx(3.0)


def test_who_is_first_in_line_holds_up_a_kernel_for_which_there_are_units() -> None:
    """Training has five of ten units until 4; all are wanted at 1, two at 2."""
    half = SharedModel("trained", "training", (Operator(4.0, blocks=5, waves=(4.0,)),))
    small = asking(Operator(1.0, blocks=2, waves=(1.0,)), name="small")
    whole, later = run([asking(Operator(2.0)), small, half], [(1.0, 0), (2.0, 1)]).requests
    assert (whole.started, whole.answered) == (4.0, 6.0)
    assert (later.started, later.answered) == (6.0, 7.0)


def test_where_there_is_room_nothing_moves_when_a_model_is_asked() -> None:
    plan = run([asking(Operator(1.0, 60.0)), TRAINED], [(30.5, 0)], fault_bandwidth=2e6)
    assert [(one.start, one.bytes) for one in plan.copies] == [(0.0, 60.0)]
    assert plan.requests[0].answered == pytest.approx(33)


def test_without_room_pages_move_at_the_rate_of_faults() -> None:
    """60 and 50 of 100 bytes: training leaves when its kernel ends at 4, and comes back after the answer."""
    heavy = SharedModel("trained", "training", (Operator(4.0, 50.0),))
    plan = run([asking(Operator(1.0, 60.0)), heavy], [(1.0, 0)], fault_bandwidth=1e6)
    moved = [(one.model, one.bytes) for one in plan.copies]
    assert moved == [(0, 60.0), (1, 50.0)]
    assert plan.copies[0].start == pytest.approx(4.0)
    assert plan.requests[0].answered == pytest.approx(4.0 + 60e-6 + 1.0)
    assert plan.copies[1].start >= plan.requests[0].answered
