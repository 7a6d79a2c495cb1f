"""The live engine: every policy's answers are those of generation without batches, blocks or a cache."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.spec import load_spec
from experiments.readers.job_profiles import open_profiles
from experiments.run import run
from experiments.serving.interface import violations
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator.paged import simulate_paged
from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import policies_of, requests

pytestmark = pytest.mark.torch
live = pytest.importorskip("experiments.serving.live")

#: Policies with memory and budgets so small that requests are preempted, swapped and cut into parts.
TIGHT: dict[str, dict[str, Any]] = {
    "vllm_v1": {"token_budget": 12},
    "vllm_paged": {"watermark": 0.0, "preemption": "swap", "host_blocks": 6},
    "sarathi_chunked": {"token_budget": 5, "watermark": 0.0},
    "speculative": {"token_budget": 24, "draft_tokens": 3},
}
PAGED = policies_of(PagedPolicy)


@functools.cache
def model() -> Any:
    return live.build("zoo:gpt2-tiny", "float64", seed=3)


@functools.cache
def alone(prompt: tuple[int, ...], count: int) -> list[int]:
    found: list[int] = live.generate_alone(model(), prompt, count)
    return found


def policy(name: str, **knobs: Any) -> PagedPolicy:
    made = registry.create("serving", name, {"block_size": 4, "max_batch": 5, **TIGHT[name], **knobs})
    assert isinstance(made, PagedPolicy)
    return made


class Ticks:
    """A clock that goes on by a millisecond each time it is looked at, and by what is waited."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def serve(trace: RequestTrace, name: str, blocks: int, **knobs: Any) -> tuple[Any, list[list[int]]]:
    ticks = Ticks()
    prompts = live.prompts_of(trace, model().vocabulary, 0)
    engine = live.LiveServing(
        trace, policy(name, **knobs), model(), blocks, prompts, clock=ticks, wait=ticks.wait
    )
    return engine.run(), prompts


def test_every_policy_over_blocks_is_tried() -> None:
    assert sorted(TIGHT) == PAGED


rows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 10)), min_size=1, max_size=7
).map(sorted)


@pytest.mark.parametrize("name", sorted(TIGHT))
@settings(max_examples=20, deadline=None)
@given(rows=rows, blocks=st.integers(8, 20), shared=st.integers(0, 3))
def test_answers_are_those_of_generation_one_by_one(
    name: str, rows: list[tuple[int, int, int]], blocks: int, shared: int
) -> None:
    """Through preemption, swaps, parts of prompts, drafts, and blocks that prompts share."""
    trace = with_shared_prefix(requests(*rows), shared)
    outcome, prompts = serve(trace, name, blocks)
    assert violations(outcome.plan, trace, blocks * 4) == []
    for served, prompt, answer in zip(outcome.plan.served, prompts, outcome.answers, strict=True):
        if not served.rejected:
            assert answer == alone(tuple(prompt), int(trace.output[served.request]))


def with_shared_prefix(trace: RequestTrace, shared: int) -> RequestTrace:
    """All prompts begin with the same ``shared`` blocks of four, as far as they go."""
    rows = [
        [block if block < shared else 1000 * (request + 1) + block for block in range(prompt // 4)]
        for request, prompt in enumerate(trace.prompt.tolist())
    ]
    return RequestTrace(
        trace.name,
        trace.arrival,
        trace.prompt,
        trace.output,
        trace.model,
        hashes=Ragged.of(rows),
        block=4,
    )


def test_tight_memory_really_preempts_swaps_shares_and_drafts() -> None:
    trace = with_shared_prefix(requests(*[(0, 13, 10)] * 5), 3)
    assert serve(trace, "vllm_v1", 10)[0].plan.memory.hits > 0
    assert serve(trace, "vllm_v1", 10)[0].plan.memory.preemptions > 0
    assert serve(trace, "vllm_paged", 10)[0].plan.memory.swapped_blocks > 0
    assert serve(trace, "speculative", 40)[0].plan.memory.verified_tokens > 0


class Replayed:
    """Steps take what they took."""

    def __init__(self, seconds: list[float]) -> None:
        self.left = iter(seconds)

    def seconds(self, load: StepLoad, steps: int = 1) -> Any:
        return np.array([next(self.left) for _ in range(steps)])

    def steps_beyond(self, load: StepLoad, steps: int = 1) -> int:
        return 0


@pytest.mark.parametrize("name", sorted(set(TIGHT) - {"speculative"}))
def test_blocks_are_those_of_the_simulator_when_steps_take_what_they_took(name: str) -> None:
    """All requests are there at the start: what happens between two steps takes the simulator no time."""
    trace = requests(*[(0, 5 + 3 * row, 4 + row) for row in range(5)])
    outcome, _ = serve(trace, name, 11)
    plan = simulate_paged(trace, policy(name), 11, Replayed(outcome.seconds + [1e-3] * 10**4))
    simulated = [
        (row.prefill, row.decode)
        for row, one in zip(plan.memory.passes, plan.iterations, strict=True)  # type: ignore[union-attr]
        for _ in range(one.steps)
    ]
    assert simulated == [(row.prefill, row.decode) for row in outcome.plan.memory.passes]
    assert plan.memory.preemptions == outcome.plan.memory.preemptions  # type: ignore[union-attr]
    assert plan.memory.swapped_blocks == outcome.plan.memory.swapped_blocks  # type: ignore[union-attr]


def test_a_profile_of_this_host_is_read_back(tmp_path: Path) -> None:
    times = live.measure_layers(live.build("zoo:gpt2-tiny", "float32", 0), 64)
    live.write_layers(times, tmp_path)
    again = open_profiles(tmp_path / "tp1")
    assert again.by_tokens.keys() == times.by_tokens.keys() and again.ranks == 1
    found = again.attention.at(16, 0, 4, 20)
    assert found == pytest.approx(times.attention.at(16, 0, 4, 20)) and found > 0


def test_a_measured_run_stands_beside_what_the_simulator_says(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("arrival,prompt,output\n" + "".join(f"{row * 0.01},{20 + row},8\n" for row in range(8)))
    spec = {
        "family": "serving",
        "policy": "vllm_v1",
        "mode": "measured",
        "hardware": "local",
        "knobs": {"blocks": 100},
        "workload": {"source": str(path), "options": {"model": "zoo:gpt2-tiny"}},
    }
    outcome = run(load_spec(spec))
    assert outcome.status == "ok" and outcome.provenance["mode"] == "measured"
    assert {"ttft_error", "tpot_error", "latency_error"} <= outcome.metrics.keys()
    assert outcome.metrics["unfinished_requests"]["value"] == 0


def test_a_model_without_an_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("arrival,prompt,output\n0,4,4\n")
    with pytest.raises(Exception, match="zoo:gpt2-mini"):
        live.build("zoo:bert-base", "float32", 0)
