"""What provenance says of model states is shown; what no run of ours says is not."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.core.precision import MIXED, state_bytes, states_in_words, states_note


def test_states_of_a_run_are_told_by_part() -> None:
    note = states_note(state_bytes("bfloat16", "adamw", MIXED), MIXED)
    assert states_in_words({"timing": "roofline", **note}) == (
        "2 weights + 2 gradients + 4 master weights + 8 optimizer state = 16 bytes a parameter (bf16-mixed)"
    )


@pytest.mark.parametrize(
    "states",
    [
        None,
        "16 bytes",
        {"precision": MIXED},
        {"precision": "fp8", "bytes_per_parameter": {"weights": 1}},
        {"precision": MIXED, "bytes_per_parameter": {"weights": "2"}},
        {"precision": MIXED, "bytes_per_parameter": {"we\0ights": 2}},
    ],
)
def test_what_a_sandbox_may_have_written_there_is_nothing(states: Any) -> None:
    assert states_in_words({"states": states}) == ""
