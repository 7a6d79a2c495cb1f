"""A recorded run of vLLM and ours: prices of steps, and what requests took, with no constant fitted."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.core import registry
from experiments.core.errors import BadInput
from experiments.core.spec import load_spec
from experiments.hardware.parts import Link
from experiments.models.served import served_model
from experiments.readers.job_profiles import open_profiles
from experiments.run import run
from experiments.serving.experiment.prices import doubts_of
from experiments.serving.interface import Engine, Iteration, ServingPlan, ServingPolicy
from experiments.serving.interface.paged import PagedPolicy
from experiments.serving.interface.step_load import Entry, StepLoad
from experiments.serving.simulator import simulate
from experiments.serving.simulator.paged import simulate_paged
from experiments.serving.simulator.step_prices import ProfilePrice, StepCost
from experiments.workloads.profiles.layer_times import AttentionTimes, Curve, LayerTimes, Steady
from tests.experiments.serving.traces import ToyPrice, requests

FOLDER = "serving/llmservingsim"
ON_4090 = f"{FOLDER}/perf/RTX4090/meta-llama/Llama-3.1-8B/tp1"
ON_6000 = f"{FOLDER}/perf/RTXPRO6000/meta-llama/Llama-3.1-8B/tp1"
ON_TWO = f"{FOLDER}/perf/RTXPRO6000/Qwen/Qwen3-32B/tp2"
RECORDED = f"{FOLDER}/replay/rtx4090_llama31_8b_measured.jsonl"


def price(shared: Path, folder: str, model: str) -> ProfilePrice:
    link = Link("of the run", 16e9, 20e-6, True, "the run's settings") if folder == ON_TWO else None
    return ProfilePrice(open_profiles(shared / folder), served_model(model), link)


def decodes(count: int, context: int) -> list[Entry]:
    return [Entry(row, 1, context) for row in range(count)]


@pytest.mark.parametrize(
    ("folder", "model", "entries", "microseconds"),
    [
        (ON_4090, "llama31-8b", decodes(16, 1024), (15743.4, 3176.3, 1157.1, 0)),
        (ON_4090, "llama31-8b", [Entry(0, 2048, 0)], (181126.7, 10756.0, 1121.9, 0)),
        (
            ON_4090,
            "llama31-8b",
            [Entry(0, 310, 2048), Entry(1, 1034, 0)],
            (123853.4, 16531.4, 1129.8, 0),
        ),
        (ON_4090, "llama31-8b", [*decodes(64, 512), Entry(64, 512, 0)], (57202.9, 13671.5, 1259.1, 0)),
        (ON_6000, "llama31-8b", decodes(16, 1024), (10109.3, 1929.2, 725.8, 0)),
        (ON_6000, "llama31-8b", [*decodes(32, 256), *decodes(32, 1024)], (10979.9, 4956.9, 756.0, 0)),
        (ON_TWO, "qwen3-32b", decodes(16, 1024), (23526.2, 2334.1, 547.3, 6430.7)),
        (ON_TWO, "qwen3-32b", [Entry(0, 2048, 0)], (172963.0, 11135.0, 548.6, 172892.2)),
    ],
)
def test_steps_cost_what_their_layers_do(
    shared_data: Path, folder: str, model: str, entries: list[Entry], microseconds: tuple[float, ...]
) -> None:
    cost, load = price(shared_data, folder, model), StepLoad.of(entries)
    whole = float(cost.seconds(load)[0])
    dense, head, shared = cost.dense(load.tokens), cost.head(load), cost.communication(load.tokens)
    parts = (dense, whole - dense - head - shared, head, shared)
    assert [1e6 * part for part in parts] == pytest.approx(list(microseconds), abs=0.06)
    assert cost.steps_beyond(load) == 0


def test_steps_in_a_row_cost_what_each_of_them_does(shared_data: Path) -> None:
    """Also where contexts are unequal, and over the edges of what they are counted by."""
    for folder in (ON_4090, ON_6000):
        cost = price(shared_data, folder, "llama31-8b")
        entries = [Entry(row, 1, context) for row, context in enumerate((250, 400, 1010, 1020))]
        together = cost.seconds(StepLoad.of(entries), 20)
        apart = [
            float(cost.seconds(StepLoad.of([Entry(r, 1, c + more) for r, _, c in entries]))[0])
            for more in range(20)
        ]
        assert together.tolist() == pytest.approx(apart, rel=1e-12)


def test_what_was_not_measured_is_extrapolated_and_counted(shared_data: Path) -> None:
    cost = price(shared_data, ON_4090, "llama31-8b")
    inside, beyond = (StepLoad.of([Entry(0, 1, context)]) for context in (16384, 17000))
    assert (cost.steps_beyond(inside), cost.steps_beyond(beyond)) == (0, 1)
    assert (cost.steps_beyond(inside, 10), cost.steps_beyond(beyond, 10)) == (9, 10)
    assert cost.steps_beyond(StepLoad.of(decodes(257, 100)), 4) == 4
    beside = [StepLoad.of([*decodes(count, 100), Entry(count, 64, 0)]) for count in (128, 129)]
    assert [cost.steps_beyond(load) for load in beside] == [0, 1], "256 were measured without a prompt alone"
    assert float(cost.seconds(beyond)[0]) > float(cost.seconds(inside)[0])


def test_batches_are_priced_by_the_same_layers_and_what_lies_beyond_is_counted(shared_data: Path) -> None:
    """A pass of a policy that reserves slots is a step over blocks; attention run apart costs more."""
    steps = price(shared_data, ON_4090, "llama31-8b")
    cost = StepCost(steps, per_request_layer=1e-6, layers=32)
    entries = [*decodes(3, 512), Entry(3, 300, 0)]
    tokens, contexts = [entry.tokens for entry in entries], [entry.context for entry in entries]
    wanted = float(steps.seconds(StepLoad.of(entries))[0]) + 4 * 32e-6
    assert cost.pass_seconds(tokens, contexts) == pytest.approx(wanted, rel=1e-12)
    assert cost.steps_beyond((1,), (16384,), 10) == 9

    def beyond(prompt: int, output: int) -> tuple[int | None, float]:
        trace = requests((0, prompt, output))
        on = Engine(cost, 10**5, output)
        plan = simulate(trace, on, registry.create("serving", "orca", {}))  # type: ignore[arg-type]
        return plan.extrapolated, plan.extrapolated_seconds

    assert beyond(300, 5) == (0, 0.0)
    count, seconds = beyond(3000, 5)
    assert count == 1, "the prompt is longer than any that was measured, the four decodes are not"
    assert seconds == pytest.approx(cost.pass_seconds((3000,), (0,)))


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0, []), (0.5, ["50.0 %"]), (0.0005, ["Under 0.1 %"]), (0.001, ["0.1 %"])]
)
def test_any_time_priced_beyond_what_was_measured_is_said(seconds: float, said: list[str]) -> None:
    """Two passes of 0.5 s."""
    passes = tuple(Iteration(0.5 * place, 0.5 * (place + 1), 1, 1, 1, 0) for place in range(2))
    plan = ServingPlan((), passes, memoryview(b""), 2, extrapolated=1, extrapolated_seconds=seconds)
    assert doubts_of(plan) == [f"{one} of the time was priced beyond the profile's grid" for one in said]


@pytest.mark.parametrize("policy", ["orca", "static_batching"])
def test_whole_batches_on_the_recorded_trace_take_longer_than_blocks(shared_data: Path, policy: str) -> None:
    """On one profile: what vLLM gains over them is what its paper says it gains, and no other price."""
    knobs = {"max_batch": 256} | ({"slots": 2588 * 16} if policy == "orca" else {})
    given = spec(shared_data, str(shared_data / RECORDED), ON_4090)
    found = run(load_spec({**given, "policy": policy, "knobs": knobs})).to_json()
    assert found["provenance"]["served"]["cost"] == "layer profile tp1"
    ours = replayed(shared_data)["metrics"]["throughput"]["value"]
    assert found["metrics"]["throughput"]["value"] < 0.8 * ours


def spec(shared: Path, source: str, profile: str, **more: Any) -> dict[str, Any]:
    knobs = {"max_batch": 256, "token_budget": 2048, "block_size": 16, "blocks": 2588}
    options = {"model": "llama31-8b", "extra": str(shared / profile)}
    workload = {"source": source, "format": "requests-jsonl", "options": options}
    return {
        "family": "serving",
        "policy": "vllm_v1",
        "mode": "simulated",
        "seed": 0,
        "hardware": "rtx-4090-24g",
        "knobs": {**knobs, **more.pop("knobs", {})},
        "workload": workload,
        **more,
    }


@cache
def replayed(shared: Path) -> dict[str, Any]:
    return run(load_spec(spec(shared, str(shared / RECORDED), ON_4090))).to_json()


def test_a_recorded_run_of_vllm_comes_out(shared_data: Path) -> None:
    """Means within 1 %, the 50th, 90th, 95th and 99th percentiles within 2 %; every token is there."""
    found = {name: row["value"] for name, row in replayed(shared_data)["metrics"].items()}
    rows = [json.loads(line) for line in (shared_data / RECORDED).read_text().splitlines()]
    arrival, first, last, output = (
        np.array([row[name] for row in rows], float)
        for name in ("arrival", "first_token", "last_token", "output")
    )
    truth = {"ttft": first - arrival, "tpot": (last - first) / (output - 1), "latency": last - arrival}
    for name, times in truth.items():
        assert found[f"{name}_mean"] == pytest.approx(times.mean(), rel=0.01), name
        assert found[f"{name}_error"] == pytest.approx(found[f"{name}_mean"] / times.mean() - 1, abs=1e-9)
        for share in (50, 90, 95, 99):
            expected = float(np.percentile(times, share))
            assert found[f"{name}_p{share}"] == pytest.approx(expected, rel=0.02), (name, share)
    outcome = replayed(shared_data)
    answered = outcome["plan"]["rows"]
    assert len(answered) == 300 and sum(row[7] for row in answered) == 195_753
    assert found["extrapolated_steps"] == 0


def test_without_the_prompts_blocks_it_is_a_little_further_off_and_says_so(
    shared_data: Path, tmp_path: Path
) -> None:
    lines = (shared_data / RECORDED).read_text().splitlines()
    bare = [{k: v for k, v in json.loads(line).items() if k not in ("hashes", "block")} for line in lines]
    (tmp_path / "bare.jsonl").write_text("\n".join(map(json.dumps, bare)) + "\n")
    told = run(load_spec(spec(shared_data, str(tmp_path / "bare.jsonl"), ON_4090))).to_json()
    assert abs(told["metrics"]["latency_error"]["value"]) < 0.03
    assert "own blocks alone" in told["provenance"]["served"]["prefixes"]


@pytest.mark.parametrize(
    ("source", "profile", "model", "hardware", "blocks"),
    [
        ("rtxpro6000_llama31_8b_requests", ON_6000, "llama31-8b", "rtx-pro-6000-96g", 36578),
        (
            "rtxpro6000_qwen3_32b_tp2_requests",
            ON_TWO,
            "qwen3-32b",
            {
                "cluster": {
                    "nodes": 1,
                    "devices_per_node": 2,
                    "device": "rtx-pro-6000-96g",
                    "node_link": {"bandwidth": 16e9, "latency": 20e-6},
                }
            },
            28614,
        ),
    ],
)
def test_runs_that_nobody_told_us_are_predicted(
    shared_data: Path, source: str, profile: str, model: str, hardware: Any, blocks: int
) -> None:
    made = spec(
        shared_data,
        str(shared_data / f"{FOLDER}/replay/{source}.jsonl"),
        profile,
        hardware=hardware,
        knobs={"max_batch": 128, "blocks": blocks},
    )
    made["workload"]["options"]["model"] = model
    told = run(load_spec(made)).to_json()
    assert told["status"] == "ok"
    assert told["metrics"]["unfinished_requests"]["value"] == 0
    assert 0 < told["metrics"]["tpot_mean"]["value"] < 0.2


def test_a_profile_of_other_devices_or_without_a_layer_is_refused(shared_data: Path, tmp_path: Path) -> None:
    made = spec(shared_data, str(shared_data / RECORDED), ON_TWO)
    with pytest.raises(BadInput, match="measured on 2 devices, a stage has 1"):
        run(load_spec(made))
    whole = shared_data / ON_4090
    for name in ("dense.csv", "per_sequence.csv", "attention.csv"):
        text = (whole / name).read_text()
        kept = [line for line in text.splitlines() if not line.startswith("o_proj")]
        (tmp_path / name).write_text("\n".join(kept) + "\n")
    with pytest.raises(BadInput, match="has no layer o_proj"):
        open_profiles(tmp_path)


def test_the_record_of_vllm_itself_is_read_with_its_times(shared_data: Path) -> None:
    """The raw file of the run, which tells no blocks: times are those since the engine took up the first."""
    raw = shared_data / f"{FOLDER}/vllm_truth/RTX4090/Llama-3.1-8B/requests.jsonl"
    made = spec(shared_data, str(raw), ON_4090)
    made["workload"]["format"] = "vllm-bench"
    outcome = run(load_spec(made)).to_json()
    assert outcome["provenance"]["trace"]["format"] == "vllm-bench"
    assert abs(outcome["metrics"]["latency_error"]["value"]) < 0.03


def quadratic(*, is_apart: bool) -> ProfilePrice:
    """Attention of n tokens of prompts takes n x n us in each of two layers, of n decodes n us."""
    nothing = {"any": Curve((1.0, 4096.0), (0.0, 0.0))}
    level = {
        (chunk, count): Steady((0.0,), (Curve((0.0,), (1e-6 * (chunk * chunk + count),)),))
        for chunk in (0, 10, 20, 30)
        for count in (0, 2)
    }
    times = LayerTimes("quadratic", 1, nothing, nothing, AttentionTimes(level, is_apart))
    return ProfilePrice(times, replace(served_model("llama31-8b"), layers=2))


class Waking(ToyPrice):
    """The toy's steps, a tenth of the pause before them longer, 20 ms at most."""

    def wake_seconds(self, idle: float) -> float:
        return min(0.1 * idle, 0.02)


