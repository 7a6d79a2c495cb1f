"""Schedulers over KV blocks: the steps worked out by hand, and what holds for any requests."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.errors import Infeasible
from experiments.serving.interface import ServingPlan, violations
from experiments.serving.interface.blocks import BlockPool
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.policies.sarathi_chunked import SarathiChunked
from experiments.serving.simulator import figures
from experiments.serving.simulator.paged import simulate_paged
from experiments.serving.simulator.step_prices import SheetPrice
from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import (
    LinearCost,
    ToyPrice,
    answered,
    engine,
    policies_of,
    requests,
    serve,
    serve_paged,
)

#: Three requests of the cards: A and B at once, C a little later.
THREE = requests((0, 4, 4), (0, 2, 1), (5, 3, 2))
#: Two alike that together outgrow eight blocks of four.
TWO = requests((0, 12, 8), (0, 12, 8))
PAGED = policies_of(PagedPolicy)
every_policy = pytest.mark.parametrize("name", PAGED)
#: Those that give a sequence one token in a pass.
plain_policies = pytest.mark.parametrize("name", [name for name in PAGED if name != "speculative"])


def ends(plan: ServingPlan) -> list[float]:
    return [round(row.end * 1e3, 6) for row in plan.iterations]


def tokens(plan: ServingPlan) -> list[tuple[int, int]]:
    """Of each stretch of steps: tokens in a step, and how many steps."""
    return [(row.tokens, row.steps) for row in plan.iterations]


def test_prompts_of_vllms_first_scheduler_stall_decodes() -> None:
    """A's longest gap is the 25 ms in which C's prompt runs; under Orca it was 14 ms."""
    plan = serve_paged(THREE, "vllm_paged", max_batch=2)
    assert answered(plan) == [63, 16, 41]
    assert max(plan.gaps) * 1e3 == pytest.approx(25)


@pytest.mark.parametrize("caching", [False, True])
def test_the_later_request_gives_way_and_computes_what_nobody_holds_any_more(caching: bool) -> None:
    """In step 6 A needs a fifth block: B, with 5 tokens out, is preempted. A ends in step 8, B goes on in 9:
    with 17 tokens, or with the 5 of the block that A took.
    """
    plan = serve_paged(TWO, "vllm_v1", blocks=8, prefix_caching=caching)
    assert tokens(plan) == [(24, 1), (2, 4), (1, 1), (1, 2), (5 if caching else 17, 1), (1, 2)]
    assert plan.memory is not None
    assert plan.memory.recomputed == (4 if caching else 16)
    assert (plan.memory.preemptions, plan.memory.hits) == (1, 0)
    assert plan.served[1].preempted[0] == pytest.approx((0.082, 0.115))
    paged = serve_paged(TWO, "vllm_paged", blocks=8, watermark=0.0)
    assert tokens(paged) == [(24, 1), (2, 4), (1, 1), (1, 2), (17, 1), (1, 2)]


def test_a_swapped_request_computes_nothing_again() -> None:
    plan = serve_paged(TWO, "vllm_paged", blocks=8, watermark=0.0, preemption="swap", host_blocks=8)
    assert plan.memory is not None
    assert (plan.memory.swapped_blocks, plan.memory.recomputed) == (8, 0)
    assert answered(plan) == [115, 148]
    without = serve_paged(TWO, "vllm_paged", blocks=8, watermark=0.0, preemption="swap", host_blocks=3)
    assert without.memory is not None and without.memory.swapped_blocks == 0
    assert answered(without) == [115, 164]


def test_the_watermark_admits_99_of_100_blocks_and_refuses_all_of_them() -> None:
    plan = serve_paged(requests((0, 396, 1), (0, 400, 1)), "vllm_paged", blocks=100)
    assert [served.rejected for served in plan.served] == [False, True]
    assert "watermark" in plan.served[1].reason


@pytest.mark.parametrize(
    ("padded", "steps"), [(False, [50, 30, 70]), (True, [40, 40, 70])], ids=["tokens", "padded"]
)
def test_a_limit_of_padded_tokens_counts_every_prompt_as_the_longest(padded: bool, steps: list[int]) -> None:
    """Of 60: 10 and 30 are 2 x 30, with 10 more 3 x 30; what is longer has a step of its own."""
    trace = requests((0, 10, 1), (0, 30, 1), (0, 10, 1), (0, 30, 1), (0, 70, 1))
    plan = serve_paged(trace, "vllm_paged", blocks=1000, max_tokens=60, padded=padded)
    assert [count for count, _ in tokens(plan)] == steps


def test_parts_of_prompts_leave_no_gap_above_a_step() -> None:
    plan = serve_paged(THREE, "sarathi_chunked", token_budget=4, watermark=0.0)
    assert ends(plan) == [14, 28, 41, 53]
    assert answered(plan) == [53, 28, 53]
    assert sorted(round(gap * 1e3, 6) for gap in plan.gaps) == [12, 12, 13, 14]


def test_an_objective_chooses_the_largest_budget_that_keeps_it() -> None:
    """10 ms and 1 ms per token: 14 ms are four tokens, 400 ms are 390 and so three tiles of 128."""
    plan = serve_paged(THREE, "sarathi_chunked", slo_tbt=0.014, watermark=0.0)
    assert ends(plan) == [14, 28, 41, 53]
    policy = registry.create("serving", "sarathi_chunked", {"slo_tbt": 0.4})
    assert isinstance(policy, SarathiChunked)
    assert policy.settle(ToyPrice(), [4, 2, 3]).token_budget == 384
    with pytest.raises(Infeasible, match="one token behind 4 takes 11 ms, over 10 ms"):
        serve_paged(THREE, "sarathi_chunked", slo_tbt=0.010)


rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=20
).map(sorted)


@settings(max_examples=60)
@given(rows=rows, batch=st.integers(1, 8))
def test_with_an_endless_budget_prompts_run_as_under_orca(
    rows: list[tuple[int, int, int]], batch: int
) -> None:
    trace = requests(*rows)
    plan = serve_paged(trace, "sarathi_chunked", token_budget=10**6, max_batch=batch, watermark=0.0)
    assert answered(plan) == pytest.approx(answered(serve(trace, "orca", max_batch=batch, max_output=12)))


@settings(max_examples=60)
@given(rows=rows, objective=st.floats(0.014, 0.4), batch=st.integers(1, 8))
def test_no_step_is_longer_than_the_objective_of_its_budget(
    rows: list[tuple[int, int, int]], objective: float, batch: int
) -> None:
    """Of a device whose steps also take 50 us for each token that is read again."""
    price = SheetPrice(LinearCost(0.010, 0.001, 5e-5))
    made = registry.create("serving", "sarathi_chunked", {"slo_tbt": objective, "max_batch": batch})
    assert isinstance(made, SarathiChunked)
    trace = requests(*rows)
    longest = int((trace.prompt + trace.output).max())
    plan = simulate_paged(trace, replace(made, context=longest).settle(price, [1]), 10**4, price)
    assert max(row.end - row.start for row in plan.iterations if row.steps == 1) <= objective + 1e-9
    assert max(plan.gaps, default=0) <= objective + 1e-9


@every_policy
@settings(max_examples=80)
@given(rows=rows, blocks=st.integers(4, 60), batch=st.integers(1, 6))
def test_every_request_is_answered_or_refused_and_all_blocks_come_back(
    name: str, rows: list[tuple[int, int, int]], blocks: int, batch: int
) -> None:
    trace = requests(*rows)
    plan = serve_paged(trace, name, blocks=blocks, max_batch=batch)
    assert violations(plan, trace, blocks * 4) == []
    for served, (_, prompt, output) in zip(plan.served, rows, strict=True):
        assert served.rejected != (not math.isnan(served.answered))
        if prompt + output <= (blocks - 1) * 4:
            assert not served.rejected, "it fits alone"
    assert plan.memory is not None and plan.memory.held_at_end == 0
    found = figures(plan, trace)
    assert found["requests"] == len(rows) and found["unfinished_requests"] == 0


def test_a_prompt_that_the_watermark_never_admits_is_refused_and_nobody_waits_behind_it() -> None:
    """Six blocks of ten, five of which are to be left over; the next prompt takes 14 ms, its token 11."""
    plan = serve_paged(requests((0, 24, 2), (0, 4, 2)), "sarathi_chunked", blocks=10, watermark=0.5)
    assert plan.served[0].rejected and "watermark" in plan.served[0].reason
    assert plan.served[1].answered == pytest.approx(0.025)


def test_alone_a_swapped_request_comes_back_whatever_the_watermark_leaves_free() -> None:
    """Prompts of 8 take 26 ms, eight decodes of both 12 ms each, and 16 tokens of each fill 8 blocks of 4.

    The second leaves; the first ends after four steps of 11 ms. The second has eleven to go: its four blocks,
    one more and the watermark's four are nine, but nobody else is there.
    """
    knobs = {"watermark": 0.5, "preemption": "swap", "host_blocks": 8}
    plan = serve_paged(requests((0, 8, 13), (0, 8, 20)), "vllm_paged", blocks=8, **knobs)
    assert answered(plan) == [26 + 8 * 12 + 4 * 11, 26 + 8 * 12 + 4 * 11 + 11 * 11]


@settings(max_examples=200)
@given(
    rows=rows,
    blocks=st.integers(4, 40),
    watermark=st.sampled_from([0.0, 0.01, 0.3, 0.5]),
    host=st.integers(0, 40),
    preemption=st.sampled_from(["auto", "recompute", "swap"]),
    sequences=st.integers(1, 3),
    decoding=st.sampled_from(["sampling", "beam"]),
)
def test_none_is_left_waiting_on_the_host_or_behind_the_watermark(
    rows: list[tuple[int, int, int]], blocks: int, watermark: float, host: int, **knobs: object
) -> None:
    trace, told = requests(*rows), {"watermark": watermark, "host_blocks": host, **knobs}
    for name, values in (("vllm_paged", told), ("sarathi_chunked", {"watermark": watermark})):
        plan = serve_paged(trace, name, blocks=blocks, **values)
        for served in plan.served:
            assert served.rejected != (not math.isnan(served.answered))
        assert plan.memory is not None and plan.memory.held_at_end == 0


@plain_policies
@settings(max_examples=80)
@given(rows=rows, blocks=st.integers(4, 60), known=st.integers(0, 3))
def test_what_is_computed_is_each_token_but_the_last_what_is_recomputed_and_not_what_is_found(
    name: str, rows: list[tuple[int, int, int]], blocks: int, known: int
) -> None:
    """Of all prompts the first ``known`` full blocks are the same, where they are as long."""
    fitting = [row for row in rows if row[1] + row[2] <= (blocks - 1) * 4]
    if not fitting:
        return
    trace = with_hashes(requests(*fitting), *[list(range(min(known, row[1] // 4))) for row in fitting])
    plan = serve_paged(trace, name, blocks=blocks, max_batch=4)
    computed = sum(row.tokens * row.steps for row in plan.iterations)
    memory = plan.memory
    assert memory is not None
    needed = sum(prompt + output - 1 for _, prompt, output in fitting)
    assert computed == needed + memory.recomputed - memory.hits


@settings(max_examples=100)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 20), st.integers(4, 12)), min_size=1, max_size=12),
    blocks=st.integers(12, 60),
)
def test_as_many_requests_at_once_as_where_the_longest_answer_is_reserved(
    lengths: list[tuple[int, int]], blocks: int
) -> None:
    """In equal memory; answers are at least a block, so no prompt takes more blocks than are reserved."""
    trace = requests(*[(0, prompt, output) for prompt, output in lengths])
    paged = serve_paged(trace, "vllm_paged", blocks=blocks, watermark=0.0, max_batch=12)
    reserved = serve(trace, "orca", engine(4 * blocks, max(o for _, o in lengths)), max_batch=12)
    most = [max((row.requests for row in plan.iterations), default=0) for plan in (paged, reserved)]
    assert most[0] >= most[1]


@plain_policies
@pytest.mark.parametrize("output", [1, 5])
def test_alone_a_request_takes_its_own_time(name: str, output: int) -> None:
    """A prompt of 6 for 16 ms, 11 ms for each token after the first."""
    plan = serve_paged(requests((7, 6, output)), name)
    assert plan.served[0].answered == pytest.approx(0.007 + 0.016 + 0.011 * (output - 1))


def test_no_step_has_more_tokens_than_the_budget() -> None:
    trace = requests(*[(row, 30 + row, 5) for row in range(20)])
    for name in ("vllm_v1", "sarathi_chunked"):
        plan = serve_paged(trace, name, token_budget=16)
        assert max(row.tokens for row in plan.iterations) <= 16


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("vllm_v1", {"token_budget": 1}),
        ("vllm_v1", {"longest_chunk": 1}),
        ("sarathi_chunked", {"token_budget": 1}),
    ],
)
def test_a_prompt_in_parts_of_one_token_answers_after_the_last_of_them(
    name: str, knobs: dict[str, int]
) -> None:
    """Four steps of 11 ms for a prompt of four, then one for each of the two further tokens."""
    plan = serve_paged(requests((0, 4, 3)), name, **knobs)
    assert round(1e3 * plan.served[0].first_token, 6) == 44
    assert answered(plan) == [66]
    assert sum(row.tokens * row.steps for row in plan.iterations) == 4 + 3 - 1


def with_hashes(trace: RequestTrace, *hashes: list[int]) -> RequestTrace:
    return replace(trace, hashes=Ragged.of(hashes), block=4)


def test_a_known_prompt_is_found_but_for_its_last_token() -> None:
    """Ten tokens that were there before: eight are found. Eight: four, since the last one has to run."""
    ten = with_hashes(requests((0, 10, 1), (100, 10, 1)), [1, 2], [1, 2])
    eight = with_hashes(requests((0, 8, 1), (100, 8, 1)), [1, 2], [1, 2])
    assert tokens(serve_paged(ten, "vllm_v1")) == [(10, 1), (2, 1)]
    assert tokens(serve_paged(eight, "vllm_v1")) == [(8, 1), (4, 1)]
    other = with_hashes(requests((0, 10, 1), (100, 10, 1)), [1, 2], [3, 2])
    assert tokens(serve_paged(other, "vllm_v1")) == [(10, 1), (10, 1)]
    found = figures(serve_paged(ten, "vllm_v1"), ten)
    assert found["prefix_hit_fraction"] == pytest.approx(8 / 20)


@pytest.mark.parametrize(("prompt", "budget", "found"), [(5, 1, 4), (8, 7, 8)])
def test_a_block_that_a_single_token_fills_is_found_again(prompt: int, budget: int, found: int) -> None:
    """Of five tokens one by one the fourth fills a block, of eight in parts of seven and one the last."""
    trace = with_hashes(requests((0, prompt, 1), (200, 9, 1)), [1, 2][: prompt // 4], [1, 2])
    plan = serve_paged(trace, "vllm_v1", token_budget=budget)
    assert plan.memory is not None and plan.memory.hits == found
    assert sum(row.tokens * row.steps for row in plan.iterations) == prompt + 9 - found


def test_what_others_computed_of_a_preempted_request_is_found_too() -> None:
    """The third is behind the second in the same prompt when it gives way, and goes on behind it."""
    trace = with_hashes(requests((0, 1, 5), (0, 20, 2), (0, 20, 1)), [], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    plan = serve_paged(trace, "vllm_v1", blocks=7, token_budget=7, longest_chunk=5)
    assert plan.memory is not None and plan.memory.preemptions
    assert (plan.memory.hits, plan.memory.recomputed) == (12, 0)
    assert sum(row.tokens * row.steps for row in plan.iterations) == 5 + 21 + 20 - 12


def test_blocks_are_forgotten_in_the_order_in_which_they_were_given_back() -> None:
    """The end of the prompt that was given back first goes first, its beginning stays longest."""
    pool = BlockPool(4, 1)
    first = pool.take(2)
    for block, key in zip(first, (10, 12), strict=True):
        pool.register(block, key)
    pool.release(first)
    assert (pool.free, pool.used, pool.cached) == (4, 0, 2)
    pool.take(3)
    assert pool.find([10], 1) == [first[0]] and pool.find([12], 1) == []
    pool.share([first[0]])
    assert (pool.free, pool.cached, pool.references(first[0])) == (0, 0, 1)


def test_a_shared_block_comes_back_when_its_last_holder_leaves() -> None:
    """Two requests with one beginning at the same time need its blocks once."""
    trace = with_hashes(requests((0, 8, 6), (12, 9, 6)), [1, 2], [1, 2])
    plan = serve_paged(trace, "vllm_v1", blocks=6)
    assert plan.memory is not None
    assert (plan.memory.preemptions, plan.memory.held_at_end, plan.memory.hits) == (0, 0, 8)


@every_policy
def test_a_request_that_would_outgrow_all_memory_is_refused_before_any_work(name: str) -> None:
    """Forty slots: of 30 tokens and 11 all but the last have theirs, of 30 and 12 one has none."""
    trace = requests((0, 30, 40), (0, 4, 2), (900, 30, 12), (901, 30, 11))
    knobs = {} if name in ("vllm_v1", "speculative") else {"watermark": 0.0}
    plan = serve_paged(trace, name, blocks=10, max_batch=4, **knobs)
    assert [served.rejected for served in plan.served] == [True, False, True, False]
    assert plan.served[0].reason == "its 30 and 40 tokens are larger than all KV memory (40 tokens)"
    assert [plan.served[row].computed for row in range(4)] == [0, 5, 0, 40]
    assert math.isnan(plan.served[0].admitted) and plan.memory is not None
    assert plan.memory.preemptions == 0
