"""Micro-batches that take turns in a pipeline: what is worked out ahead is what the events do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.progress import Progress, silent
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    InstanceShape,
    PhasePlan,
    phase_violations,
    place_instances,
)
from experiments.serving.simulator import LatencyObjective
from experiments.serving.simulator.phases import (
    InstanceEngine,
    engine,
    phase_curves,
    phase_figures,
    simulate_phases,
)
from experiments.serving.simulator.phases.instance import InstanceRun
from experiments.serving.simulator.step_prices import SheetPrice
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.phases.by_hand import fabric, policy
from tests.experiments.serving.traces import LinearCost, requests

#: 10 ms, 1 ms per token, and 50 us for each token that is read again: passes grow longer.
PRICE = SheetPrice(LinearCost(0.010, 0.001, 5e-5))
#: 9.999 ms and irregular, so that hardly two things happen at one moment.
UNEVEN = SheetPrice(LinearCost(0.0099991, 0.00100037, 5.1e-5))


def serve(
    trace: RequestTrace,
    stages: int,
    blocks: int = 10**4,
    batch: int = 256,
    price: SheetPrice = PRICE,
    progress: Progress = silent,
) -> PhasePlan:
    """By DistServe with one instance of a stage for prompts and one of several for answers."""
    wanted = [(PREFILL, InstanceShape(1, 1)), (DECODE, InstanceShape(stages, 1))]
    instances = place_instances(wanted, 1, 1 + stages)
    assert instances is not None
    made = policy("distserve", max_batch=batch)
    engines = [InstanceEngine(price, 10**4), InstanceEngine(price, blocks)]
    told: dict[str, Any] = {"block_size": made.block_size, "max_batch": batch, "progress": progress}
    plan = simulate_phases(trace, instances, made.begin(instances), engines, fabric(0.003), **told)
    assert phase_violations(plan, trace) == []
    return plan


def one_by_one(*asked: Any, **told: Any) -> PhasePlan:
    with patch.object(InstanceRun, "take_turns", lambda *_: None):
        return serve(*asked, **told)


rows = st.lists(
    st.tuples(st.integers(0, 900), st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=12
).map(sorted)


@settings(max_examples=150, deadline=None)
@given(rows=rows, stages=st.integers(2, 4), blocks=st.sampled_from([60, 90, 10**4]), batch=st.integers(1, 12))
def test_turns_are_what_events_do_pass_by_pass(
    rows: list[tuple[int, int, int]], stages: int, blocks: int, batch: int
) -> None:
    """Times of every request, gaps, passes and what is lost, to the last bit."""
    trace = requests(*rows)
    ahead, slow = (run(trace, stages, blocks, batch, UNEVEN) for run in (serve, one_by_one))
    assert repr(ahead.serving.served) == repr(slow.serving.served)
    assert sorted(ahead.serving.gaps) == sorted(slow.serving.gaps)
    counts = [
        (one.serving.passes, one.recomputed, one.preemptions, one.copies, one.held_at_end)
        for one in (ahead, slow)
    ]
    assert counts[0] == counts[1]
    figures = [phase_figures(one, trace, LatencyObjective(0.5, 0.05)) for one in (ahead, slow)]
    for found in figures:
        del found["peak_kv_tokens"]  # looked at where passes are booked
    assert figures[0] == pytest.approx(figures[1])


@pytest.mark.parametrize("stages", [2, 3])
def test_an_answer_alone_takes_its_passes_one_after_another(stages: int) -> None:
    """Each pass takes 11 ms a stage, and 50 us for each token read, itself one: of 5 tokens to 203."""
    plan = serve(requests((0, 4, 200)), stages)
    seconds = [stages * (0.011 + 5e-5 * read) for read in range(5, 204)]
    served = plan.serving.served[0]
    assert served.last_token - served.first_token == pytest.approx(0.003 + sum(seconds), rel=1e-9)
    assert plan.serving.passes == 1 + 199


def test_long_answers_in_a_pipeline_are_few_rows_with_the_same_work() -> None:
    trace = replace(requests((0, 8, 3000), (20, 8, 3000), (40, 8, 2999)), name="long")
    ahead, slow = serve(trace, 3), one_by_one(trace, 3)
    assert ahead.serving.passes == slow.serving.passes
    assert len(ahead.passes) < 200 < len(slow.passes)
    busy = [sum(phase_curves(plan, trace)["busy.decode 1"].y) for plan in (ahead, slow)]
    assert busy[0] == pytest.approx(busy[1], rel=0.02)


def test_a_long_simulation_gives_signs_of_life_and_stops_when_nobody_wants_it() -> None:
    """Before the first of nine answers is over."""
    heard: list[str] = []

    def cancel(fraction: float, step: str) -> None:
        heard.append(step)
        if len(heard) == 2:
            raise InterruptedError

    with patch.object(engine, "LOOKS", 8), pytest.raises(InterruptedError):
        serve(requests(*[(row, 4, 300) for row in range(9)]), 2, progress=cancel)
    assert heard == ["", ""]