def test_a_step_after_a_pause_takes_longer() -> None:
    """Steps of 20 ms for prompts of ten tokens; the first has had the longest pause, the second 50 ms."""
    trace, toy = requests((0, 10, 1), (90, 10, 1), (2000, 10, 1)), Waking()
    policies = {name: registry.create("serving", name, {}) for name in ("vllm_v1", "orca")}
    assert isinstance(policies["vllm_v1"], PagedPolicy) and isinstance(policies["orca"], ServingPolicy)
    for plan in (
        simulate_paged(trace, policies["vllm_v1"], 100, toy),
        simulate(trace, Engine(StepCost(toy), 100, 1), policies["orca"]),
    ):
        took = [row.end - row.start for row in plan.iterations]
        assert took == pytest.approx([0.04, 0.025, 0.04])


def test_a_profile_tells_the_longest_pause_that_it_knows() -> None:
    wake = Curve((0.0, 0.01), (0.0, 0.002))
    price = quadratic(is_apart=True)
    price = replace(price, times=replace(price.times, wake=wake))
    assert [price.wake_seconds(idle) for idle in (0.0, 0.005, 0.01, float("inf"))] == [0, 0.001, 0.002, 0.002]


def test_prompts_of_one_step_are_attended_together_or_each_by_itself() -> None:
    """Of 10 and of 20 tokens next to two decodes: 900 + 2 us in a layer, or 100 + 400 + 2."""
    prompts = [Entry(0, 10, 0), Entry(1, 20, 0)]
    load = StepLoad.of([*prompts, Entry(2, 1, 5), Entry(3, 1, 5)])
    assert quadratic(is_apart=False).seconds(load)[0] == pytest.approx(2 * 902e-6)
    assert quadratic(is_apart=True).seconds(load)[0] == pytest.approx(2 * 502e-6)
    assert quadratic(is_apart=False).steps_beyond(StepLoad.of([*prompts, Entry(2, 20, 0)])) == 1
    assert quadratic(is_apart=True).steps_beyond(StepLoad.of([*prompts, Entry(2, 20, 0)])) == 0


