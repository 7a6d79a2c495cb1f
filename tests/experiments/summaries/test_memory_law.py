"""What a step needs at any size is what a capture at that size says, to the byte."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.progress import silent
from experiments.summaries.memory_law import TERMS, MemoryLaw, _find_undominated, laws_of
from experiments.summaries.training_memory import PARTS, bytes_at_peak
from experiments.workloads.model import ModelSource


def law(peaks: list[list[int]], needs: list[list[int]]) -> MemoryLaw:
    """Of ops whose bytes are all activations."""
    rows = np.zeros((len(peaks), len(PARTS), len(TERMS)), np.int64)
    rows[:, PARTS.index("activations")] = peaks
    return MemoryLaw(2, 4, rows, np.array(needs))


def test_bytes_grow_with_powers_of_batch_and_sequence() -> None:
    """Of 10 bytes that stay, 20 that grow with the batch and 40 with batch and square of the sequence."""
    found = law([[10, 0, 0, 20, 0, 40]], [[1, 0, 0, 0, 0, 0]])
    assert found.peak(2, 4) == 10 + 20 + 40
    assert found.peak(4, 4) == 10 + 40 + 80
    assert found.peak(2, 8) == 10 + 20 + 4 * 40
    assert found.parts(2, 4)["activations"] == 70
    assert found.least(100, 100) == 1


def test_another_op_is_the_peak_at_another_size() -> None:
    found = law([[100, 0, 0, 0, 0, 0], [0, 0, 0, 20, 0, 0]], [[0] * 6])
    assert [found.peak(batch, 4) for batch in (2, 10, 20)] == [100, 100, 200]


def test_a_stored_law_is_the_same_and_anything_else_is_refused() -> None:
    found = law([[10, 0, 0, 20, 0, 40]], [[1, 0, 0, 0, 0, 0]])
    again = MemoryLaw.from_json(found.to_json())
    assert again.parts(3, 7) == found.parts(3, 7)
    for broken in ({}, {**found.to_json(), "peaks": [[1]]}, {**found.to_json(), "batch": 0}):
        with pytest.raises(BadInput):
            MemoryLaw.from_json(broken)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=30))
def test_what_is_left_out_can_never_be_the_largest(rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows)
    kept = table[_find_undominated(table)]
    for weights in ((1, 1, 1), (5, 0, 1), (0, 1, 9)):
        assert (table @ weights).max() == (kept @ weights).max()


@pytest.mark.torch
def test_it_is_the_captures_peak_at_every_size() -> None:
    """Captured at three sizes, asked for at others: odd ones, and with another op at the peak."""
    pytest.importorskip("torch")
    from experiments.profiling.capture import capture
    from experiments.profiling.memory_law import capture_laws

    source = ModelSource("zoo:gpt2-tiny", zoo="gpt2-tiny")

    def at(batch: int, sequence: int) -> ModelSource:
        return replace(source, options=WorkloadOptions(batch=batch, sequence=sequence))

    asked = at(9, 33)
    found = capture_laws(asked, capture(asked), silent).whole
    for batch, sequence in ((9, 33), (1, 64), (5, 7)):
        step = capture(at(batch, sequence))
        assert found.peak(batch, sequence) == step.live_peak
        assert found.parts(batch, sequence) == bytes_at_peak(step)
        assert found.least(batch, sequence) == step.op_need.max()
    assert len(found.peaks) < 60 < len(step.ops)


@pytest.mark.torch
def test_a_model_of_images_scales_with_its_batch_alone() -> None:
    pytest.importorskip("torch")
    from experiments.profiling.capture import capture
    from experiments.profiling.memory_law import capture_laws

    source = ModelSource("zoo:resnet18", zoo="resnet18")
    steps = {n: capture(replace(source, options=WorkloadOptions(batch=n, image=32))) for n in (2, 5)}
    asked = replace(source, options=WorkloadOptions(batch=2, image=32))
    assert capture_laws(asked, steps[2], silent).whole.peak(5) == steps[5].live_peak
    other = replace(asked, options=WorkloadOptions(batch=1, image=64, optimizer="sgd"))
    with pytest.raises(BadInput, match="other ops"):
        laws_of(steps[2], capture(other), None)
