"""Prompts apart from answers: queues by their closed forms, copies by hand, what holds for any requests."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core.spec import load_spec
from experiments.hardware.parts import Link
from experiments.run import run
from experiments.serving.experiment.prices import doubts_of
from experiments.serving.interface.phases import (
    DECODE,
    PREFILL,
    Instance,
    InstanceShape,
    PhasePolicy,
    PhaseView,
    Site,
    Trial,
    instance_fault,
)
from experiments.serving.simulator import LatencyObjective
from experiments.serving.simulator.phases import Fabric, phase_figures
from experiments.serving.simulator.phases.admission import lacking_memory
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.phases.by_hand import fabric, instance_view, pairs, policy, serve
from tests.experiments.serving.traces import policies_of, requests, serve_paged

PHASES = policies_of(PhasePolicy)
every_policy = pytest.mark.parametrize("name", PHASES)


def poisson(rate: float, count: int) -> RequestTrace:
    """Prompts of one length and answers of one token."""
    arrival = np.cumsum(np.random.default_rng(7).exponential(1 / rate, count))
    ones = np.ones(count, np.int64)
    return RequestTrace("poisson", arrival - arrival[0], 100 * ones, ones, ("",) * count)


@pytest.mark.parametrize(
    ("rate", "pipeline", "stage", "expected"),
    [
        (0.5, 1, 1.0, 1.5),
        (0.5, 2, 0.5, 1.083),
        (0.5, 1, 1 / 1.6, 0.767),
        (1.5, 2, 0.5, 1.750),
        (1.5, 1, 1 / 1.6, 5.313),
    ],
)
def test_queues_of_prompts_are_those_of_the_closed_form(
    rate: float, pipeline: int, stage: float, expected: float
) -> None:
    """Prompts of 1 s: stages of half of it win at a high load, 1.6 times the speed at a low one.

    The mean over 400,000 arrivals by Lindley's recursion is that of the closed form, and on arrivals that
    are simulated each prompt's time is the recursion's.
    """
    many = poisson(rate, 400_000)
    assert sojourn(many.arrival, stage, pipeline).mean() == pytest.approx(expected, rel=0.02)
    trace = poisson(rate, 10_000)
    plan = serve(trace, "distserve", pairs(1, 1, pipeline), stage=lambda load: stage, prefill_tokens=100)
    found = [
        one.first_token - float(came) for one, came in zip(plan.serving.served, trace.arrival, strict=True)
    ]
    np.testing.assert_allclose(found, sojourn(trace.arrival, stage, pipeline), rtol=1e-9, atol=1e-6)
    mean = phase_figures(plan, trace, LatencyObjective())["ttft_mean"]
    assert mean == pytest.approx(float(np.mean(found)))


@pytest.mark.parametrize("pipeline", [1, 2])
def test_a_pass_after_a_pause_takes_longer(pipeline: int) -> None:
    """Stages of 20 ms; the second prompt has had 90 ms less what the first took."""
    trace = requests((0, 10, 1), (90, 10, 1), (2000, 10, 1))
    plan = serve(trace, "distserve", pairs(1, 1, pipeline), woken=0.02)
    took = [
        one.first_token - float(came) for one, came in zip(plan.serving.served, trace.arrival, strict=True)
    ]
    longest = pipeline * (0.02 + 0.02)
    assert took == pytest.approx([longest, pipeline * (0.02 + 0.1 * (0.09 - longest)), longest])


def sojourn(arrival: np.ndarray, stage: float, stages: int) -> np.ndarray:
    """Seconds in a line of equal stages of constant time: only the first is ever waited for."""
    ahead = np.concatenate([[0.0], np.cumsum(stage - np.diff(arrival))])
    return ahead - np.minimum.accumulate(ahead) + stage * stages


def test_two_thousand_tokens_cross_25_gigabytes_a_second_in_11_ms() -> None:
    """32 layers of 8 KV heads of 128 in 16 bits: 131,072 bytes a token."""
    link = Link("25 GB/s", 25e9, 0.0, True, "by hand")
    one, other = pairs(1, 1)
    joined = Fabric(link, link, 1, 131072, 32)
    assert joined.seconds(one, other, 2048) == pytest.approx(10.7e-3, abs=5e-5)


def test_passes_beyond_what_was_measured_are_counted_with_their_share_of_the_time() -> None:
    """A prompt of 20 for 30 ms, then two tokens of 11 ms: 30 of 52 ms where 19 were measured, none of 20."""
    plan = serve(requests((0, 20, 3)), "distserve", pairs(1, 1), measured=19)
    assert plan.extrapolated == 1
    assert doubts_of(plan.serving) == ["57.7 % of the time was priced beyond the profile's grid"]
    assert doubts_of(serve(requests((0, 20, 3)), "distserve", pairs(1, 1), measured=20).serving) == []


def test_an_answer_goes_on_where_its_keys_and_values_arrived() -> None:
    """A prompt of 4 for 14 ms, a copy of 5, three tokens of 11 ms; the second prompt waits for the first."""
    trace = requests((0, 4, 4), (0, 2, 2))
    plan = serve(trace, "distserve", pairs(1, 1), joined=fabric(0.005), prefill_tokens=4)
    assert [round(1e3 * s.first_token, 6) for s in plan.serving.served] == [14, 26]
    assert [round(1e3 * s.answered, 6) for s in plan.serving.served] == [53, 53]
    assert [round(1e3 * copy.start) for copy in plan.copies] == [14, 26]


def test_one_copy_at_a_time_crosses_a_link() -> None:
    plan = serve(requests((0, 2, 2), (0, 2, 2)), "distserve", pairs(1, 1), joined=fabric(0.1))
    assert [round(1e3 * copy.start, 6) for copy in plan.copies] == [14, 114]


def test_keys_and_values_wait_for_memory_with_the_prompts_that_hold_them() -> None:
    """Four blocks of four: the second answer of 12 tokens comes once the first one's blocks are free."""
    trace = requests((0, 12, 3), (0, 12, 3))
    plan = serve(trace, "distserve", pairs(1, 1), blocks=4, watermark=0.0, prefill_tokens=12)
    waits = [copy.start - copy.asked for copy in plan.copies]
    assert waits[0] == 0 and waits[1] == pytest.approx(0)
    assert plan.serving.served[1].admitted == pytest.approx(0.022), "its prompt has no room before"
    assert [round(1e3 * s.answered, 6) for s in plan.serving.served] == [44, 66]


