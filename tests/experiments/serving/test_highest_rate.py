"""The search for the highest load, where a limit is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.progress import silent
from experiments.core.spec import load_spec
from experiments.run import run
from experiments.serving.experiment.rates import max_rate
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.planning.highest_rate import MOST_TRIALS, find_highest
from experiments.serving.simulator import LatencyObjective, figures
from tests.experiments.serving.traces import policies_of, requests, serve, serve_paged


@given(limit=st.floats(0.05, 200), start=st.floats(0.1, 10))
def test_the_limit_is_found_from_either_side_in_a_dozen_trials(limit: float, start: float) -> None:
    asked: list[float] = []

    def attains(load: float) -> bool:
        asked.append(load)
        return load <= limit

    found = find_highest(attains, start, precision=0.05)
    assert found <= limit and len(asked) <= MOST_TRIALS
    if 1 / 16 < limit / start < 16:
        assert found == pytest.approx(limit, rel=0.06)


def test_what_attains_nothing_has_no_rate() -> None:
    assert find_highest(lambda load: False) == 0


REGULAR = requests(*[(20.0 * place, 1, 1) for place in range(200)])


@pytest.mark.parametrize("name", [*policies_of(ServingPolicy), *policies_of(PagedPolicy)])
def test_requests_of_one_pass_at_equal_gaps_come_as_often_as_passes_end(name: str) -> None:
    """A pass of one token takes 11 ms, which is the objective: 90.9 requests a second, one at a time."""
    knobs = {"max_batch": 1, "slo_ttft": 0.0111, "wanted_attainment": 0.99}
    policy = registry.create("serving", name, {**knobs, "block_size": 4} if is_paged(name) else knobs)
    assert isinstance(policy, ServingPolicy | PagedPolicy)
    serves = serve_paged if is_paged(name) else serve
    found = max_rate(REGULAR, policy, lambda trace: serves(trace, name, max_batch=1), silent)
    assert found["max_rate"] == pytest.approx(1 / 0.011, rel=0.03)


def is_paged(name: str) -> bool:
    return name in policies_of(PagedPolicy)


def test_normalized_latency_is_an_objective_of_its_own() -> None:
    """Alone a request of four tokens takes 10 + 1, then three times 11 ms: 11 ms for each of its tokens."""
    trace = requests((0, 1, 4))
    for limit, share in ((0.0111, 1.0), (0.0109, 0.0)):
        plan = serve_paged(trace, "vllm_v1")
        assert figures(plan, trace, LatencyObjective(normalized=limit))["slo_attainment"] == share


def test_a_search_says_what_it_lacks() -> None:
    policy = registry.create("serving", "orca", {"wanted_attainment": 0.9})
    assert isinstance(policy, ServingPolicy)
    with pytest.raises(BadInput, match="nothing says what is in time"):
        max_rate(REGULAR, policy, lambda trace: serve(trace, "orca"), silent)
    policy = replace(policy, slo_ttft=1.0)
    with pytest.raises(BadInput, match="all requests come at once"):
        max_rate(requests((0, 1, 1), (0, 1, 1)), policy, lambda trace: serve(trace, "orca"), silent)
    unasked = replace(policy, wanted_attainment=None)
    assert max_rate(REGULAR, unasked, lambda trace: serve(trace, "orca"), silent) == {}


def test_a_run_gives_the_highest_rate_within_twelve_simulations() -> None:
    """Tighter objectives are met at lower rates, on the device as from its sheet."""
    workload = {"source": "generated:poisson", "options": {"model": "llama2-7b", "limit": 100}}
    rates = []
    for limit in (0.05, 0.02):
        knobs = {"slo_normalized": limit, "wanted_attainment": 0.9}
        spec = {"family": "serving", "policy": "vllm_v1", "knobs": knobs, "workload": workload}
        rates.append(run(load_spec({**spec, "hardware": "a100-80g"})).metrics["max_rate"]["value"])
    assert rates[0] > rates[1] > 0
