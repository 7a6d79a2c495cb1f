"""What a step takes besides its layers: by an engine whose seconds are known, and by a real one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.workloads.requests import RequestTrace

pytest.importorskip("torch")
from experiments.serving import live
from experiments.serving.live.bookkeeping import Timed

LAYERS, BESIDES, EACH = 0.010, 0.001, 0.0002


class MadeUp:
    """An engine that never serves more than ``most`` at once, and was held up in one of its runs."""

    def __init__(self, most: int, held_up: int) -> None:
        self.most, self.held_up, self.runs = most, held_up, 0
        self.prompts: set[int] = set()

    def serve(self, trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Timed:
        self.runs += 1
        self.prompts.update(map(len, prompts))
        count = min(self.most, len(trace))
        load = StepLoad.of([Entry(request, 1, 4) for request in range(count)])
        seconds = LAYERS + BESIDES + EACH * count + (5.0 if self.runs == self.held_up else 0.0)
        return [(load, step * seconds) for step in range(8)]


@pytest.mark.parametrize("held_up", [0, 2])
def test_it_is_the_median_beyond_the_layers_for_each_number_of_requests(held_up: int) -> None:
    model, engine = live.build("zoo:gpt2-tiny", "float32", 0), MadeUp(64, held_up)
    curve = live.measure_bookkeeping(model, engine.serve, lambda load: LAYERS, 20)
    assert curve.points == (1, 2, 4, 8, 16, 32)
    assert curve.seconds == pytest.approx([BESIDES + EACH * count for count in curve.points])
    assert engine.prompts == {20}


def test_it_ends_where_a_policy_serves_no_more_at_once() -> None:
    model = live.build("zoo:gpt2-tiny", "float32", 0)
    curve = live.measure_bookkeeping(model, MadeUp(4, 0).serve, lambda load: LAYERS, 10**6)
    assert curve.points == (1, 2, 4)


def test_layers_that_take_longer_than_the_step_leave_nothing() -> None:
    model = live.build("zoo:gpt2-tiny", "float32", 0)
    curve = live.measure_bookkeeping(model, MadeUp(1, 0).serve, lambda load: 1.0, 20)
    assert curve.seconds == (0.0,)