def test_long_prompts_are_copied_while_they_are_computed() -> None:
    """A pass of 30 ms hides a copy of 20 but for the last of four layers; a short prompt's comes behind."""
    link = Link("1 token a ms", 1000.0, 0.0, True, "by hand")
    joined = Fabric(link, link, 1, 1.0, 4)
    plan = serve(
        requests((0, 20, 2)), "splitwise", pairs(1, 1), joined=joined, overlap_from=20, prefill_tokens=99
    )
    assert plan.copies[0].end == pytest.approx(0.035)
    plan = serve(
        requests((0, 20, 2)), "splitwise", pairs(1, 1), joined=joined, overlap_from=21, prefill_tokens=99
    )
    assert (plan.copies[0].start, plan.copies[0].end) == pytest.approx((0.030, 0.050))


def test_the_first_layer_is_copied_once_it_is_computed() -> None:
    """Of four layers in 30 ms the first is there after 7.5, and the copy of all takes 40."""
    link = Link("1 token in 2 ms", 500.0, 0.0, True, "by hand")
    joined = Fabric(link, link, 1, 1.0, 4)
    plan = serve(requests((0, 20, 2)), "splitwise", pairs(1, 1), joined=joined, overlap_from=20)
    assert (plan.copies[0].start, plan.copies[0].end) == pytest.approx((0.0075, 0.0475))
    assert phase_figures(plan, requests((0, 20, 2)), LatencyObjective())["transfer_wait"] == 0


