"""A traced step cut into micro-batches: what is repeated, what shrinks, what is shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.memory.interface.microbatch import FIXED_SHARE, in_microbatches
from tests.experiments.memory.steps import make_step

STEP = make_step(
    [
        ("forward", "forward", 4.0, ("w", "x"), ("a",)),
        ("loss", "forward", 1.0, ("a",), ("l",)),
        ("backward", "backward", 8.0, ("a", "l", "x"), ("g",)),
        ("update", "optimizer", 2.0, ("w", "g"), ("w",)),
    ],
    {"w": 100, "x": 40, "a": 80, "l": 8, "g": 100},
    persistent=("w", "x"),
)


def test_one_part_is_the_step_itself() -> None:
    assert in_microbatches(STEP, 1) is STEP


def test_activations_are_a_quarter_and_gradients_and_parameters_are_whole() -> None:
    cut = in_microbatches(STEP, 4)
    sizes = dict(zip(cut.tensors.name, cut.tensors.bytes.tolist(), strict=True))
    assert [sizes[name] for name in ("w", "g", "a", "a#1", "a#3", "l#2")] == [100, 100, 20, 20, 20, 2]
    assert "g#1" not in sizes


def test_the_passes_run_once_a_part_and_the_update_once() -> None:
    cut = in_microbatches(STEP, 2)
    assert cut.ops.name == (
        *("forward", "loss", "backward"),
        *("forward#1", "loss#1", "backward#1"),
        "update",
    )
    share = FIXED_SHARE + (1 - FIXED_SHARE) / 2
    assert cut.seconds == pytest.approx(2 * 13 * share + 2)
    assert cut.flops == pytest.approx(STEP.flops)


def test_each_part_holds_its_own_until_its_own_release() -> None:
    # a is held behind the backward pass, l behind the update, g, which all parts share, behind the loss.
    held = replace(STEP, release=np.array([-1, -1, 2, 3, 1]))
    cut = in_microbatches(held, 2)
    assert cut.release is not None
    released = dict(zip(cut.tensors.name, cut.release.tolist(), strict=True))
    assert released == {"w": -1, "x": -1, "a": 2, "l": 6, "g": 4, "a#1": 5, "l#1": 6}


def test_later_parts_add_to_the_gradient() -> None:
    cut = in_microbatches(STEP, 2)
    g = cut.tensors.name.index("g")
    assert g not in cut.inputs[2]
    assert g in cut.inputs[5]
    assert cut.uses[g].tolist() == [2, 5, 6]


def test_the_peak_falls_to_the_shared_bytes_and_one_part() -> None:
    # Whole: w 100, x 40, a 80, l 8, g 100. In four: a 20, l 2.
    assert STEP.live_peak == 328
    assert in_microbatches(STEP, 4).live_peak == 100 + 40 + 20 + 2 + 100


def test_an_odd_share_is_refused() -> None:
    with pytest.raises(BadInput, match="batch of 6"):
        in_microbatches(replace(STEP, facts={"batch": 6}), 4)


def test_shapes_say_what_grows_with_the_batch() -> None:
    shapes = ((10, 10), (8, 5), (8, 10), (1,), (10, 10))
    known = replace(STEP, tensors=replace(STEP.tensors, shape=shapes), facts={"batch": 8})
    cut = in_microbatches(known, 4)
    sizes = dict(zip(cut.tensors.name, cut.tensors.bytes.tolist(), strict=True))
    assert (sizes["a"], sizes["l"]) == (20, 8)
    assert np.isclose(cut.ops.seconds[:3], known.ops.seconds[:3] * (0.1 + 0.9 / 4)).all()