def test_drafts_that_are_verified_read_what_is_before_them_once() -> None:
    """Twice five tokens as two decodes: 2 us in a layer, where a prompt of ten takes 100."""
    entries = [Entry(0, 5, 7), Entry(1, 5, 9)]
    load = StepLoad.of(entries, {0, 1})
    assert quadratic(is_apart=False).seconds(load)[0] == pytest.approx(2 * 2e-6)
    assert quadratic(is_apart=False).seconds(StepLoad.of(entries))[0] == pytest.approx(2 * 100e-6)
    assert quadratic(is_apart=True).seconds(load)[0] == pytest.approx(2 * 100e-6)


def test_drafts_of_many_requests_are_within_what_was_measured(shared_data: Path) -> None:
    """Four drafts each of 48 requests at 1,024 cost more in layers and heads, and nothing in attention."""
    cost = price(shared_data, ON_6000, "llama31-8b")
    verified = StepLoad.of([Entry(row, 5, 1024) for row in range(48)], range(48))
    assert cost.steps_beyond(verified) == 0
    alone = float(cost.seconds(StepLoad.of(decodes(48, 1024)))[0])
    more = cost.dense(240) + cost.head(verified) - cost.dense(48) - cost.head(StepLoad.of(decodes(48, 1024)))
    assert float(cost.seconds(verified)[0]) == pytest.approx(alone + more)