@pytest.mark.parametrize("overlap_from", [20, 512])
def test_a_long_queue_of_prompts_borrows_a_machine_which_goes_back(overlap_from: int) -> None:
    """Of three machines the prompts' one has 40 tokens waiting: one for answers computes the next prompts.

    Whether or not their KV is copied while they are computed.
    """
    trace = requests(*[(row, 20, 3) for row in range(6)], (900, 20, 3), (935, 20, 3))
    knobs: dict[str, Any] = {"prompt_queue": 40, "prefill_tokens": 20, "overlap_from": overlap_from}
    plan = serve(trace, "splitwise", pairs(1, 2), **knobs)
    with_prompts = {row.instance for row in plan.passes if row.prefill}
    late = {row.instance for row in plan.passes if row.prefill and row.start >= 0.9}
    assert len(with_prompts) == 2 and late == {0}
    assert {row.instance for row in plan.passes if row.decode and row.start >= 0.9} == {1, 2}


@pytest.mark.parametrize(("waiting", "helpers"), [(3, set()), (6, {1}), (9, {1, 2}), (20, {1, 2})])
def test_as_many_machines_help_as_the_queue_is_longer(waiting: int, helpers: set[int]) -> None:
    """Each takes prompts of 20 tokens until over 40 wait; the last machine for answers keeps to them."""
    trace = requests(*[(0, 20, 3)] * waiting)
    plan = serve(trace, "splitwise", pairs(1, 3), prompt_queue=40, prefill_tokens=20)
    assert {row.instance for row in plan.passes if row.prefill} == {0} | helpers


def test_a_machine_for_prompts_is_whole_again_once_the_answers_are_over_that_it_took() -> None:
    """The one for answers is full, so machine 0 gets an answer; when it is over, a prompt runs there."""
    known, prompt = [17, 4, 8, 4, 4], [16, 4, 8, 4, 4]
    views = [
        replace(instance_view(role, 4), known=known, prompt=prompt, place=place)
        for place, role in enumerate((PREFILL, PREFILL, DECODE))
    ]
    view = PhaseView(prompt, views)
    pools = policy("splitwise").begin(pairs(2, 1))
    views[2].held[0] = []
    assert (pools.on_arrival(1, view), view.goal[1]) == (1, 0)
    views[1].due_tokens = 10**6
    assert pools.on_arrival(3, view) == 0, "machines that are lent do the work of both"
    known[3] += 2
    views[1].due_tokens = 0
    del views[2].held[0]
    known[1] += 2  # its prompt and its answer are over, and another prompt is under way at machine 0
    views[0].running.append(2)
    assert (pools.on_arrival(4, view), view.goal[4]) == (0, 2)


def test_the_load_of_an_instance_is_the_tokens_of_its_requests() -> None:
    """Of 17 tokens in five blocks of four; passes under way have given three more; one of 6 is to come."""
    view = instance_view(DECODE, 8)
    view.known, view.grown = [17, 6], 3
    view.held[0] = view.pool.take(5)
    view.incoming.append(1)
    assert view.kv_load == 17 + 3 + 6


@every_policy
def test_a_prompt_goes_to_an_idle_instance_before_one_that_computes(name: str) -> None:
    plan = serve(requests((0, 20, 1), (10, 20, 1)), name, pairs(2, 1))
    assert [round(1e3 * s.first_token, 6) for s in plan.serving.served] == [30, 40]


