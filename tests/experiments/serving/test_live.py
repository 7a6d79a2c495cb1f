"""The live engines: every policy's answers are those of generation without batches, blocks or a cache."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.core import registry
from experiments.core.spec import load_spec
from experiments.models.served import served_model
from experiments.readers.job_profiles import open_profiles
from experiments.run import run
from experiments.serving.experiment.live_engines import AllAtOnce, layer_price, serve_all
from experiments.serving.interface import ServingPlan, ServingPolicy, violations
from experiments.serving.interface.paged import PagedPolicy, PagedView
from experiments.serving.interface.step_load import StepLoad
from experiments.serving.simulator import figures, simulate
from experiments.serving.simulator.paged import PagedEngine
from experiments.serving.simulator.priced import PricedSteps
from experiments.workloads.ragged import Ragged
from experiments.workloads.requests import RequestTrace
from tests.experiments.serving.traces import ToyPrice, engine, policies_of, requests

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
BATCHED = policies_of(ServingPolicy)
#: Of a batch's prompts in the first pass.
WAYS = ("padded", "shortest")


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


def ticking() -> Any:
    ticks = Ticks()
    return live.WallClock(ticks, ticks.wait)


def serve(
    trace: RequestTrace, name: str, blocks: int, **knobs: Any
) -> tuple[ServingPlan, Any, list[list[int]]]:
    """Plan, what the executor did, and the answers; the clock does not."""
    made, prompts = policy(name, **knobs), live.prompts_of(trace, model().vocabulary, 0)
    executor = live.TorchSteps(model(), blocks, made.block_size, prompts, ticking())
    served = PagedEngine(trace, made, blocks, executor)
    return served.run(), executor, executor.answers(served.view)


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
    plan, _, answers = serve(trace, name, blocks)
    assert violations(plan, trace, blocks * 4) == []
    check_answers(trace, plan, answers)


def check_answers(trace: RequestTrace, plan: ServingPlan, answers: list[list[int]]) -> None:
    prompts = live.prompts_of(trace, model().vocabulary, 0)
    for served, prompt, answer in zip(plan.served, prompts, answers, strict=True):
        if not served.rejected:
            assert answer == alone(tuple(prompt), int(trace.output[served.request]))


@pytest.mark.parametrize("name", BATCHED)
@settings(max_examples=20, deadline=None)
@given(rows=rows, slots=st.integers(60, 120), micro=st.integers(0, 2), ways=st.sampled_from(WAYS))
def test_answers_of_whole_batches_are_those_too(
    name: str, rows: list[tuple[int, int, int]], slots: int, micro: int, ways: str
) -> None:
    """Through padding, prompts that go on token by token, requests that wait for the longest answer, and
    chunks of a batch.
    """
    trace = requests(*rows)
    knobs = {"max_batch": 3} | ({} if name == "orca" else {"micro_batch": micro, "prompts": ways})
    made = registry.create("serving", name, knobs)
    assert isinstance(made, ServingPolicy)
    prompts = live.prompts_of(trace, model().vocabulary, 0)
    executor = live.TorchBatches(trace, model(), slots, prompts, ticking())
    on = engine(kv_slots=slots, max_output=int(trace.output.max()))
    plan = simulate(trace, on, made, executor=executor)
    assert violations(plan, trace, slots) == []
    assert all(row.rejected or row.answered > 0 for row in plan.served)
    check_answers(trace, plan, executor.answers)


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

    def log(name: str, blocks: int) -> Any:
        return serve(trace, name, blocks)[0].memory

    assert log("vllm_v1", 10).hits > 0
    assert log("vllm_v1", 10).preemptions > 0
    assert log("vllm_paged", 10).swapped_blocks > 0
    assert log("speculative", 40).verified_tokens > 0


def test_a_whole_batch_reads_the_padded_context_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of 5 and 12: both compute 12 tokens, then read 13, 14 and 15, whatever they attend to."""
    reads: list[list[int]] = []
    index = live.PagedGpt.index

    def noted(self: Any, rows: Any, size: int) -> Any:
        step = index(self, rows, size)
        reads.append(step.totals)
        return step

    monkeypatch.setattr(live.PagedGpt, "index", noted)
    trace = requests((0, 5, 4), (0, 12, 4))
    made = registry.create("serving", "static_batching", {"max_batch": 2})
    assert isinstance(made, ServingPolicy)
    prompts = live.prompts_of(trace, model().vocabulary, 0)
    executor = live.TorchBatches(trace, model(), 60, prompts, ticking())
    simulate(trace, engine(kv_slots=60, max_output=4), made, executor=executor)
    assert reads == [[12, 12], [13, 13], [14, 14], [15, 15]]


