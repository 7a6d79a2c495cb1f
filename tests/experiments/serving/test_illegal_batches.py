"""What no engine could carry out ends the run at once, and the request and the time are named."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from experiments.core.errors import ImpossiblePlan
from experiments.serving.interface import Admission, Batch, ServingView, Wait, violations
from experiments.serving.simulator import BatchEngine, simulate
from tests.experiments.serving.traces import engine, policy, requests

#: Request 0 has a prompt of 4 and an answer of 2 tokens, request 1 comes 100 ms later; there are 10 KV slots.
TRACE, SLOTS = requests((0, 4, 2), (100, 3, 1)), 10
WHOLE = Batch((0,), (4,), (0,), admit=(Admission(0, 6),))


@dataclass
class Says:
    """Answers with what it was given, in order."""

    answers: list[Any] = field(default_factory=list)

    def next_batch(self, view: ServingView) -> Batch | Wait:
        return cast(Batch, self.answers.pop(0))


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        (
            [Batch((0,), (4,), (0,))],
            "request 0 at t=0 s: runs but is not admitted, or is inside a batch already",
        ),
        (
            [Batch((1,), (4,), (0,), admit=(Admission(1, 4),))],
            "request 1 at t=0 s: is admitted but does not wait",
        ),
        (
            [Batch((0,), (4,), (0,), admit=(Admission(0, 11),))],
            "request 0 at t=0 s: is admitted with 11 slots: 11 of 10 KV slots would be reserved",
        ),
        ([Batch((0,), (4,), (0,), admit=(Admission(0, 0),))], "request 0 at t=0 s: is admitted with 0 slots"),
        ([Batch((0,), (0,), (0,), admit=(Admission(0, 6),))], "request 0 at t=0 s: runs with 0 tokens"),
        (
            [WHOLE, Batch((0,), (1,), (3,))],
            "request 0 at t=0.014 s: runs with a context of 3 tokens and has 4",
        ),
        ([WHOLE, Wait(answer=(0,))], "request 0 at t=0.014 s: is answered but has not finished"),
        ([Wait(answer=(1,))], "request 1 at t=0 s: is answered but has not finished"),
        ([WHOLE, Wait(reject=(0,))], "request 0 at t=0.014 s: is rejected but does not wait"),
        ([Batch()], "batch at t=0 s: is empty"),
        ([Batch((0, 0), (4, 4), (0, 0), admit=(Admission(0, 6),))], "batch at t=0 s: has a request twice"),
        (
            [Batch((0,), (4, 4), (0,), admit=(Admission(0, 6),))],
            "batch at t=0 s: has 1 requests, 2 tokens and 1 contexts",
        ),
        (
            [Batch((0,), (4,), (0,), steps=0, admit=(Admission(0, 6),))],
            "batch at t=0 s: is to run 0 times in chunks of 0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_illegal_batch_names_request_and_time(answers: Sequence[Batch | Wait], complaint: str) -> None:
    simulation = BatchEngine(TRACE, engine(kv_slots=SLOTS), policy("orca"))
    simulation.scheduler = Says([*answers])
    with pytest.raises(ImpossiblePlan, match=f"^{re.escape(complaint)}$"):
        simulation.run()


def test_an_answer_longer_than_its_reservation_is_a_violation() -> None:
    """Room for 1 token of an answer of 2: prompt and first answer token are 5 tokens in 4 + 1 slots; 3 make
    6.
    """
    fits = simulate(TRACE, engine(kv_slots=SLOTS), policy("orca", max_output=1))
    assert violations(fits, TRACE, SLOTS) == []
    longer = requests((0, 4, 3))
    plan = simulate(longer, engine(kv_slots=SLOTS), policy("orca", max_output=1))
    assert not math.isnan(plan.served[0].answered)
    assert violations(plan, longer, SLOTS) == ["request 0 has keys and values of 6 tokens in 5 slots"]