def test_the_faster_shape_of_either_load_is_found_by_goodput() -> None:
    """By what each shape carries the cluster is filled so that the slower phase has most."""
    carried = {(PREFILL, 1, 1): 2.0, (PREFILL, 1, 2): 5.0, (DECODE, 1, 1): 5.0, (DECODE, 1, 2): 8.0}

    def try_out(instances: tuple[Instance, ...], rate: float) -> Trial:
        phases = {
            role: sum(carried[(role, *one.shape)] for one in instances if one.role == role)
            for role in {one.role for one in instances}
        }
        return Trial(float(min(phases.values()) >= rate), 1.0)

    def bound(instances: tuple[Instance, ...]) -> float:
        return 1.3 * min(carried[(one.role, *one.shape)] for one in instances)

    shapes = (InstanceShape(1, 1), InstanceShape(1, 2))
    site = Site(2, 4, shapes, 1.0, bound, try_out)  # type: ignore[arg-type]
    found = policy("distserve", links="fast").arrange(site)
    kinds = [(one.role, *one.shape) for one in found.instances]
    assert kinds.count((PREFILL, 1, 2)) == 2 and kinds.count((DECODE, 1, 1)) == 2
    assert found.plan["planned_rate"] == pytest.approx(10, rel=0.1)
    assert instance_fault(found.instances, 8, 4) == ""
    slow = policy("distserve", links="slow").arrange(site)
    assert instance_fault(slow.instances, 8, 4) == ""
    for one, other in zip(slow.instances[::2], slow.instances[1::2], strict=True):
        assert one.stage_nodes(4) == other.stage_nodes(4), "keys and values never leave a node"


@pytest.mark.parametrize("links", ["fast", "slow", "auto"])
def test_a_search_in_two_processes_arranges_the_same_to_the_byte(links: str) -> None:
    """Also how many simulations it took: what was looked at too early is forgotten."""
    options = {"model": "opt-13b", "limit": 40, "rate": 4.0}
    asked = {
        "family": "serving",
        "policy": "distserve",
        "workload": {"source": "generated:poisson", "options": options},
        "hardware": {"cluster": {"nodes": 2, "devices_per_node": 2, "device": "a100-80g"}},
    }

    def find(processes: int) -> str:
        outcome = run(load_spec({**asked, "knobs": {"links": links, "processes": processes}}))
        assert outcome.provenance["served"]["simulations"] > 10
        told = [outcome.plan, outcome.series, outcome.metrics, outcome.provenance["served"]]
        return json.dumps(told, default=lambda value: value.to_json())

    assert find(2) == find(1)


def test_a_search_over_long_answers_ends_and_says_how_few_requests_it_drew(tmp_path: Path) -> None:
    """A million tokens are 8 answers of 125,000 and 128 of 7,812; each simulation has 128 usually."""
    file = tmp_path / "long.csv"
    asked = {
        "family": "serving",
        "policy": "distserve",
        "workload": {"source": str(file), "options": {"model": "llama31-8b"}},
        "hardware": {"cluster": {"nodes": 1, "devices_per_node": 2, "device": "a100-80g"}},
    }
    said = {}
    for output in (7812, 125_000):
        file.write_text(f"arrival,prompt,output\n0,512,{output}\n")
        outcome = run(load_spec(asked))
        assert outcome.status == "ok", outcome.reason
        said[output] = [text for text in outcome.provenance["warnings"] if "each simulation" in text]
    assert said[7812] == []
    assert len(said[125_000]) == 1 and "has 8 requests" in said[125_000][0]


rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=20
).map(sorted)


