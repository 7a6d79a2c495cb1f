"""The search for the highest load, where a limit is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.progress import silent
from experiments.core.rate_search import MOST_TRIALS, RateGoal, RateSearch, find_highest
from experiments.core.spec import load_spec
from experiments.run import run
from experiments.serving.experiment.rates import NOT_ASKED, max_rate
from experiments.serving.interface import ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.simulator import LatencyObjective, figures
from experiments.workloads.requests import RequestTrace
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


@given(limit=st.floats(0.5, 20), told=st.lists(st.floats(0.1, 40), max_size=6), order=st.randoms())
def test_a_search_goes_on_from_whatever_it_is_told_in_any_order(
    limit: float, told: list[float], order: random.Random
) -> None:
    search, shuffled = RateSearch(precision=0.05), RateSearch(precision=0.05)
    for load in told:
        search.tell(load, load <= limit)
    for load in order.sample(told, len(told)):
        shuffled.tell(load, load <= limit)
    assert shuffled.next_load == search.next_load
    while (load := search.next_load) is not None:
        assert load not in search.attained
        before = search.most_left
        search.tell(load, load <= limit)
        assert search.most_left < before
    assert search.most_left == 0 and len(search.attained) <= MOST_TRIALS
    assert search.low <= limit < search.high


def test_a_load_above_one_that_failed_is_never_the_answer() -> None:
    search = RateSearch()
    for load, attains in ((1.0, True), (4.0, False), (8.0, True)):
        search.tell(load, attains)
    assert (search.low, search.high, search.next_load) == (1.0, 4.0, 2.5)


def test_a_goal_is_met_where_all_that_it_asks_is_kept() -> None:
    figures = {"slo_attainment": 0.9, "tbt_p99": 0.1, "scheduling_delay_p50": 2.0}
    assert RateGoal(0.9, 0.1).is_met(figures) and RateGoal(0.9, 0.1).is_asked
    assert not RateGoal(0.91).is_met(figures) and not RateGoal(None, 0.09).is_met(figures)
    assert not RateGoal(None, 0.1, 1.9).is_met(figures)
    assert not RateGoal(None, 0.1).is_met({"tbt_p99": 0.1}), "nobody was served"
    assert not RateGoal().is_asked and RateGoal().is_met({})


TWO_DEVICES = {"cluster": {"nodes": 1, "devices_per_node": 2, "device": "a100-80g"}}
REGULAR = requests(*[(20.0 * place, 1, 1) for place in range(200)])


@pytest.mark.parametrize("name", [*policies_of(ServingPolicy), *policies_of(PagedPolicy)])
def test_requests_of_one_pass_at_equal_gaps_come_as_often_as_passes_end(name: str) -> None:
    """A pass of one token takes 11 ms, which is the objective: 90.9 requests a second, one at a time."""
    knobs = {"max_batch": 1, "slo_ttft": 0.0111, "wanted_attainment": 0.99}
    policy = registry.create("serving", name, {**knobs, "block_size": 4} if is_paged(name) else knobs)
    assert isinstance(policy, ServingPolicy | PagedPolicy)
    serves = serve_paged if is_paged(name) else serve

    def figures_of(trace: RequestTrace) -> dict[str, float]:
        return figures(serves(trace, name, max_batch=1), trace, LatencyObjective(0.0111))

    found = max_rate(REGULAR, policy, figures_of, silent)
    assert found.metrics["max_rate"] == pytest.approx(1 / 0.011, rel=0.03)


def is_paged(name: str) -> bool:
    return name in policies_of(PagedPolicy)


def test_normalized_latency_is_an_objective_of_its_own() -> None:
    """Alone a request of four tokens takes 10 + 1, then three times 11 ms: 11 ms for each of its tokens."""
    trace = requests((0, 1, 4))
    for limit, share in ((0.0111, 1.0), (0.0109, 0.0)):
        plan = serve_paged(trace, "vllm_v1")
        assert figures(plan, trace, LatencyObjective(normalized=limit))["slo_attainment"] == share


def no_figures(trace: RequestTrace) -> dict[str, float]:
    raise AssertionError("nothing is to be simulated")


def test_a_search_says_what_it_lacks() -> None:
    policy = registry.create("serving", "orca", {"wanted_attainment": 0.9})
    assert isinstance(policy, ServingPolicy)
    with pytest.raises(BadInput, match="nothing says what is in time"):
        max_rate(REGULAR, policy, no_figures, silent)
    policy = replace(policy, slo_ttft=1.0)
    with pytest.raises(BadInput, match="all requests come at once"):
        max_rate(requests((0, 1, 1), (0, 1, 1)), policy, no_figures, silent)
    unasked = replace(policy, wanted_attainment=None)
    assert max_rate(REGULAR, unasked, no_figures, silent) == NOT_ASKED


def test_requests_that_are_in_time_even_all_at_once_have_no_highest_rate_and_it_says_so() -> None:
    """Of 200 passes of 11 ms the last ends after 2.2 s, within 3 s however fast they come; not within 2 s."""
    said = {}
    for limit in (3.0, 2.0):
        policy = registry.create("serving", "orca", {"slo_ttft": limit, "wanted_attainment": 1.0})
        assert isinstance(policy, ServingPolicy)

        def figures_of(trace: RequestTrace, limit: float = limit) -> dict[str, float]:
            return figures(serve(trace, "orca", max_batch=1), trace, LatencyObjective(limit))

        said[limit] = max_rate(REGULAR, policy, figures_of, silent).warnings
    assert said[2.0] == ()
    assert "no highest one is known" in said[3.0][0]


def warnings_of(gap: float, limit: float) -> tuple[float, tuple[str, ...]]:
    """The rate found where 200 requests of one token come every ``gap`` ms, one at a time."""
    trace = requests(*[(gap * place, 1, 1) for place in range(200)])
    policy = registry.create("serving", "orca", {"slo_ttft": limit, "wanted_attainment": 0.99})
    assert isinstance(policy, ServingPolicy)

    def figures_of(trace: RequestTrace) -> dict[str, float]:
        return figures(serve(trace, "orca", max_batch=1), trace, LatencyObjective(limit))

    found = max_rate(trace, policy, figures_of, silent)
    return found.metrics["max_rate"], found.warnings


def test_a_search_that_began_too_far_away_says_between_which_rates_it_ended() -> None:
    """Passes of 11 ms are in time up to 90.9/s: from 0.05/s eleven doublings reach 51.2/s and 102.4/s."""
    found, (said,) = warnings_of(20_000.0, 0.0111)
    assert found == pytest.approx(51.2)
    assert "from 51.2 to 102.4 requests/s" in said
    for near in (20.0, 1.0):
        assert warnings_of(near, 0.0111) == (pytest.approx(1 / 0.011, rel=0.03), ())


def test_a_search_that_found_no_rate_says_down_to_which() -> None:
    """No pass ends within 10 ms, however seldom one is asked for: from 50/s eleven halvings are tried."""
    found, (said,) = warnings_of(20.0, 0.010)
    assert found == 0
    assert f"down to {50 / 2**11:.4g} requests/s" in said


#: Prompts of 40 tokens at equal gaps, with answers of five.
STALLING = requests(*[(100.0 * place, 40, 5) for place in range(100)])


@pytest.mark.parametrize(("limit", "rate"), [(0.0655, 1 / 0.064), (0.0509, 1 / 0.094)])
def test_the_tail_between_tokens_is_kept_until_prompts_stall_decodes(limit: float, rate: float) -> None:
    """vLLM's first scheduler: a prompt takes 50 ms, then four tokens 11 ms each, 94 ms together.

    As long as nobody meets another, the gaps are 11 ms. Sooner a prompt is between two tokens of others; one
    at a time up to every 64 ms, a prompt and a step of four decodes. Then two prompts stall them at once.
    """
    policy = registry.create("serving", "vllm_paged", {"slo_tbt_p99": limit, "slo_delay_p50": 0.3})
    assert isinstance(policy, PagedPolicy)

    def figures_of(trace: RequestTrace) -> dict[str, float]:
        return figures(serve_paged(trace, "vllm_paged"), trace)

    found = max_rate(STALLING, policy, figures_of, silent).metrics["max_rate"]
    assert found == pytest.approx(rate, rel=0.04)


def test_the_delay_is_that_of_half_of_the_requests_until_their_first_pass() -> None:
    """One at a time: they wait 0, 50 and 100 ms less the 10 ms between their arrivals."""
    trace = requests((0, 40, 1), (10, 40, 1), (20, 40, 1))
    found = figures(serve_paged(trace, "vllm_paged", max_batch=1), trace)
    assert found["scheduling_delay_p50"] == pytest.approx(0.040)


def test_a_run_gives_the_highest_rate_within_twelve_simulations() -> None:
    """Tighter objectives are met at lower rates, on the device as from its sheet."""
    workload = {"source": "generated:poisson", "options": {"model": "llama2-7b", "limit": 100}}
    rates: list[float] = []
    for limit in (0.05, 0.02):
        knobs = {"slo_normalized": limit, "wanted_attainment": 0.9}
        spec = {"family": "serving", "policy": "vllm_v1", "knobs": knobs, "workload": workload}
        rates.append(run(load_spec({**spec, "hardware": "a100-80g"})).metrics["max_rate"]["value"])
    assert rates[0] > rates[1] > 0


def test_a_run_tells_the_rates_that_it_tried_with_what_they_gave() -> None:
    """Every rate up to the highest is kept, every one above it not."""
    workload = {"source": "generated:poisson", "options": {"model": "llama2-7b", "limit": 100}}
    knobs = {"slo_tpot": 0.02, "wanted_attainment": 0.9}
    spec = {"family": "serving", "policy": "vllm_v1", "knobs": knobs, "workload": workload}
    outcome = run(load_spec({**spec, "hardware": "a100-80g"}))
    highest = outcome.metrics["max_rate"]["value"]
    tried = outcome.series["slo_attainment_by_rate"]
    assert tried["x"] == sorted(tried["x"]) and highest in tried["x"] and tried["x_unit"] == "requests/s"
    assert [share >= 0.9 for share in tried["y"]] == [rate <= highest for rate in tried["x"]]


@pytest.mark.parametrize("policy", ["distserve", "splitwise"])
def test_instances_for_prompts_and_for_answers_have_a_highest_rate(policy: str) -> None:
    """At the rate found nine of ten requests are in time, at a tenth more they are not."""
    workload = {"source": "generated:poisson", "options": {"model": "opt-13b", "limit": 150}}
    knobs = {"slo_ttft": 0.2, "slo_tpot": 0.03}
    asked = {"family": "serving", "policy": policy, "hardware": TWO_DEVICES}

    def find(rate: float, **more: object) -> dict[str, float]:
        options = {**workload["options"], "rate": rate}
        spec = load_spec({**asked, "workload": {**workload, "options": options}, "knobs": {**knobs, **more}})
        return {name: row["value"] for name, row in run(spec).metrics.items()}

    highest = find(2.0, find_rate=True)["max_rate"]
    assert highest > 0
    assert find(highest)["slo_attainment"] >= 0.9 > find(1.1 * highest)["slo_attainment"]
    assert "max_rate" not in find(2.0)
