"""A traced step cut into micro-batches: what is repeated, what shrinks, what is shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.spec import load_workload
from experiments.hardware import resolve
from experiments.hardware.parts import Peaks
from experiments.memory.interface.microbatch import in_microbatches
from experiments.sources import model_of, model_step
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
    assert cut.seconds == pytest.approx(STEP.seconds)  # no device: all is arithmetic
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


def on_device(flops: list[float], moved: list[float], seconds: list[float]) -> list[float]:
    """Times of the first half of the step with these ops, on 10 FLOP/s and 1 B/s."""
    device = replace(
        resolve("v100-16g").device,
        peak_flops=Peaks({"float32": 10.0}),
        memory_bandwidth=1.0,
        compute_efficiency=1.0,
        memory_efficiency=1.0,
    )
    columns = {"flops": np.array(flops), "bytes_moved": np.array(moved), "seconds": np.array(seconds)}
    known = replace(STEP, ops=replace(STEP.ops, **columns))
    cut = in_microbatches(known, 2, device)
    return cut.ops.seconds.tolist()


def test_a_part_is_timed_by_roofline() -> None:
    # forward: 300 s of arithmetic, 220 of traffic, of which 140 are of w and x, which do not shrink: 150 a
    # part against 180. loss: traffic alone. backward: arithmetic alone; the second part reads g again. The
    # update is whole. Times are twice the roofline's.
    whole = [3000.0, 0.0, 9000.0, 0.0], [220.0, 88.0, 228.0, 300.0]
    seconds = on_device(*whole, [600.0, 176.0, 1800.0, 600.0])
    assert seconds == pytest.approx([2 * 180, 2 * 44, 2 * 450, 2 * 180, 2 * 44, 2 * 450, 600])


def test_without_flops_all_time_is_arithmetic_as_long_as_traffic_is_shorter() -> None:
    unknown = [np.nan] * 4
    seconds = on_device(unknown, [220.0, 88.0, 228.0, 300.0], [600.0, 88.0, 280.0, 300.0])
    # backward: 140 s of arithmetic a part; its traffic is 228 - 44, and 100 more where it adds to g.
    assert seconds == pytest.approx([300, 44, 184, 300, 44, 284, 300])


@pytest.mark.torch
@pytest.mark.parametrize("name", ["gpt2-tiny", "resnet18"])
def test_a_stored_step_in_parts_takes_as_long_as_the_model_captured_in_parts(name: str) -> None:
    pytest.importorskip("torch")
    device = resolve("v100-16g").device
    workload = load_workload({"source": f"zoo:{name}", "options": {"batch": 16}})
    source, _ = model_of(workload)
    whole, anew = (model_step(replace(source, micro_batches=parts), device) for parts in (1, 4))
    stored = in_microbatches(whole, 4, device)
    assert stored.seconds == pytest.approx(anew.seconds, rel=0.1)
    slower = whole.timed(3 * whole.ops.seconds, "measured", "a slow one")
    assert in_microbatches(slower, 4, device).seconds == pytest.approx(3 * stored.seconds)


def test_an_odd_share_is_refused() -> None:
    with pytest.raises(BadInput, match="batch of 6"):
        in_microbatches(replace(STEP, facts={"batch": 6}), 4)


def test_shapes_say_what_grows_with_the_batch() -> None:
    shapes = ((10, 10), (8, 5), (8, 10), (1,), (10, 10))
    known = replace(STEP, tensors=replace(STEP.tensors, shape=shapes), facts={"batch": 8})
    cut = in_microbatches(known, 4)
    sizes = dict(zip(cut.tensors.name, cut.tensors.bytes.tolist(), strict=True))
    assert (sizes["a"], sizes["l"]) == (20, 8)