@every_policy
@settings(max_examples=80, deadline=None)
@given(
    rows=rows,
    blocks=st.integers(4, 60),
    batch=st.integers(1, 6),
    shape=st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 3, 1)]),
    seconds=st.sampled_from([0.0, 0.004, 0.3]),
)
def test_every_request_is_answered_or_refused_and_all_blocks_come_back(
    name: str,
    rows: list[tuple[int, int, int]],
    blocks: int,
    batch: int,
    shape: tuple[int, int, int],
    seconds: float,
) -> None:
    trace = requests(*rows)
    knobs: dict[str, Any] = (
        {"overlap_from": 8, "prompt_queue": 30, "full": 0.5} if name == "splitwise" else {}
    )
    plan = serve(trace, name, pairs(*shape), blocks=blocks, max_batch=batch, joined=fabric(seconds), **knobs)
    assert plan.held_at_end == 0
    for served, (_, prompt, output) in zip(plan.serving.served, rows, strict=True):
        assert served.rejected != (not math.isnan(served.answered)), served
        if prompt + output <= (blocks - 1) * 4:
            assert not served.rejected, "it fits alone"
    assert phase_figures(plan, trace, LatencyObjective())["unfinished_requests"] == 0


@every_policy
@settings(max_examples=30, deadline=None)
@given(rows=rows, data=st.data())
def test_no_decision_looks_at_answers_that_are_not_there_yet(
    name: str, rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Until the first answer is over, runs with other answers do the same."""
    trace = requests(*rows)
    other = replace(trace, output=trace.output + data.draw(st.integers(1, 5)))
    first, second = (serve(one, name, pairs(2, 2)) for one in (trace, other))
    over = min(s.answered for s in first.serving.served)
    for one, two in zip(first.serving.served, second.serving.served, strict=True):
        if one.first_token < over:
            assert (one.admitted, one.first_token) == (two.admitted, two.first_token)


@every_policy
def test_with_free_copies_the_first_tokens_are_those_of_a_server_of_prompts(name: str) -> None:
    trace = requests(*[(13 * row, 5 + row % 9, 1 + row % 4) for row in range(30)])
    alone = serve_paged(replace(trace, output=np.ones_like(trace.output)), "vllm_paged", max_tokens=2048)
    plan = serve(trace, name, pairs(1, 1))
    assert [s.first_token for s in plan.serving.served] == pytest.approx(
        [s.first_token for s in alone.served]
    )


@every_policy
def test_a_request_alone_takes_its_passes_and_its_copy(name: str) -> None:
    plan = serve(requests((7, 6, 4)), name, pairs(2, 2), joined=fabric(0.2))
    assert plan.serving.served[0].answered == pytest.approx(0.007 + 0.016 + 0.2 + 3 * 0.011, rel=1e-12)


@every_policy
def test_an_answer_that_would_outgrow_all_memory_is_refused_before_any_work(name: str) -> None:
    """Sixteen slots: of 6 tokens and 11 all but the last have theirs, of 6 and 12 one has none."""
    trace = requests((0, 6, 12), (1, 1, 2), (900, 6, 11), (2000, 16, 1))
    plan = serve(trace, name, pairs(1, 1), blocks=4, max_batch=1)
    assert [served.rejected for served in plan.serving.served] == [True, False, False, True]
    assert plan.serving.served[0].reason == "its 6 and 12 tokens are larger than all KV memory (16 tokens)"
    assert [served.computed for served in plan.serving.served] == [0, 2, 16, 0]
    assert (len(plan.copies), plan.preemptions) == (2, 0)


def test_an_answer_is_refused_where_the_largest_instance_for_answers_does_not_hold_it() -> None:
    """Of 16 slots at the first and 24 at the second; the instance for prompts has 100."""
    views = [instance_view(role, blocks) for role, blocks in ((PREFILL, 25), (DECODE, 4), (DECODE, 6))]
    assert lacking_memory(6, 19, views) == ""
    assert "(24 tokens)" in lacking_memory(6, 20, views)
    assert "(16 tokens)" in lacking_memory(16, 1, views)
    assert lacking_memory(15, 1, views) == ""


def test_answers_whose_prompts_are_done_elsewhere_begin_as_they_come() -> None:
    plan = serve(requests((0, 8, 3), (5, 8, 3)), "distserve", pairs(0, 1), answers_only=True)
    assert [round(1e3 * s.answered, 6) for s in plan.serving.served] == [23, 34]
