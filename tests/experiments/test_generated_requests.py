"""Request traces drawn from a seed: rates, lengths and bursts as they are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.core.spec import Workload, load_spec
from experiments.run import run
from experiments.sources import jobs_of, requests_of
from experiments.workloads.generated_requests import KINDS, generate
from experiments.workloads.requests import RequestTrace


def drawn(kind: str, seed: int = 0, **options: Any) -> RequestTrace:
    return requests_of(Workload(f"generated:{kind}", options=WorkloadOptions(**options)), seed)[0]


@pytest.mark.parametrize(("kind", "variation"), [("poisson", 1.0), ("bursts", 4.0)])
def test_rate_variation_and_lengths(kind: str, variation: float) -> None:
    trace = generate(kind, 3, 5.0, 100_000)
    gaps = np.diff(trace.arrival)
    assert trace.arrival[0] == 0 and gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05)
    for column, low, high in ((trace.prompt, 32, 512), (trace.output, 1, 128)):
        assert (column.min(), column.max()) == (low, high)
        assert column.mean() == pytest.approx((low + high) / 2, rel=0.01)
    assert abs(np.corrcoef(trace.prompt, trace.output)[0, 1]) < 0.02


@pytest.mark.parametrize(("kind", "prompt", "output"), [("sharegpt", 161, 338), ("alpaca", 19, 58)])
def test_lengths_have_the_published_means_and_fit_a_context(kind: str, prompt: int, output: int) -> None:
    """As rounded from vLLM's figure 11; of geometric lengths half are below 0.69 of the mean."""
    trace = generate(kind, 3, 5.0, 100_000)
    assert (trace.prompt.mean(), trace.output.mean()) == pytest.approx((prompt, output), rel=0.03)
    assert np.median(trace.output) == pytest.approx(0.69 * output, rel=0.03)
    assert trace.prompt.min() == trace.output.min() == 1
    assert (trace.prompt + trace.output).max() <= 2048


@pytest.mark.parametrize(
    ("kind", "prompt", "output", "longest"),
    [("openchat", (1730, 5696), (415, 834), 8192), ("arxiv", (7059, 12985), (208, 371), 16384)],
)
def test_lengths_have_the_published_quantiles_before_long_requests_are_left_out(
    kind: str, prompt: tuple[int, int], output: tuple[int, int], longest: int
) -> None:
    """Sarathi-Serve's table 2: without the longest, one in 20 to 25, prompts are a little shorter."""
    trace = generate(kind, 3, 5.0, 100_000)
    assert (trace.prompt + trace.output).max() <= longest and trace.prompt.min() >= 1
    for column, (median, tail) in ((trace.prompt, prompt), (trace.output, output)):
        found = np.quantile(column, (0.5, 0.9))
        assert found[0] == pytest.approx(median, rel=0.08)
        assert found[1] == pytest.approx(tail, rel=0.20)
    assert len(generate(kind, 3, 5.0, 1)) == 1


def test_another_rate_is_the_same_requests_sooner_another_seed_is_others() -> None:
    slow, fast, other = drawn("bursts", rate=1.0), drawn("bursts", rate=4.0), drawn("bursts", 1, rate=1.0)
    assert slow.arrival == pytest.approx(fast.arrival * 4)
    assert (slow.prompt == fast.prompt).all() and not (slow.prompt == other.prompt).all()
    assert len(slow) == 300 and len(drawn("poisson", limit=7)) == 7


def test_a_run_draws_its_own_by_its_seed_and_says_so() -> None:
    def ttft(seed: int) -> float:
        told: dict[str, Any] = {"family": "serving", "policy": "orca", "hardware": "a100-80g", "seed": seed}
        told["workload"] = {"source": "generated:poisson", "options": {"limit": 40, "rate": 8.0}}
        found = run(load_spec(told))
        assert found.provenance["trace"]["assumed"][0] == f"40 requests drawn from seed {seed}, 8 per second"
        return float(found.metrics["ttft_mean"]["value"])

    assert ttft(0) == ttft(0) != ttft(1)


def test_what_is_not_drawn_is_refused_with_what_is() -> None:
    with pytest.raises(BadInput) as found:
        drawn("x")
    assert {"gavel", "philly", *KINDS} <= set(str(found.value.expected).split(", "))
    with pytest.raises(BadInput):
        jobs_of(Workload("generated:poisson"))