@pytest.mark.skipif(live.default_device() == "cpu", reason="no GPU on this host")
def test_attention_of_all_rows_in_one_kernel_is_that_of_each_by_itself() -> None:
    """Parts of prompts behind a context and single tokens, in bfloat16: as near as two kernels come."""
    made = live.build("zoo:gpt2-mini", "bfloat16", 0, "cuda")
    memory = made.memory(20, 16)
    blocks = [list(range(5 * row, 5 * row + 5)) for row in range(4)]
    made.run([live.Row([3] * 40, 0, blocks[0], 1), live.Row([5] * 17, 0, blocks[1], 1)], memory)
    rows = [
        live.Row([7] * 9, 40, blocks[0], 9),
        live.Row([9], 17, blocks[1], 1),
        live.Row([11] * 30, 0, blocks[2], 30),
        live.Row([13], 0, blocks[3], 1),
    ]
    assert made.in_one
    together = made.run(rows, memory)
    made.in_one = False
    for one, other in zip(together, made.run(rows, memory), strict=True):
        assert (one.float() - other.float()).abs().max() < 0.03 * other.float().abs().max()


class Replayed(ToyPrice):
    """Steps take what they took."""

    def __init__(self, seconds: list[float]) -> None:
        self.left = iter(seconds)

    def seconds(self, load: StepLoad, steps: int = 1) -> Any:
        return np.array([next(self.left) for _ in range(steps)])


class OneByOne(PricedSteps):
    """Prices no step that may never be made."""

    def carry_out(self, view: PagedView, load: StepLoad, now: float, most: int) -> Any:
        return super().carry_out(view, load, now, 1)


@pytest.mark.parametrize("name", sorted(set(TIGHT) - {"speculative"}))
def test_blocks_are_those_of_the_simulator_when_steps_take_what_they_took(name: str) -> None:
    """All requests are there at the start: what happens between two steps takes the simulator no time."""
    trace = requests(*[(0, 5 + 3 * row, 4 + row) for row in range(5)])
    check_blocks(trace, name, 11, serve(trace, name, 11)[0])


