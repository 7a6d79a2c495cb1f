"""Peak memory of a call, by hand: what a side holds, and the most that a call adds to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from experiments.compilation.live.backends.base import Compiled, Task  # noqa: E402
from experiments.compilation.live.peaks import peak_memory, storages_of  # noqa: E402

pytestmark = pytest.mark.torch

#: A weight of 4 x 4, a batch of 8 x 4 and a loss, in numbers of 4 bytes; the product and its ReLU are as
#: large as the batch.
WEIGHT, BATCH, SCALAR = 64, 128, 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).relu()


class InPlace(Model):
    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).relu_()


def task(training: bool = False) -> Task:
    return Task(Model(), (torch.ones(8, 4),), "cpu", training=training)


def called(call: Callable[..., Any], given: Task) -> Callable[[], Any]:
    return torch.no_grad()(lambda: call(*given.inputs))


def test_eager_has_weight_batch_product_and_relu_at_once_and_in_place_one_less() -> None:
    given, ours = task(), InPlace()
    found = peak_memory(given, Compiled(ours, 0, 0), called(ours, given), called(given.module, given))
    assert (found.eager, found.ours) == (WEIGHT + 3 * BATCH, WEIGHT + 2 * BATCH)
    assert found.compression_ratio == 448 / 320


def test_what_compiling_left_is_ours_and_a_weight_of_its_own_is_counted_once() -> None:
    """A function shares the model's weight; a module has its own, which it was made with."""
    given = task()
    eager = called(given.module, given)
    shared = Compiled(given.module.forward, 0, 0, kept_bytes=1000)
    assert peak_memory(given, shared, eager, eager).ours == WEIGHT + 3 * BATCH + 1000
    own = Compiled(Model(), 0, 0, kept_bytes=1000)
    assert peak_memory(given, own, eager, eager).ours == WEIGHT + 3 * BATCH + (1000 - WEIGHT)


def test_gradients_are_part_of_a_training_step_and_are_gone_before_the_next() -> None:
    """Each side starts without them, so that the second is not charged less."""
    given = task(training=True)

    def step() -> None:
        given.module(*given.inputs).sum().backward()

    step()
    first, second = (peak_memory(given, Compiled(given.module, 0, 0), step, step) for _ in range(2))
    assert first == second
    assert first.ours == first.eager == WEIGHT + 3 * BATCH + 2 * SCALAR, "batch, ReLU and its gradient"
    assert given.module.get_parameter("weight").grad is None


def test_views_share_a_storage_and_tensors_elsewhere_are_not_counted() -> None:
    whole = torch.ones(10)
    held = [whole, whole[:3], whole.view(2, 5), torch.ones(2, device="meta"), torch.ones(2)]
    assert sorted(storages_of(held, "cpu").values()) == [8, 40]


def test_a_run_has_both_peaks_and_their_ratio_as_metrics() -> None:
    from experiments.compilation.experiment.trials import result_of
    from experiments.compilation.live import runner
    from experiments.compilation.policies.eager import Eager
    from experiments.core.progress import silent
    from experiments.core.registry import load_module

    given = task()
    trial = runner.follow(Eager().recipe(given.whole), given, 0, silent)
    metrics = result_of(trial, "", load_module("compilation", "live")).metrics
    assert metrics["peak_memory"] == metrics["eager_peak_memory"] == WEIGHT + 3 * BATCH
    assert metrics["compression_ratio"] == 1.0
    assert metrics["speedup_low"] <= metrics["speedup"] <= metrics["speedup_high"]
    told = result_of(replace(trial, peaks=None), "", load_module("compilation", "live"))
    assert "peak_memory" not in told.metrics
