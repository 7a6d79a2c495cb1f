"""A model's step with its batch in micro-batches: the same sums, a share of the activations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from experiments.core.errors import BadInput  # noqa: E402
from experiments.core.options import WorkloadOptions  # noqa: E402
from experiments.profiling import cache  # noqa: E402
from experiments.workloads.model import ModelSource  # noqa: E402
from tests.experiments.captures import trace  # noqa: E402

pytestmark = pytest.mark.torch


def gpt(parts: int, batch: int = 8) -> ModelSource:
    options = WorkloadOptions(batch=batch, optimizer="adamw")
    return ModelSource("zoo:gpt2-tiny", zoo="gpt2-tiny", options=options, micro_batches=parts)


def lstm(parts: int) -> ModelSource:
    """Its series has the steps first and the samples second."""
    options = WorkloadOptions(batch=8, sequence=2, optimizer="sgd")
    sizes = {"layers": 2, "hidden": 32}
    return ModelSource("zoo:lstm", zoo="lstm", sizes=sizes, options=options, micro_batches=parts)


@pytest.mark.parametrize("model", [gpt, lstm])
def test_four_parts_update_the_parameters_as_the_whole_batch_does(
    model: Callable[[int], ModelSource],
) -> None:
    whole, parts = trace(model(1)), trace(model(4))
    values, shares = whole.make_inputs(seed=3), parts.make_inputs(seed=3)
    with torch.no_grad():
        loss, shared = whole.graph_module(*values), parts.graph_module(*shares)
    assert float(shared) == pytest.approx(float(loss), rel=1e-6)
    for one, other in zip(values, shares, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_the_graph_is_bitwise_the_eager_step() -> None:
    traced = trace(gpt(2))
    first, second = traced.make_inputs(seed=1), traced.make_inputs(seed=1)
    with torch.no_grad():
        loss = traced.graph_module(*first)
    expected = traced.eager(*second)
    assert torch.equal(loss, expected)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_activations_shrink_with_the_part_and_the_rest_does_not() -> None:
    whole, parts = trace(gpt(1)).step, trace(gpt(4)).step
    assert parts.persistent_bytes == whole.persistent_bytes
    assert parts.flops == pytest.approx(whole.flops, rel=0.01)
    gradients = whole.live_bytes[-1] - whole.persistent_bytes
    saved = whole.live_peak - whole.persistent_bytes
    assert parts.live_peak - parts.persistent_bytes < 0.3 * saved + gradients + 2e6


def test_a_share_that_is_no_divisor_is_refused() -> None:
    with pytest.raises(BadInput, match="batch of 8 is not 3"):
        trace(gpt(3))


def test_each_number_of_parts_is_a_capture_of_its_own() -> None:
    assert cache.key(gpt(1)) != cache.key(gpt(2))