class Stepping(Ticks):
    """Time passes in the steps of a model, each as long as is drawn, and hardly anywhere else."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn = np.random.default_rng(seed)

    def __call__(self) -> float:
        self.now += 1e-7
        return self.now

    def step(self) -> None:
        self.now += self.drawn.uniform(0.001, 0.020)


@pytest.mark.parametrize("name", sorted(set(TIGHT) - {"speculative"}))
@settings(max_examples=20, deadline=None)
@given(rows=rows, blocks=st.integers(11, 20), seed=st.integers(0, 100))
def test_blocks_are_those_of_the_simulator_while_requests_come(
    name: str, rows: list[tuple[int, int, int]], blocks: int, seed: int
) -> None:
    """Moments of requests are whole milliseconds, which steps end at by no chance."""
    clock, trace, run = Stepping(seed), requests(*rows), live.PagedGpt.run

    def run_by_the_clock(*arguments: Any) -> Any:
        clock.step()
        return run(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live.PagedGpt, "run", run_by_the_clock)
        made, prompts = policy(name), live.prompts_of(trace, model().vocabulary, 0)
        wall = live.WallClock(clock, clock.wait)
        executor = live.TorchSteps(model(), blocks, made.block_size, prompts, wall)
        check_blocks(trace, name, blocks, PagedEngine(trace, made, blocks, executor).run())


def check_blocks(trace: RequestTrace, name: str, blocks: int, lived: ServingPlan) -> None:
    """Step for step, and at their peak, those of a simulation whose steps take what they took."""
    seconds = [row.end - row.start for row in lived.iterations]
    steps = OneByOne(Replayed(seconds + [1e-3] * 10**4))
    plan = PagedEngine(trace, policy(name), blocks, steps).run()
    assert plan.memory is not None and lived.memory is not None
    simulated = [
        (row.prefill, row.decode)
        for row, one in zip(plan.memory.passes, plan.iterations, strict=True)
        for _ in range(one.steps)
    ]
    assert simulated == [(row.prefill, row.decode) for row in lived.memory.passes]
    assert plan.memory.preemptions == lived.memory.preemptions
    assert plan.memory.swapped_blocks == lived.memory.swapped_blocks
    peaks = [figures(each, trace)["peak_kv_tokens"] for each in (plan, lived)]
    assert peaks[0] == peaks[1]


def test_a_profile_of_this_host_is_read_back(tmp_path: Path) -> None:
    model = live.build("zoo:gpt2-tiny", "float32", 0)
    price_by = functools.partial(layer_price, served=served_model("zoo:gpt2-tiny"))

    def serve(trace: RequestTrace, prompts: Sequence[Sequence[int]]) -> Any:
        return serve_all(model, AllAtOnce(), trace, prompts).timed

    times = live.measure_layers(model, 64, serve, price_by)
    live.write_layers(times, tmp_path)
    again = open_profiles(tmp_path / "tp1")
    assert again.by_tokens.keys() == times.by_tokens.keys() and again.ranks == 1
    found = again.attention.at(16, 0, 4, 20)
    assert found == pytest.approx(times.attention.at(16, 0, 4, 20))
    assert found >= 0, "what is left of a whole step: on a busy host nothing may be"
    assert again.by_tokens["qkv_proj"].at(16.0) > 0
    assert again.wake is not None and again.wake.points == pytest.approx(times.wake.points)
    assert again.wake.at(0.0) == 0.0
    assert again.attention.is_apart, "each row's attention runs for itself on a CPU"


@pytest.mark.parametrize(("name", "knobs"), [("vllm_v1", {"blocks": 100}), ("orca", {})])
def test_a_measured_run_stands_beside_what_the_simulator_says(
    tmp_path: Path, name: str, knobs: dict[str, Any]
) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("arrival,prompt,output\n" + "".join(f"{row * 0.01},{20 + row},8\n" for row in range(8)))
    spec = {
        "family": "serving",
        "policy": name,
        "mode": "measured",
        "hardware": "local",
        "knobs": knobs,
        "workload": {"source": str(path), "options": {"model": "zoo:gpt2-tiny"}},
    }
    outcome = run(load_spec(spec))
    assert outcome.status == "ok" and outcome.provenance["mode"] == "measured"
    assert {"ttft_error", "tpot_error", "latency_error"} <= outcome.metrics.keys()
    assert outcome.metrics["unfinished_requests"]["value"] == 0


@pytest.mark.parametrize("name", ["vllm_v1", "speculative", "static_batching"])
def test_answers_end_where_the_context_of_a_live_model_does(tmp_path: Path, name: str) -> None:
    """Of 64 tokens: 24 behind 40, one behind 64, none behind 70."""
    path = tmp_path / "requests.csv"
    path.write_text("arrival,prompt,output\n0,40,50\n0,64,5\n0,70,5\n0,20,8\n")
    spec = {
        "family": "serving",
        "policy": name,
        "mode": "measured",
        "hardware": "local",
        "workload": {"source": str(path), "options": {"model": "zoo:gpt2-tiny"}},
    }
    outcome = run(load_spec(spec))
    assert outcome.status == "ok", outcome.reason
    assert outcome.metrics["context_limited_requests"]["value"] == 2
    assert outcome.metrics["rejected_requests"]["value"] == 1
    columns = outcome.plan["columns"]
    assert [row[columns.index("output")] for row in outcome.plan["rows"]] == [24, 1, 5, 8]
    assert outcome.metrics["unfinished_requests"]["value"] == 0
    assert any("2 of 4 answers end" in text for text in outcome.provenance["warnings"])


def test_a_model_without_an_engine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("arrival,prompt,output\n0,4,4\n")
    with pytest.raises(Exception, match="zoo:gpt2-mini"):
        live.build("zoo:bert-base", "float32", 0)
